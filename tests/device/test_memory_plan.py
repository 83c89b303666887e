"""What fits where, by exact arithmetic on real shapes and machines that are not this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triforce_core.assets import BUILTIN_FOLDER
from triforce_core.device.memory_plan import (
    LEAST_CONTEXT,
    Room,
    Weights,
    Wish,
    longest_plan,
    make_plan,
    workspace,
)
from triforce_core.errors import NotEnoughMemoryError
from triforce_core.model import parse_config, read_config

GIB = 2**30


def llama(**sizes: int) -> Weights:
    return Weights(parse_config({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072, **sizes}))


LLAMA_2_7B = llama(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
                   vocab_size=32000)
LLAMA_3_8B = llama(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                   num_key_value_heads=8, vocab_size=128256)
LLAMA_68M = llama(hidden_size=768, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=12,
                  vocab_size=32000)
PAPER = Wish(LLAMA_2_7B, 131072, LLAMA_68M, budget=4096, draft_slots=4 + 256 + 128, prefill_chunk=2048)
GQA = replace(PAPER, target=LLAMA_3_8B, draft=None)
H200 = Room(host_free=120 * GIB, device_free=139 * GIB)
CONTEXT = 124_928


def builtin(role: str, dtype_bytes: int, *, keeps_int8: bool = False) -> Weights:
    return Weights(read_config(BUILTIN_FOLDER / role), dtype_bytes, int8=True, keeps_int8=keeps_int8)


def test_llama_2_7b_at_the_papers_length() -> None:
    plan = make_plan(PAPER, H200, CONTEXT, ["on-chip", "offload"])
    assert plan.mode == "on-chip" and plan.resident_layers == 32 and plan.host == 0
    assert plan.kv_per_token == GIB // 2048  # half a MiB
    assert plan.kv == plan.resident_kv == 61 * GIB
    assert plan.weights == 2 * (32 * (4 * 4096 * 4096 + 3 * 4096 * 11008) + 2 * 32000 * 4096)
    assert plan.draft_weights == 2 * (2 * (4 * 768 * 768 + 3 * 768 * 3072) + 2 * 32000 * 768)
    assert plan.retrieval == (4096 + 64) * GIB // 2048
    assert plan.draft_cache == 388 * 2 * 2 * 12 * 64 * 2
    reads = make_plan(replace(PAPER, draft_reads=True), H200, CONTEXT, ["on-chip"])
    assert reads.draft_cache - plan.draft_cache == CONTEXT * 2 * 2 * 12 * 64 * 2
    offloaded = make_plan(replace(PAPER, draft_reads=True), replace(H200, device_free=24 * GIB), CONTEXT, ["offload"])
    assert offloaded.draft_cache == plan.draft_cache  # layers of the cache need that memory more
    tight = replace(H200, device_free=81 * GIB)
    assert make_plan(replace(PAPER, draft_reads=True), tight, CONTEXT, ["on-chip"]).draft_cache == plan.draft_cache
    assert plan.reserve == 139 * GIB // 32
    assert plan.need == (plan.weights + plan.draft_weights + plan.kv + plan.retrieval + plan.draft_cache
                         + plan.workspace + plan.reserve)
    assert plan.longest == plan.longest_on_chip == plan.longest_offloaded == 131_072  # the model's own


def test_workspace_is_the_widest_pass() -> None:
    """2,048 rows: residual and norms, then queries, keys and values with seven parts of attention on a GPU (wider than
    gate and up); 64 rows of logits, attention mass of 15,616 chunks, one layer of the cache again while it grows."""
    attention = 2048 * (3 * 4096 * 2 + 2 * 4096 * 8 + 2 * 4096 * 2)
    parts = 2048 * 4096 * (7 * 2 + 4)
    rows = 2048 * 4096 * 10 + attention + parts
    logits, mass = 64 * 32000 * 18, 3 * 4 * 32 * 32 * (CONTEXT // 8)
    assert workspace(PAPER, CONTEXT, "offload") == rows + logits + mass
    assert workspace(PAPER, CONTEXT, "on-chip") == rows + logits + mass + 61 * GIB // 32
    scores = min(1 << 26, 32 * 2048 * CONTEXT) * 2 * 9 // 8
    assert workspace(PAPER, CONTEXT, "cpu") == rows - parts + logits + mass + 61 * GIB // 32 + scores


def test_a_quantised_copy_is_kept_where_it_fits() -> None:
    wish = replace(PAPER, copy_bytes_per_weight=0.5)
    plan = make_plan(wish, H200, CONTEXT, ["on-chip"])
    head = 32000 * 4096  # in int8, whatever the layers are in
    assert plan.weight_copy == (plan.weights // 2 - 2 * head) // 2 + head
    tight = replace(H200, device_free=plan.need - plan.weight_copy)
    assert make_plan(wish, tight, CONTEXT, ["on-chip"]).weight_copy == 0
    limited = replace(H200, limit=24 * GIB)
    assert make_plan(wish, limited, CONTEXT, ["offload"]).weight_copy == 0  # layers of the cache are worth more there


def test_retrieval_in_place_needs_no_copy_on_chip() -> None:
    wish = replace(PAPER, in_place=True)
    assert make_plan(wish, H200, CONTEXT, ["on-chip"]).retrieval == 0
    copied = make_plan(wish, replace(H200, limit=24 * GIB), CONTEXT, ["offload"])
    assert copied.retrieval == (4096 + 64) * GIB // 2048


def test_beside_a_streamed_cache_an_eighth_is_retrieved_where_it_fits() -> None:
    """For its memory fewer layers stay on the GPU, none of what fitted is refused, and shorter contexts keep 4,096."""
    target = replace(LLAMA_2_7B, few_bits=0.53, few_bits_head=1.0)
    wish = replace(PAPER, target=target, in_place=True, streamed_budget=8)
    limited = replace(H200, limit=24 * GIB)
    usual = make_plan(replace(wish, streamed_budget=0), limited, CONTEXT, ["offload"])
    larger = make_plan(wish, limited, CONTEXT, ["offload"])
    most = 15 * 1024  # an eighth, in whole thousands
    assert (usual.budget, larger.budget) == (4096, most)
    assert larger.retrieval == (most + 64) * GIB // 2048
    assert 0 < usual.resident_layers - larger.resident_layers <= 4
    assert larger.fits and larger.host + larger.resident_kv == larger.kv
    assert make_plan(wish, limited, 24_576, ["offload"]).budget == 4096
    assert make_plan(wish, H200, CONTEXT, ["on-chip"]).budget == 4096
    assert make_plan(wish, H200, CONTEXT, ["offload"]).resident_layers == 32  # nothing streams
    bare = larger.need - larger.resident_kv
    part = make_plan(wish, Room(H200.host_free, device_free=bare - 2 * GIB), CONTEXT, ["offload"])
    assert 4096 < part.budget < most and part.budget % 1024 == part.resident_layers == 0
    assert part.need <= part.have < part.need + 1024 * GIB // 2048
    for device, host, budget in ((usual.need - usual.resident_kv, H200.host_free, 4096),
                                 (24 * GIB, larger.host * 16 // 15 + 15, most),
                                 (24 * GIB, larger.host * 16 // 15 - GIB, 4096)):
        tight = make_plan(wish, Room(host, device_free=device), CONTEXT, ["offload"])
        assert tight.budget == budget and tight.fits, (device, host)
    assert larger.longest == usual.longest


def test_two_ranks_hold_half_of_the_heads_each() -> None:
    shape = replace(LLAMA_3_8B.shape, num_heads=16, num_kv_heads=4, intermediate_size=7168)
    half = make_plan(replace(GQA, target=Weights(shape, ranks=2)), H200, CONTEXT, ["on-chip"])
    whole = make_plan(GQA, H200, CONTEXT, ["on-chip"])
    assert half.kv == whole.kv // 2
    assert 2 * half.weights == whole.weights + 2 * 128256 * 4096  # the embedding is whole on both


def test_gqa_needs_a_quarter() -> None:
    plan = make_plan(GQA, H200, CONTEXT, ["on-chip"])
    assert plan.kv == 61 * GIB // 4 and plan.draft_weights == plan.draft_cache == 0
    assert plan.weights == 2 * (32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 2 * 128256 * 4096)


def test_24_gib_keep_some_layers() -> None:
    plan = make_plan(PAPER, replace(H200, limit=24 * GIB), CONTEXT, ["on-chip", "offload"])
    layer = 61 * GIB // 32
    assert plan.mode == "offload" and plan.have == 24 * GIB
    assert plan.streams == 2 * layer
    fixed = plan.need - plan.resident_kv
    assert plan.resident_layers == (24 * GIB - fixed) // layer >= 1
    assert plan.need <= 24 * GIB < plan.need + layer  # one more layer would not fit
    assert plan.resident_kv + plan.host == plan.kv
    assert str(plan.resident_layers) in plan.why and "61.0 GiB" in plan.why
    assert plan.longest_on_chip is not None and plan.longest_on_chip < CONTEXT <= plan.longest
    smaller = replace(PAPER, stream_tokens=8192)
    narrow = make_plan(smaller, replace(H200, limit=24 * GIB), CONTEXT, ["offload"])
    assert narrow.streams == 2 * 8192 * GIB // 2048 // 32 and narrow.resident_layers > plan.resident_layers


def test_fewer_resident_layers_can_be_asked_for_and_wide_passes_and_tails_count() -> None:
    room = replace(H200, limit=24 * GIB)
    free = make_plan(PAPER, room, CONTEXT, ["offload"])
    none = make_plan(replace(PAPER, most_resident=0), room, CONTEXT, ["offload"])
    assert free.resident_layers > 0 == none.resident_layers and none.host == none.kv
    assert make_plan(replace(PAPER, most_resident=0), H200, CONTEXT, ["offload"]).resident_layers == 0
    assert make_plan(replace(PAPER, most_resident=32), H200, CONTEXT, ["offload"]).resident_layers == 32
    assert make_plan(replace(PAPER, stream_tail=256), room, CONTEXT, ["offload"]).streams == (
        free.streams + 256 * PAPER.target.kv_per_token)
    wide = replace(PAPER, streamed_chunk=8192)
    assert workspace(wide, CONTEXT, "on-chip") == workspace(PAPER, CONTEXT, "on-chip")
    assert workspace(wide, CONTEXT, "offload") > 2 * workspace(PAPER, CONTEXT, "offload")


def test_weights_in_few_bits_need_room_for_their_largest_product_on_a_gpu() -> None:
    rounded = replace(PAPER, target=replace(PAPER.target, few_bits=0.5, few_bits_head=1.0))
    largest = 2 * PAPER.target.shape.intermediate_size * PAPER.target.shape.hidden_size * 2
    assert workspace(rounded, CONTEXT, "on-chip") == workspace(PAPER, CONTEXT, "on-chip") + 2 * largest
    assert workspace(rounded, CONTEXT, "cpu") == workspace(PAPER, CONTEXT, "cpu")


def test_16_gib() -> None:
    """7B weights leave no room for two layers of the whole context, but for a shorter one."""
    room = replace(H200, limit=16 * GIB)
    with pytest.raises(NotEnoughMemoryError) as caught:
        make_plan(PAPER, room, CONTEXT, ["on-chip", "offload"])
    message = str(caught.value)
    assert "124,928 tokens" in message and "16.0 GiB are free under the limit" in message
    assert "raise --gpu-memory-limit" in message and "smaller model" in message
    best = longest_plan(PAPER, room, ["on-chip", "offload"])
    assert f"{best.context:,} tokens fit" in message and LEAST_CONTEXT <= best.context < CONTEXT
    with pytest.raises(NotEnoughMemoryError):
        make_plan(PAPER, room, best.context + 1, ["on-chip", "offload"])
    with pytest.raises(NotEnoughMemoryError, match="256 tokens of context need 15") as caught:
        longest_plan(GQA, replace(H200, limit=15 * GIB), ["on-chip", "offload"])
    assert "tokens fit" not in str(caught.value)


def test_offload_is_named_where_it_would_help() -> None:
    room = replace(H200, limit=24 * GIB)
    with pytest.raises(NotEnoughMemoryError, match=r"--mode offload.*fewer KV heads"):
        make_plan(PAPER, room, CONTEXT, ["on-chip"])
    with pytest.raises(NotEnoughMemoryError) as caught:
        make_plan(PAPER, replace(room, host_free=32 * GIB), CONTEXT, ["on-chip"])
    assert "--mode offload" not in str(caught.value)


def test_host_memory_limits_offloading() -> None:
    room = Room(host_free=32 * GIB, device_free=24 * GIB)
    with pytest.raises(NotEnoughMemoryError, match=r"host memory, and 30\.0 GiB are free"):
        make_plan(PAPER, room, CONTEXT, ["offload"])
    best = longest_plan(PAPER, room, ["offload"])
    assert best.host <= 30 * GIB and best.context == best.longest < CONTEXT


def test_the_longest_context_is_the_longest() -> None:
    room = replace(H200, device_free=80 * GIB)
    best = longest_plan(replace(PAPER, max_context=1 << 20), room, ["on-chip"])
    assert best.need <= best.have
    for tokens, fits in ((best.context, True), (best.context + 1, False)):
        try:
            make_plan(replace(PAPER, max_context=1 << 20), room, tokens, ["on-chip"])
            assert fits
        except NotEnoughMemoryError:
            assert not fits
    assert longest_plan(replace(PAPER, max_context=1000), room, ["on-chip"]).context == 1000


def test_the_built_in_pair_on_a_cpu() -> None:
    """int8 weights: the embedding stays int8; with bf16 products each matrix is held in both forms, the head too."""
    target, draft = builtin("target", 2, keeps_int8=True), builtin("draft", 2, keeps_int8=True)
    layers, head = 8 * (4 * 512 * 512 + 3 * 512 * 1408), 24_576 * 512
    assert target.nbytes == 3 * (layers + head) + head
    assert builtin("target", 4).nbytes == 4 * (layers + head) + head
    assert replace(target, in_panels=True).nbytes == layers + 2 * head  # our own kernels: one form of each
    assert replace(target, in_panels=True, int8=False).nbytes == 2 * (layers + 2 * head)
    wish = Wish(target, 32768, draft, budget=768, draft_slots=388)
    plan = make_plan(wish, Room(host_free=8 * GIB), 32768, ["cpu"])
    assert plan.mode == "cpu" and plan.kv == 32768 * 2 * 8 * 8 * 64 * 2 == GIB // 2
    assert plan.reserve == 512 * 2**20 and plan.longest == 32768
    assert plan.longest_on_chip is plan.longest_offloaded is None
    with pytest.raises(NotEnoughMemoryError, match="close other programs") as caught:
        make_plan(replace(wish, target=builtin("target", 4)), Room(host_free=GIB), 32768, ["cpu"])
    assert "--dtype bfloat16" in str(caught.value) and "GPU" not in str(caught.value)
