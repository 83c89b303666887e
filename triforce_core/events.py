"""Define what the engine reports while it works: frozen values, no tensors, picklable (they cross processes).

A screen, a log, a chart and an API all fold the same events; ``metrics`` holds the folds.
Times are seconds unless the name says otherwise; token positions are positions in the context
(position 0 is the first token of the document prompt).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .surrogates import whole_text

FinishReason = Literal["stop", "length", "cancelled", "context", "loop"]  # the last of the app, not of an engine
Mode = Literal["cpu", "on-chip", "offload"]
Level = Literal["found", "perhaps", "not found"]
Verdict = Literal["supported", "not found", "contradicted"]
LEVELS: Mapping[Level, str] = {"found": "Found", "perhaps": "Perhaps",
                               "not found": "Not found in this document: closest passages"}
_NOTHING = "No passage of the document answers this."
_SURE = {"perhaps": "Perhaps:", "not found": "Not found in this document. The closest passage:"}


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The engine is getting ready. fraction is in [0, 1], or None where it cannot be known."""

    stage: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where everything lies, in bytes, for ``context`` tokens. In mode "cpu" the device is the host's memory.

    kv: of the whole context, wherever it lies. kv_kind: "same" as products, "int8" or "int4". resident_layers: of the
    full cache on the device (all, unless mode is "offload"). host: keys and values in host memory. longest_*: tokens
    that fit that way, at most the model's own; None without a GPU. budget: tokens that ``retrieval`` is for."""

    mode: Mode
    why: str
    context: int
    weights: int
    draft_weights: int
    weight_copy: int
    kv_per_token: int
    kv: int
    retrieval: int
    draft_cache: int
    workspace: int
    streams: int
    reserve: int
    num_layers: int
    resident_layers: int
    have: int
    host: int
    host_have: int
    longest: int
    longest_on_chip: int | None = None
    longest_offloaded: int | None = None
    kv_kind: str = "same"
    budget: int = 0

    @property
    def resident_kv(self) -> int:
        return self.kv // self.num_layers * self.resident_layers

    @property
    def need(self) -> int:
        """Return the bytes on the device, the reserve included."""
        return (self.weights + self.draft_weights + self.weight_copy + self.resident_kv + self.retrieval
                + self.draft_cache + self.workspace + self.streams + self.reserve)

    @property
    def fits(self) -> bool:
        return self.need <= self.have and self.host <= self.host_have


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """Describe what this machine has: (name, value) rows fit to show."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Describe what was loaded, in words fit to show."""

    name: str
    draft_name: str
    mode: str  # "cpu", "on-chip", "offload" or "remote"
    why: str  # why this mode and dtype
    device: str
    dtype: str
    max_context: int  # tokens: document + conversation + answer; 0: a remote server does not say
    model_bytes: int
    kv_bytes_per_token: int
    plan: MemoryPlan | None = None  # for the longest context that fits, at most max_context
    pass_bytes: int = 0  # of weights, that each full pass reads; 0: not known
    instructions: bool = False  # whether it follows instructions, or only answers questions about the document
    weights: str = ""  # how they are stored and what became of them ("Q4_K, Q6_K, unpacked to bfloat16"); "": as is
    drafting: str = ""  # what was measured on this machine and how it drafts therefore; empty: nobody asked

    @property
    def reader(self) -> str:
        """Return whose reading of a document its own is: a server may have a model of the same name."""
        return f"{self.name} ({self.device})" if self.mode == "remote" else self.name


@dataclass(frozen=True, slots=True)
class DraftPromise:
    """Hold what a draft model was measured to bring here. accepted: of the tokens of a fixed text, the share at which
    both models find the same one the likeliest. plain, step: milliseconds of a pass of the target's and of its own.
    gain: times the tokens per second of plain decoding that drafts of the best length bring then. measured: when."""

    accepted: float
    plain: float
    step: float
    gain: float
    measured: str = ""

    @property
    def pays(self) -> bool:
        return self.gain > 1.0

    @property
    def words(self) -> str:
        """Return it in a line fit to show."""
        times = f"{self.gain:.2f} times as fast as plain decoding" if self.pays else "does not pay, and is left out"
        return (f"tried here {self.measured}: in a fixed text {self.accepted:.0%} of its tokens are the model's, "
                f"and its passes take {self.step:.1f} ms, the model's {self.plain:.1f} ms; {times}")


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """Another checkpoint beside a target. why_not: why it cannot or should not draft for it; "" if it may. foreign: it
    has another vocabulary. cost: of its pass in passes of the target, estimated from what each reads of its weights; 0:
    not known. promise: None where that was not measured here."""

    name: str
    model: str  # what ``draft_model`` takes
    parameters: int
    why_not: str = ""
    foreign: bool = False
    cost: float = 0.0
    promise: DraftPromise | None = None

    @property
    def recommended(self) -> bool:
        """Return whether it is worth a try: where nothing was measured, a model of the same family is."""
        return not self.why_not and (self.promise.pays if self.promise else not self.foreign)

    @property
    def words(self) -> str:
        """Return what it promises, or why it shall not draft."""
        if self.why_not or self.promise:
            return self.why_not or self.promise.words  # type: ignore[union-attr]
        family = "another vocabulary; " if self.foreign else ""
        return (f"{family}not tried here: estimated from sizes, its passes take {self.cost:.0%} of the model's, so "
                "that more than that share of its tokens must be right to pay")


@dataclass(frozen=True, slots=True)
class Fit:
    """Say whether a model runs here with its weights so and so many tokens. mode: "" where not. need: bytes.
    tokens_per_second: of plain decoding, modelled."""

    weights: str
    context: int
    mode: str = ""
    need: int = 0
    kv: str = "same"  # kind of keys and values, see MemoryPlan
    tokens_per_second: float = 0.0

    @property
    def way(self) -> str:
        """Return the mode in words, with what is rounded for it."""
        return self.mode if self.kv == "same" else f"{self.mode}, keys and values in {self.kv}"

    @property
    def kv_setting(self) -> str:
        """Return what has to be asked for; "": nothing, as on a CPU, where a cache is rounded by itself."""
        return "" if self.kv == "same" or self.mode == "cpu" else self.kv

    @property
    def rounds(self) -> bool:
        """Return whether it takes other settings than a model as it is."""
        return self.weights != "same" or self.kv_setting != ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Return those settings on a command line."""
        weights = () if self.weights == "same" else ("--weights", self.weights)
        return (*weights, "--kv", self.kv_setting) if self.kv_setting else weights


@dataclass(frozen=True, slots=True)
class ModelFound:
    """A checkpoint on this machine, and whether it can run here. Sizes are bytes.

    model: what ``EngineConfig.model`` takes. info: its plan for the context that was asked for (or the longest that
    fits), with ``draft``; None where it cannot run, or not so: problem says why and what to change, longest how many
    tokens of context would fit. fits: by weights ("same", "int8", "int4": those that make it smaller) and context, up
    to what the model can. best: of them, the way in which to load it here."""

    name: str
    model: str
    source: Literal["built-in", "cache", "folder", "LM Studio", "Ollama", "llama.cpp"]
    nbytes: int
    architecture: str = ""
    parameters: int = 0
    max_context: int = 0
    drafts: tuple[DraftChoice, ...] = ()
    draft: str = "none"
    info: ModelInfo | None = None
    problem: str = ""
    longest: int = 0
    fits: tuple[Fit, ...] = ()
    best: Fit | None = None


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """Describe what fetching a repo of the Hugging Face hub would bring. missing: bytes that are not on this machine
    yet. folder: where they go; disk_free: bytes free there. ggufs: the models that the repo has as GGUF files, by the
    file's name (a split one's first), and their bytes. file: that of them which would be fetched, "" for none."""

    repo: str
    revision: str
    licence: str
    nbytes: int
    missing: int
    names: tuple[str, ...]
    folder: str = ""
    disk_free: int = 0
    ggufs: tuple[tuple[str, int], ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class ClassFit:
    """A published model on a usual machine, by arithmetic. tokens: of context that fit, 0 where it does not run;
    tokens_per_second: of plain decoding, modelled; weights: as of ``CuratedModel``."""

    name: str
    tokens: int
    tokens_per_second: float
    weights: str = "same"


@dataclass(frozen=True, slots=True)
class GGUFDownload:
    """A curated model as a GGUF file, quantised so that it fits here and, if that can be, is fast enough.

    repo: OWNER/NAME:KIND, as a fetch takes it. kind: how it is quantised. context: tokens that fit. tokens_per_second:
    of plain decoding, as of ``CuratedModel``. drafter, drafter_nbytes: likewise of its draft model; "" for none. plan,
    rate_tokens: as of ``CuratedModel``. preferred: to the published weights, on this machine."""

    repo: str
    kind: str
    nbytes: int
    context: int
    tokens_per_second: float
    drafter: str = ""
    drafter_nbytes: int = 0
    plan: MemoryPlan | None = None
    rate_tokens: int = 0
    preferred: bool = False

    @property
    def total(self) -> int:
        """Return the bytes of a download, its draft model's too."""
        return self.nbytes + self.drafter_nbytes


@dataclass(frozen=True, slots=True)
class CuratedModel:
    """A published model of the curated list, judged by its shape alone: nothing was fetched, nobody was asked.

    dated: when the list was made. downloads: (precision, bytes) that fetching would bring, about. gated: its owners
    want its terms accepted first. drafter, drafter_name, drafter_nbytes: the small model of the same vocabulary that
    drafts for it; "" for none. here: it is on this machine. plan: for the longest context that fits here, None where
    none does: problem says why. tokens_per_second: of plain decoding with ``rate_tokens`` of context, modelled from
    what this machine's memory was measured to move. weights: as they are ("same"), or rounded so when they are loaded,
    which plan and speed are of. read_per_second: tokens of a document, at most, by what products were measured to take
    here. folder, disk_free: as of ``ModelOffer``. gguf: None where there is none that fits here. first: it is
    one of those from which a first chat model is chosen here."""

    name: str
    repo: str
    licence: str
    gated: bool
    dated: str
    parameters: int
    max_context: int
    good_at: str
    downloads: tuple[tuple[str, int], ...]
    drafts_only: bool = False
    drafter: str = ""
    drafter_name: str = ""
    drafter_nbytes: int = 0
    here: bool = False
    recommended: bool = False
    plan: MemoryPlan | None = None
    problem: str = ""
    tokens_per_second: float = 0.0
    rate_tokens: int = 0
    weights: str = "same"
    read_per_second: float = 0.0
    classes: tuple[ClassFit, ...] = ()
    gguf: GGUFDownload | None = None
    first: bool = False
    folder: str = ""
    disk_free: int = 0

    @property
    def form(self) -> CuratedModel | GGUFDownload:
        """Return the one in which it is offered here."""
        return self.gguf if self.gguf and self.gguf.preferred else self


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Where the engine keeps things now. Bytes; of the GPU's memory None where there is none.

    mode, why: of the open document, or of the model before one is open. device_free: under a limit, what it leaves.
    drafting: how it drafts, and from which figures; empty where nothing was measured. copy_rate: bytes per second that
    a copy in the memory of all its GPUs moves, read plus written, measured when the model was loaded."""

    mode: str
    why: str
    host_used: int
    host_free: int
    device_used: int | None = None
    device_free: int | None = None
    drafting: str = ""
    copy_rate: float | None = None


# tokenize: the text becomes tokens, their total estimated; draft: the draft model reads it too; warm-up: passes are
# captured, weights copied; tune: this machine is measured, and tokens are hundredths of that; served: a server reads it
# that does not say how far it is, so that only ``seconds`` grow
PrefillStage = Literal["tokenize", "read", "restore", "save", "draft", "warm-up", "tune", "served"]


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """A document is being read; tokens_done counts from the document's first token. seconds: since it began, where a
    server reads."""

    tokens_done: int
    tokens_total: int
    tokens_per_second: float
    eta_seconds: float | None
    stage: PrefillStage = "read"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PageSpan:
    """Tokens [start, end) of the context hold this page's marker and text."""

    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DocumentFit:
    """Say how much of a document the loaded model can hold. page_tokens: tokens of each page, marker included.

    max_tokens leaves room for questions and answers; limited_by: what it follows from. estimated: nobody counted."""

    tokens: int
    max_tokens: int
    page_tokens: tuple[int, ...]
    limited_by: Literal["context", "memory"] = "context"
    estimated: bool = False

    @property
    def fits(self) -> bool:
        return self.tokens <= self.max_tokens


@dataclass(frozen=True, slots=True)
class Turn:
    """One finished exchange of a conversation, as the next question needs it.

    answer: its text, taken where the tokens are not known (another program's, or a remote server's answer)."""

    question: str
    answer_token_ids: tuple[int, ...]
    answer: str = ""

    def __post_init__(self) -> None:
        for name in ("question", "answer"):
            object.__setattr__(self, name, whole_text(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class DocumentOpened:
    """The document is in the cache. restored: its KV came from disk instead of being computed.

    read_seconds: what computing it cost (when it was first read, if restored). unsaved: why its KV could not be written
    to disk ("": it was, or was not to be). reused: tokens at its beginning that were read before, with another
    selection of pages or another document, and were not read again. usual_shares: what each page gets of the attention
    whatever is asked (sums to 1), () where nobody looked. damaged: a saved reading that would have served was not
    sound: it was removed, and the document read."""

    document_id: str
    tokens: int
    pages: tuple[PageSpan, ...]
    seconds: float
    read_seconds: float
    restored: bool
    max_context: int
    estimated: bool = False  # tokens: a remote server did not count them
    unsaved: str = ""
    reused: int = 0
    usual_shares: tuple[float, ...] = ()
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class TierCount:
    """One tier in one round: how many drafted tokens the tier above tested, and how many it accepted."""

    tier: str  # who drafted: "n-gram" (copied text), "draft" (the small model), "retrieval", "quote" (forced)
    tested: int
    accepted: int


@dataclass(frozen=True, slots=True)
class RankCount:
    """Siblings of one rank (0: the first drawn) in drafted trees: how many families whose parent was accepted had one,
    and in how many of them it was the one accepted."""

    tier: str
    rank: int
    tested: int
    accepted: int


@dataclass(frozen=True, slots=True)
class TokenChance:
    """Hold what the verifying pass thought of one emitted token: its own distribution at temperature 1, before
    quotation rules and sampling settings. alternatives: the likeliest tokens' texts and probabilities, the emitted one
    maybe among them."""

    probability: float
    alternatives: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """One verification by the full cache. origins: of each token a tier whose draft survived every check ("n-gram",
    "draft", "retrieval", "quote"), or "recovered" / "bonus" when the full cache wrote it itself. page_shares: of this
    round's attention mass over the document, page by page (sums to 1), or None when this round did not measure it.
    streamed_bytes: keys and values brought to the GPU. texts: what each token adds to the answer ("" for a stop token
    and for part of a character); together they are the TextDelta that follows. chances: of each token, and chunks: the
    most attended of this round, where SamplingParams.alternatives asked for such details. gamma1, gamma2: the lengths
    that were chosen for it, gamma2 0: none was drafted; a draft may end before, where its tier is no longer sure."""

    index: int
    token_ids: tuple[int, ...]
    sources: tuple[str, ...]
    tiers: tuple[TierCount, ...]
    milliseconds: Mapping[str, float] = field(default_factory=dict)  # "n-gram", "draft", "retrieval", "verify", ...
    page_shares: tuple[float, ...] | None = None
    elapsed: float = 0.0  # seconds since the question was accepted
    passes: Mapping[str, int] = field(default_factory=dict)  # of each drafting tier's model in this round
    streamed_bytes: int = 0
    ranks: tuple[RankCount, ...] = ()
    texts: tuple[str, ...] = ()
    chances: tuple[TokenChance, ...] = ()
    drafted: int = 0  # tokens it was to verify, along one path
    gamma1: int = 0
    gamma2: int = 0
    chunks: tuple[AttendedChunk, ...] = ()
    decoding: float = 0.0  # of ``elapsed``, seconds since the question was read; 0: not known


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text to append to the answer. Never half a character. tokens: in it, where no RoundEvent tells of them."""

    text: str
    elapsed: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class QuotePlace:
    """Characters [start, end) of one page's text. page: counted from 1 in the open document. ocr: its words were
    recognised in a scan."""

    page: int
    label: str
    start: int
    end: int
    ocr: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of the document that may answer a question: sentences, a list or a row of a table.

    places: where it stands, in order, several if it crosses a page break or the lines of a list. text: as shown, of at
    most 90 words (a list or table 150). path: the headings above it, the outermost first, without the document's
    title. lead_in: the line that introduces its list, or the headings of its table; "" where there is none. marks:
    characters [start, end) of the text that answer; marked: the same as places. kind "fact": a record of the title page
    (author, date, court, version). chance: in [0, 1], that it answers."""

    places: tuple[QuotePlace, ...]
    text: str
    path: tuple[str, ...] = ()
    lead_in: str = ""
    marks: tuple[tuple[int, int], ...] = ()
    marked: tuple[QuotePlace, ...] = ()
    kind: Literal["text", "list", "row", "fact"] = "text"
    chance: float = 0.0


@dataclass(frozen=True, slots=True)
class Passages:
    """What a document holds for a question.

    request: the value of ``evidence.question.RequestKind``. passages: up to 8, the best first; those of a digest in the
    document's order. level: None where nothing was asked that can be found (small talk, tasks, summaries). words: what
    the app says of its own, such as that a section was not found; "" mostly. section: the section that the request
    named and that was found. final: False for a first order, which at most one other replaces."""

    question: str
    request: str
    passages: tuple[Passage, ...]
    level: Level | None = None
    words: str = ""
    section: str = ""
    final: bool = True

    @property
    def several(self) -> bool:
        """Return whether they answer together, as in a summary or a list."""
        return self.request in ("summary", "several", "more")

    @property
    def script(self) -> Script:
        """Return what a model that only quotes says of them: how sure it is, and the first one, or all that answer
        together."""
        quoted = self.passages if self.several else self.passages[:1]
        level = _SURE.get(self.level or "", "") if quoted else "" if self.words else _NOTHING
        return Script(self.words or level, tuple(one.places for one in quoted))


@dataclass(frozen=True, slots=True)
class Script:
    """What a model that only quotes is to say: ``words`` of the app's own, then stretches of the document, each in a
    paragraph of its own. quotes: of each the places that make it up, in order."""

    words: str = ""
    quotes: tuple[tuple[QuotePlace, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class QuoteOccurrence:
    """Tokens [start, end) of the context, and where that is: several places if it crosses a page break, none where a
    page's text and its tokens do not agree letter by letter."""

    start: int
    end: int
    places: tuple[QuotePlace, ...]


@dataclass(frozen=True, slots=True)
class QuoteEvent:
    """A quotation that was held to the document: where it stands there is known from decoding, nothing is looked up.

    number: of the answer's quotations, from 0; a later event of the same number replaces it. start, end: characters of
    the answer, without the marks. closed: the closing mark stands; before that, a quotation is reported once, when a
    single place is left for it (as far as it was written by then), and where the answer ends inside it. occurrences:
    the first ones, in the document's order; count: how many there are."""

    number: int
    start: int
    end: int
    closed: bool
    count: int
    occurrences: tuple[QuoteOccurrence, ...]


@dataclass(frozen=True, slots=True)
class SentenceSupport:
    """A sentence of an answer in free words, judged by the passages of the document that come nearest to it.

    start, end: characters of the answer. verdict: "supported" and "contradicted" are said of one passage. chance: in
    [0, 1], that the best passage supports it. places: the words of that passage, () where nothing was found."""

    start: int
    end: int
    verdict: Verdict
    chance: float
    places: tuple[QuotePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class AttendedChunk:
    """Tokens [start, end) of the context and their share of the document's attention mass, less what they get whatever
    is asked, where that is known (DocumentOpened.usual_shares). page: counted from 1 in the open document; label: what
    to call it, which other pages may be called too."""

    page: int
    label: str
    start: int
    end: int
    share: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class AnswerStats:
    """Figures of one answer, by the wall clock. Rates leave prefill out: decoding starts where it ends, with all that
    is made ready for drafting, and ends with the last token."""

    prompt_tokens: int  # tokens of this turn that were prefilled
    reused_tokens: int  # tokens that were already in the cache
    generated_tokens: int
    full_passes: int  # verifications by the full cache
    prefill_seconds: float
    time_to_first_token: float
    decode_seconds: float
    decode_tokens_per_second: float
    tokens_per_full_pass: float
    acceptance: Mapping[str, TierCount]
    tokens_by_origin: Mapping[str, int]
    engine: str  # "triforce", "autoregressive" or "remote"
    why: str  # why speculation was on or off
    verifier: str = "rejection"
    settings: Mapping[str, int | str] = field(default_factory=dict)  # the settings it ran with, every "auto" decided
    streamed_bytes: int = 0  # keys and values brought to the GPU from host memory while decoding
    ranks: tuple[RankCount, ...] = ()

    @property
    def streamed_bytes_per_second(self) -> float:
        """Return what the link to the GPU carried on average, drafting and sampling included."""
        return self.streamed_bytes / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete (or stopped). text is the whole answer; token_ids include its stop token if any."""

    reason: FinishReason
    text: str
    token_ids: tuple[int, ...]
    stats: AnswerStats
    chunks: tuple[AttendedChunk, ...] = ()
    page_shares: tuple[float, ...] = ()
    quotes: tuple[QuoteEvent, ...] = ()  # the last one of each quotation


Event = (LoadProgress | MachineInfo | ModelInfo | ModelFound | ModelOffer | CuratedModel | PrefillProgress
         | DocumentOpened | RoundEvent | TextDelta | QuoteEvent | Finished)
