"""The hierarchy's settings with every "auto" decided, and the reason in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..config import HEAVY_HITTERS, EngineConfig, SpeculationConfig
from ..drafters.model import MAX_FORCED
from ..drafters.prompt_lookup import MOST_COPIED
from ..kernels import ALIKE_ROWS
from ..research.tree_settings import TreeDials

# The copy of the weights that "auto" makes: int8 keeps the retrieval tier's acceptance. int4 passes are an eighth
# shorter, but of the built-in model's tokens 12 to 27 % are then refused instead of 3 to 8 % (temperature 0).
COPY = "int8"
# Tokens per full pass to choose from while answering. A GPU captures every width that may come, gamma2 + 1 to gamma2 +
# gamma1 + 1 rows; a pass that streams its cache takes as long for many as for one.
_LENGTHS = {"cpu": (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28), "on-chip": (2, 4, 6, 8, 12, 16, 24, 32),
            "offload": (8, 12, 16, 24, 32, 48)}
_SMALL_LENGTHS = {"cpu": (1, 2, 3, 4, 6, 8, 12), "on-chip": (2, 3, 4, 6, 8), "offload": (2, 4, 6, 8, 12, 16)}
_CHAINS = (0, 1, 2, 3, 4, 6)  # tokens of the small model per pass of the middle tier
_CAPTURED_CHAINS = (1, 2, 4)  # the same where the device leads: each is captured, and in every width that may come
# What the comparisons among the middle caches attend, in words.
_HELD = {"streaming": "sinks and the newest of", "h2o": "the most attended so far and the newest,",
         "streaming-h2o": "the most attended so far and the newest, moved together,",
         "top-k": "an oracle that reads everything for each query's best"}


def prefill_chunk(config: EngineConfig, group: int, *, on_gpu: bool, streams: bool) -> int:
    """Tokens per pass of a prefill; streams: the cache comes through a link, layer by layer.

    Letters: G (group) query heads of each of H KV heads, D head_dim. A pass of n tokens brings in each earlier token's
    key and value once, 4 H D bytes in bf16, and attends them with 4 n G H D operations; its own products come on top.
    So the link keeps up from n = (rate / link) / G on: 8,000 for G = 1 on an H200 (450 TFLOP/s in attention, 55 GB/s),
    5,000 on an RTX 4090 (120, 25). With fewer, reading waits for the link; with many more only activations grow."""
    if config.prefill_chunk != "auto":
        return config.prefill_chunk
    if not on_gpu:
        return 512
    return max(4096, 8192 // group) if streams else 2048


@dataclass(frozen=True, slots=True)
class Dials:
    """What one answer runs with. why: one sentence fit to show.

    gamma1, gamma2: what it begins with, or all it ever uses; gamma1s, gamma2s: what it may choose from, round by round.
    may_rest: a round may draft nothing, where drafts do not pay."""

    engine: str
    verifier: str
    small_model: bool
    self_skip: bool  # the small model is the target itself, without a part of its layers
    middle_cache: str  # one of MIDDLE_CACHES
    gamma1: int
    gamma2: int
    gamma1s: tuple[int, ...]
    gamma2s: tuple[int, ...]
    may_rest: bool
    most: int  # tokens at which a draft of chosen length is cut off; 0: nowhere
    pace: str  # "on" or "off": whether they are so chosen
    budget: int
    chunk_size: int
    recent: int
    refresh: str
    refresh_every: int
    retrieval_weights: str
    draft_cache: str
    sinks: int
    window: int
    lenience: float
    ngram: bool
    ngram_tail: int
    straight: int  # tokens of a copy that goes to the full cache without a review; 0: there are none
    straight_by_draws: bool  # none where chance decides either
    tree: str
    tree_tier: str  # "draft", "middle" or "none"
    tree_size: int
    tree_depth: int
    why: str

    @property
    def longest(self) -> int:
        """Tokens of the longest draft that is ever asked for."""
        return max(self.gamma2s)

    @property
    def has_middle(self) -> bool:
        return self.middle_cache != "none"

    @property
    def verifies_trees(self) -> bool:
        """Whether drafts for the full cache are trees."""
        return self.tree_tier == "middle" or (self.tree_tier == "draft" and not self.has_middle)

    def shown(self) -> dict[str, int | str]:
        """As figures and words."""
        return {name: ",".join(map(str, value)) if isinstance(value, tuple) else value
                for name, value in asdict(self).items()}

    @property
    def newest(self) -> int:
        """Tokens of a streaming middle cache beside its sinks."""
        return max(1, self.budget - self.sinks)

    @classmethod
    def decide(cls, wanted: SpeculationConfig, *, context_tokens: int, has_draft: bool, on_gpu: bool,
               offloaded: bool = False, copies: Sequence[str] = (), device_leads: bool = False,
               room_to_read: bool = True) -> Dials:
        """copies: kinds of weights for which there is a copy, or room for one. device_leads: rounds of models run
        without the host, where an n-gram's text is. room_to_read: for the whole context in a cache of the draft
        model's.

        Raises nothing: impossible wishes (a budget beyond the context) become the nearest possible, with a why."""

        def auto(value: int | str, default: int) -> int:
            return default if value == "auto" else int(value)

        budget = auto(wanted.budget, 4096 if on_gpu else 768)
        budget = max(budget, 4 * wanted.chunk_size)
        # H2O's own division is half heavy hitters, half newest; retrieval needs no more newest ones than 256.
        most_recent = budget // 2 if wanted.middle_cache in HEAVY_HITTERS else min(256, budget // 2)
        recent = min(auto(wanted.recent, most_recent), budget - 2 * wanted.chunk_size)
        speculating = wanted.engine == "triforce"
        # A retrieval pass over most of the context costs what a full pass costs.
        middle = speculating and wanted.middle_cache != "none" and context_tokens >= 3 * budget
        self_skip = speculating and wanted.small_model == "self-skip"
        small = self_skip or (speculating and has_draft and wanted.small_model == "on")
        trees = TreeDials.decide(wanted, small=small, middle=middle, offloaded=offloaded, device_leads=device_leads)
        small = small and trees.tier != "middle"
        held = f"{budget:,} of {context_tokens:,} tokens"
        if wanted.middle_cache in _HELD:
            held = f"{_HELD[wanted.middle_cache]} {held}"
        # Alone, copies are the same whether they go straight or not; a tree is not reviewed copies.
        ngram = speculating and (wanted.ngram == "on" or (wanted.ngram == "straight" and not (middle or small)))
        ngram = ngram and trees.kind == "off"
        # At temperature 0 straight copies bring 1.18 times the tokens per second on five workloads on a CPU, 1.05 to
        # 1.08 times going on with five books on a GPU. Above it next to no copy is proven: looking for them costs 2 %.
        copied_straight = wanted.ngram == "straight" or (wanted.ngram == "auto" and not offloaded)
        straight = speculating and copied_straight and (middle or small)
        gamma1 = auto(wanted.gamma1, 2 if small else MOST_COPIED) if small or ngram else 0
        # A full pass that streams its cache through a link takes as long as dozens of retrieval passes, and for many
        # tokens no longer than for one (on an H200 at 124,928 tokens 16 drafted tokens gave 12.7x, 32 17.7x, 48 17.4x).
        usual = (32 if offloaded else 10) if middle else (8 if offloaded else 3 if small else MOST_COPIED)
        gamma2 = auto(wanted.gamma2, usual) if middle or small or ngram else 0
        if trees.tier == "draft" and middle:
            gamma1 = trees.depth
        elif trees.kind != "off":
            gamma2 = trees.depth
        gamma1s: tuple[int, ...] = (gamma1,)
        gamma2s: tuple[int, ...] = (gamma2,)
        # Chosen lengths alone keep drafting from being slower than plain decoding where drafts are seldom right. Over
        # the usual ones they bring 1.1 to 1.2 times the tokens per second on a GPU, on two CPU cores as many or more.
        paced = "off" if wanted.pace == "off" or trees.kind != "off" else "on"
        if paced != "off" and wanted.gamma2 == "auto" and (middle or small):
            where = "offload" if offloaded else "on-chip" if on_gpu else "cpu"
            gamma2s = (_LENGTHS if middle else _SMALL_LENGTHS)[where]
        if paced != "off" and wanted.gamma1 == "auto" and middle and small and not ngram:  # copies have their own
            gamma1s = _CAPTURED_CHAINS if device_leads else _CHAINS
        # Wider, a CPU's products take another way: no longer to the last bit what plain decoding computes.
        most = ALIKE_ROWS - 1 if len(gamma2s) > 1 and not on_gpu else 0
        weights = wanted.retrieval_weights
        # Beside a cache that streams, drafting is a small part of the time, and its layers need the memory more.
        copied = COPY if weights == "auto" and on_gpu and not offloaded else weights
        if not middle or copied not in copies:
            copied = "same"
        # Where the cache comes through a link, drafting is a small part of the time and its memory better spent; a CPU
        # reads a long document noticeably longer for it.
        reads = wanted.draft_cache == "cross" or (wanted.draft_cache == "auto" and middle and on_gpu and not offloaded)
        cross = small and not self_skip and reads and room_to_read
        if not speculating:
            why = "plain decoding was chosen"
        elif middle and small:
            why = f"small model, then {held}, then all of them"
        elif middle:
            absent = "no draft model" if trees.tier != "middle" else "no small model"
            why = f"{absent}: {held} draft, all of them verify"
        elif small and wanted.middle_cache == "none":
            why = f"the small model drafts alone, all of {context_tokens:,} tokens verify"
        elif small:
            why = f"the context is short ({context_tokens:,} tokens): the small model drafts alone"
        elif ngram:
            why = f"no model drafts: what stood in the text before is copied, all of {context_tokens:,} tokens verify"
        else:
            off = "there is no middle tier" if wanted.middle_cache == "none" else "the context is short"
            why = f"off: {off} and {'the draft model is off' if has_draft else 'there is no draft model'}"
            speculating = False
        if copied != "same":
            why += f"; the {budget:,} through a copy of the weights in {copied}"
        elif middle and weights not in ("auto", "same"):
            why += f"; no memory is free for a copy of the weights in {weights}"
        if trees.why:
            why += f"; {trees.why}"
        if cross:
            why += "; to answer in words of its own the small model attends what the model attended"
        elif self_skip:
            why += "; the small model is the model itself without a part of its layers"
        elif small and reads:
            why += "; no memory is free for the small model to read the document"
        if ngram and (middle or small):
            why += "; what stood in the text before is copied first"
            if device_leads:
                why += ", so the host leads the rounds"
        elif straight:
            why += "; or what stood in the text before is copied, where that promises more"
        return cls("triforce" if speculating else "autoregressive", wanted.verifier, small, self_skip,
                   wanted.middle_cache if middle else "none", gamma1, gamma2, gamma1s, gamma2s,
                   speculating and wanted.gamma2 == "auto" and paced != "off", most, paced,
                   budget, wanted.chunk_size, recent, wanted.refresh, auto(wanted.refresh_every, 1), copied,
                   "cross" if cross else "streaming",
                   wanted.sinks, auto(wanted.window, 256), wanted.lenience, ngram,
                   auto(wanted.ngram_tail, MOST_COPIED) if ngram and small else 0, MAX_FORCED if straight else 0,
                   on_gpu and wanted.ngram == "auto",
                   trees.kind, trees.tier, trees.size, trees.depth, why)
