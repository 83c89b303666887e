"""``transformers`` on the same weights, tokens, dtype, threads and device, in a process of its own.

    python -m triforce_core.bench.peer JOB.json     (started by ``run_peer``; prints one JSON object)

Prefill in the same chunks into its default cache, then ``model.generate``, greedy. ``dynamic`` (the default of
generate) copies the whole cache for every token, ``static`` does not but attends all its slots: both are measured
and the faster one counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any


@dataclass(frozen=True, slots=True)
class PeerJob:
    folder: str  # checkpoint folder; a compact one is dequantised
    token_ids: tuple[int, ...]
    dtype: str
    device: str
    threads: int
    prefill_chunk: int
    new_tokens: int


def run_peer(job: PeerJob) -> dict[str, Any]:
    """prefill_seconds, prefill_tokens_per_second, tokens_per_second, cache, per_cache, token_ids, transformers, ..."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(asdict(job)))
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run([sys.executable, "-P", "-m", "triforce_core.bench.peer", str(path)], check=True,
                              stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)})
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _load(job: PeerJob) -> Any:
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM

    from ..model.quantized import FORMAT, SCALE_SUFFIX, dequantize

    folder, dtype = Path(job.folder), getattr(torch, job.dtype)
    weights = folder / "model.safetensors"
    compact = False
    if weights.is_file():
        with safe_open(str(weights), framework="pt") as file:
            compact = (file.metadata() or {}).get("format") == FORMAT
    if not compact:
        whole: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
        return whole.to(job.device)
    from safetensors.torch import load_file

    stored = load_file(weights)
    state = {name: dequantize(data, stored[name + SCALE_SUFFIX]) if name + SCALE_SUFFIX in stored else data
             for name, data in stored.items() if not name.endswith(SCALE_SUFFIX)}
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="sdpa")
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.to(dtype=dtype, device=job.device)


class _Clock:
    """A streamer that notes when each token came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(perf_counter())

    def end(self) -> None: ...


def _measure(model: Any, job: PeerJob, kind: str) -> dict[str, Any]:
    import torch
    from transformers import DynamicCache, StaticCache

    ids = torch.tensor([job.token_ids], device=job.device)
    length = ids.shape[1]
    cache: Any = DynamicCache(config=model.config)
    if kind == "static":
        cache = StaticCache(config=model.config, max_cache_len=length + job.new_tokens + 1)
    started = perf_counter()
    for start in range(0, length - 1, job.prefill_chunk):
        stop = min(start + job.prefill_chunk, length - 1)
        model(input_ids=ids[:, start:stop], past_key_values=cache, use_cache=True, logits_to_keep=1,
              cache_position=torch.arange(start, stop, device=job.device))
    if job.device.startswith("cuda"):
        torch.cuda.synchronize()
    prefill = perf_counter() - started
    clock = _Clock()
    out = model.generate(ids, past_key_values=cache, max_new_tokens=job.new_tokens, min_new_tokens=job.new_tokens,
                         do_sample=False, streamer=clock, attention_mask=torch.ones_like(ids),
                         eos_token_id=None, pad_token_id=0)
    times = clock.times[-job.new_tokens :]  # the first put is the prompt
    return {"cache": kind, "prefill_seconds": prefill, "tokens_per_second": (len(times) - 1) / (times[-1] - times[0]),
            "token_ids": out[0, length:].tolist()}


def measure_peer(job: PeerJob, kinds: Sequence[str] = ("dynamic", "static")) -> dict[str, Any]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(job.threads)
    with torch.inference_mode():
        model = _load(job).eval()
        warm = PeerJob(**{**asdict(job), "token_ids": tuple(job.token_ids[:256]), "new_tokens": 4})
        per_cache: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for kind in kinds:
            try:
                _measure(model, warm, kind)
                per_cache[kind] = _measure(model, job, kind)
            except (RuntimeError, ValueError, TypeError, AttributeError) as error:
                failed[kind] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    assert per_cache, failed
    best = max(per_cache.values(), key=lambda found: found["tokens_per_second"])
    prefill = min(found["prefill_seconds"] for found in per_cache.values())
    return {"name": "transformers", "version": transformers.__version__, "attention": "sdpa",
            "tokens_per_second": best["tokens_per_second"], "cache": best["cache"], "prefill_seconds": prefill,
            "prefill_tokens_per_second": len(job.token_ids) / prefill, "context_tokens": len(job.token_ids),
            "per_cache": {kind: {"tokens_per_second": found["tokens_per_second"],
                                 "prefill_seconds": found["prefill_seconds"]} for kind, found in per_cache.items()},
            "failed": failed, "token_ids": best["token_ids"]}


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(measure_peer(PeerJob(**{**given, "token_ids": tuple(given["token_ids"])}))))


if __name__ == "__main__":
    main()
