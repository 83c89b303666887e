"""Decide what one answer runs with: ``plan`` turns settings into a frozen ``Plan``, every "auto" decided. Pure.

What follows from the machine and the model comes in as a ``Situation``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..config import EngineConfig, SpeculationConfig
from ..kernels import BATCH_INVARIANT_ROWS
from ..speculation.draft_length import Candidates
from ..speculation.model_drafter import MAX_GUIDED
from ..speculation.prompt_lookup import MOST_COPIED

# The copy of the weights that "auto" makes: int8 keeps the retrieval tier's acceptance. int4 passes are an eighth
# shorter, but of the built-in model's tokens 12 to 27 % are then refused instead of 3 to 8 % (temperature 0).
COPY = "int8"
# Tokens per full pass to choose from while answering. A GPU captures every width that may come, gamma2 + 1 to gamma2 +
# gamma1 + 1 rows; a pass that streams its cache takes as long for many as for one.
_LENGTHS = {"cpu": (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28), "on-chip": (2, 4, 6, 8, 12, 16, 24, 32),
            "offload": (8, 12, 16, 24, 32, 48)}
_SMALL_LENGTHS = {"cpu": (1, 2, 3, 4, 6, 8, 12), "on-chip": (2, 3, 4, 6, 8), "offload": (2, 4, 6, 8, 12, 16)}
# Tokens of the draft model per pass of the intermediate verifier. Where rounds run as graphs one takes next to nothing.
# To choose their number round by round brought no 1 % on recorded answers, with a CPU's costs or an H200's.
CHAIN, _CAPTURED_CHAIN = 2, 4
# One in so many tokens of a context is retrieved where a full pass streams through a link and memory allows: then more
# is right of what is drafted, and a full pass has up to a tenth of the layers less on the GPU. Of 1,480 tokens drafted
# behind 123,000 at temperature 0.6, the same texts, 61 were refused with 4,096 retrieved, 48 with about 8,000, 39 with
# 15,360 (docs/measurements.md).
STREAMED_BUDGET = 8
# Tokens that the small model has newest: in a streaming cache; and where it attends as many others that the target
# attended. The built-in one was trained on parts of long texts for that (training/distil.py): in free answers over
# 30,000 tokens 76 % of its tokens were accepted with 768 and 71 % with 384 (temperature 0).
_WINDOW, _CROSS_WINDOW = 256, 768


def prefill_chunk(config: EngineConfig, group: int, *, on_gpu: bool, streams: bool) -> int:
    """Return the tokens per pass of a prefill; streams: the cache comes through a link, layer by layer.

    Letters: G (group) query heads of each of H KV heads, D head_dim. A pass of n tokens brings in each earlier token's
    key and value once, 4 H D bytes in bf16, and attends them with 4 n G H D operations; its own products come on top.
    So the link keeps up from n = (rate / link) / G on: 11,000 for G = 1 on an H200 (610 TFLOP/s in attention, 55 GB/s),
    5,000 on an RTX 4090 (120, 25). With fewer, reading waits for the link; with many more only activations grow."""
    if config.prefill_chunk != "auto":
        return config.prefill_chunk
    if not on_gpu:
        return 512
    return max(4096, 12_288 // group) if streams else 2048


@dataclass(frozen=True, slots=True)
class Situation:
    """Hold what a plan follows from beside the settings. copies: kinds of weights for which there is a copy, or room
    for one. on_graphs: rounds of models run without the host. room_to_read: for the whole context in a cache of the
    draft model's. budget: tokens for which a retrieval cache of its own has room; 0: not planned. retrieves: some layer
    attends all tokens."""

    context_tokens: int
    has_draft: bool
    on_gpu: bool
    offloaded: bool = False
    copies: tuple[str, ...] = ()
    on_graphs: bool = False
    room_to_read: bool = True
    budget: int = 0
    retrieves: bool = True
    alike: bool = True


@dataclass(frozen=True, slots=True)
class Tiers:
    """Say which tiers draft. draft_model: the small model writes; intermediate: the target's weights over ``budget``
    tokens of the cache check, the ``recent`` newest among them."""

    speculates: bool
    draft_model: bool
    intermediate: bool
    budget: int
    recent: int

    @property
    def drafts(self) -> bool:
        return self.intermediate or self.draft_model


@dataclass(frozen=True, slots=True)
class Lengths:
    """gamma1, gamma2: what an answer begins with, or all it ever uses; gamma2s: what it may choose gamma2 from, round
    by round. may_rest: a round may draft nothing, where drafts do not pay. most: tokens at which a draft of chosen
    length is cut off; 0: nowhere. pace: "on" or "off", whether they are so chosen."""

    gamma1: int
    gamma2: int
    gamma2s: tuple[int, ...]
    may_rest: bool
    most: int
    pace: str

    @property
    def longest(self) -> int:
        """Return the tokens of the longest draft that is ever asked for."""
        return max(self.gamma2s)


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold what one answer runs with. why: one sentence fit to show.

    middle_cache: what the intermediate verifier attends, "none" where there is none. lookup: prompt lookup is a tier of
    its own. direct: tokens of a copy that goes to the full cache beside the other tiers, 0: there are none;
    direct_coupled_only: none where rejection decides either."""

    engine: str
    verifier: str
    draft_model: bool
    middle_cache: str
    lengths: Lengths
    budget: int
    chunk_size: int
    recent: int
    refresh_every: int
    retrieval_weights: str
    draft_cache: str
    sinks: int
    window: int
    lookup: bool
    direct: int
    direct_coupled_only: bool
    why: str

    @property
    def has_intermediate(self) -> bool:
        return self.middle_cache != "none"

    @property
    def candidates(self) -> Candidates:
        """Return the lengths to choose from."""
        lengths = self.lengths
        return Candidates(lengths.gamma2s, lengths.may_rest, lengths.most or None)

    @property
    def tiers_key(self) -> str | None:
        """Return all that a step of the drafter takes its time from; None: it takes more for a longer context."""
        small = f"small model, {self.draft_cache} {self.sinks} and {self.window}" if self.draft_model else \
            "no small model"
        middle = f"{self.middle_cache} {self.budget}, {self.recent} newest, chunks of {self.chunk_size} every " \
                 f"{self.refresh_every}, weights {self.retrieval_weights}"
        return f"{small}; {middle if self.has_intermediate else 'no intermediate verifier'}"

    def shown(self) -> dict[str, int | str]:
        """Return its fields, and those of ``lengths``, as figures and words."""
        found = asdict(self)
        found |= found.pop("lengths")
        return {name: ",".join(map(str, value)) if isinstance(value, tuple) else value
                for name, value in found.items()}


def plan(wanted: SpeculationConfig, at: Situation) -> Plan:
    """Decide. Raises nothing: impossible wishes (a budget beyond the context) become the nearest possible, with a
    why."""
    tiers = _tiers(wanted, at)
    lookup = tiers.speculates and wanted.ngram == "straight" and not tiers.drafts
    # At temperature 0 direct copies bring 1.18 times the tokens per second on five workloads on a CPU, 1.05 to 1.08
    # times going on with five books on a GPU. Above it next to no copy is proven: looking for them costs 2 %.
    directly = wanted.ngram == "straight" or (wanted.ngram == "auto" and not at.offloaded)
    direct = MAX_GUIDED if tiers.speculates and directly and tiers.drafts else 0
    copied, reads = _copied(wanted, at, tiers), _reads(wanted, at, tiers)
    cross = tiers.draft_model and reads and at.room_to_read
    why = [_who_drafts(wanted, at, tiers, lookup)]
    if tiers.speculates:
        why += [_weights_why(wanted, tiers, copied), _draft_model_why(tiers, reads, cross)]
    if tiers.draft_model and not at.alike:
        why.append("it proposes what is one token in its vocabulary and in the model's")
    if direct:
        why.append("words that stood in the text before are copied instead where that promises more")
    return Plan(
        engine="triforce" if tiers.speculates and (tiers.drafts or lookup) else "autoregressive",
        verifier=wanted.verifier, draft_model=tiers.draft_model,
        middle_cache=wanted.middle_cache if tiers.intermediate else "none",
        lengths=_lengths(wanted, at, tiers, lookup),
        budget=tiers.budget, chunk_size=wanted.chunk_size, recent=tiers.recent,
        refresh_every=_auto(wanted.refresh_every, 1), retrieval_weights=copied,
        draft_cache="cross" if cross else "streaming", sinks=wanted.sinks,
        window=_auto(wanted.window, _CROSS_WINDOW if cross else _WINDOW),
        lookup=lookup, direct=direct, direct_coupled_only=at.on_gpu and wanted.ngram == "auto",
        why="; ".join(filter(None, why)))


def _copied(wanted: SpeculationConfig, at: Situation, tiers: Tiers) -> str:
    """Return the weights of the intermediate verifier: "same", or a copy in few bits."""
    kind: str = wanted.retrieval_weights
    # Beside a cache that streams, drafting is a small part of the time, and its layers need the memory more.
    if kind == "auto" and at.on_gpu and not at.offloaded:
        kind = COPY
    return kind if tiers.intermediate and kind in at.copies else "same"


def _reads(wanted: SpeculationConfig, at: Situation, tiers: Tiers) -> bool:
    """Return whether the draft model shall read the whole context. Where the cache comes through a link, drafting is a
    small part of the time and its memory better spent; a CPU reads a long document noticeably longer for it."""
    usual = tiers.intermediate and at.on_gpu and not at.offloaded
    if not at.alike:  # what the target attends lies elsewhere in the draft model's tokens
        return False
    return wanted.draft_cache == "cross" or (wanted.draft_cache == "auto" and usual)


def _auto(value: int | str, default: int) -> int:
    return default if value == "auto" else int(value)


def _tiers(wanted: SpeculationConfig, at: Situation) -> Tiers:
    usual = max(at.budget if at.offloaded else 0, 4096 if at.on_gpu else 768)
    budget = max(_auto(wanted.budget, usual), 4 * wanted.chunk_size)
    recent = min(_auto(wanted.recent, min(256, budget // 2)), budget - 2 * wanted.chunk_size)
    speculates = wanted.engine == "triforce"
    # A retrieval pass over most of the context costs what a full pass costs.
    intermediate = speculates and at.retrieves and wanted.middle_cache != "none" and at.context_tokens >= 3 * budget
    draft_model = speculates and at.has_draft and wanted.small_model == "on"
    return Tiers(speculates, draft_model, intermediate, budget, recent)


def _usual_lengths(wanted: SpeculationConfig, at: Situation, tiers: Tiers, lookup: bool) -> tuple[int, int]:
    """Return gamma1 and gamma2: as they were given, or what is good for most texts; 0 where nothing drafts."""
    small, middle = tiers.draft_model, tiers.intermediate
    chain = _CAPTURED_CHAIN if at.on_graphs and middle else CHAIN
    gamma1 = _auto(wanted.gamma1, chain if small else MOST_COPIED) if small or lookup else 0
    if middle:
        # A full pass that streams its cache through a link takes as long as dozens of retrieval passes, and for many
        # tokens no longer than for one (on an H200 at 124,928 tokens 16 drafted tokens gave 12.7x, 32 17.7x, 48 17.4x).
        usual = 32 if at.offloaded else 10
    else:
        usual = 8 if at.offloaded else 3 if small else MOST_COPIED
    return gamma1, _auto(wanted.gamma2, usual) if tiers.drafts or lookup else 0


def _lengths(wanted: SpeculationConfig, at: Situation, tiers: Tiers, lookup: bool) -> Lengths:
    gamma1, gamma2 = _usual_lengths(wanted, at, tiers, lookup)
    # Chosen lengths alone keep drafting from being slower than plain decoding where drafts are seldom right. Over
    # the usual ones they bring 1.1 to 1.2 times the tokens per second on a GPU, on two CPU cores as many or more.
    paced = wanted.pace != "off"
    chosen = paced and wanted.gamma2 == "auto"
    gamma2s: tuple[int, ...] = (gamma2,)
    if chosen and tiers.drafts:
        where = "offload" if at.offloaded else "on-chip" if at.on_gpu else "cpu"
        gamma2s = (_LENGTHS if tiers.intermediate else _SMALL_LENGTHS)[where]
    # Wider, a CPU's products take another way: no longer to the last bit what plain decoding computes.
    most = BATCH_INVARIANT_ROWS - 1 if len(gamma2s) > 1 and not at.on_gpu else 0
    may_rest = chosen and tiers.speculates and (tiers.drafts or lookup)
    return Lengths(gamma1, gamma2, gamma2s, may_rest, most, "on" if paced else "off")


def _who_drafts(wanted: SpeculationConfig, at: Situation, tiers: Tiers, lookup: bool) -> str:
    """Say who drafts and who verifies."""
    if not tiers.speculates:
        return "plain decoding was chosen"
    context = f"{at.context_tokens:,} tokens"
    if tiers.intermediate:
        held = f"{tiers.budget:,} of {context}"
        if tiers.draft_model:
            return f"the small model drafts, {held} check, and all of them decide"
        return f"no small model: {held} draft, all of them verify"
    without = wanted.middle_cache == "none" or not at.retrieves
    if tiers.draft_model:
        return (f"the small model drafts alone, all of {context} verify" if without
                else f"the context is short ({context}): the small model drafts alone")
    if lookup:
        return f"no model drafts: what stood in the text before is copied, all of {context} verify"
    off = "there is no intermediate verifier" if without else "the context is short"
    return f"off: {off} and {'the draft model is off' if at.has_draft else 'there is no draft model'}"


def _weights_why(wanted: SpeculationConfig, tiers: Tiers, copied: str) -> str:
    if copied != "same":
        return f"the {tiers.budget:,} through a copy of the weights in {copied}"
    if tiers.intermediate and wanted.retrieval_weights not in ("auto", "same"):
        return f"no memory is free for a copy of the weights in {wanted.retrieval_weights}"
    return ""


def _draft_model_why(tiers: Tiers, reads: bool, cross: bool) -> str:
    if cross:
        return "to answer in words of its own the small model attends what the model attended"
    return "no memory is free for the small model to read the document" if tiers.draft_model and reads else ""
