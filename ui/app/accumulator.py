"""One answer's events -> its text, tokens, figures, attention and trace, live and final."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from statistics import median
from typing import Any

from triforce_core import (
    AnswerStats,
    DocumentOpened,
    Event,
    Finished,
    PrefillProgress,
    QuoteEvent,
    RoundEvent,
    TextDelta,
    metrics,
)

LEAST_PAGES = 8  # pages that a document needs before the median share says what is common
TRACED_PAGES = 12  # most attended pages that are kept of each round

SHORTEST_LOOP, LONGEST_LOOP = 30, 800  # characters

log = logging.getLogger(__name__)


def ends_in_a_loop(text: str) -> bool:
    """Return whether a text ends with the same stretch three times in a row, which has twenty letters or digits."""
    for size in range(SHORTEST_LOOP, min(LONGEST_LOOP, len(text) // 3) + 1):
        if (text[-1 - size] == text[-1] and text[-size:] == text[-2 * size : -size] == text[-3 * size : -2 * size]
                and sum(map(str.isalnum, text[-size:])) >= 20):
            return True
    return False


@dataclass(frozen=True)
class Figures:
    """The numbers of one answer in plain types that SQLite and the page both take.

    acceptance: tier -> (tested, accepted). why: why speculation was on or off ("" until the engine said).
    joules: spent by the machine's GPUs meanwhile, None where nobody counts."""

    tokens: int = 0
    tokens_per_second: float = 0.0
    time_to_first_token: float = 0.0
    full_passes: int = 0
    tokens_per_full_pass: float = 0.0
    acceptance: dict[str, tuple[int, int]] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)
    engine: str = ""
    why: str = ""
    verifier: str = ""
    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_seconds: float = 0.0
    streamed_bytes_per_second: float = 0.0  # from host memory to the GPU; 0 where nothing streams
    joules: float | None = None

    @classmethod
    def of(cls, stats: AnswerStats, joules: float | None = None) -> Figures:
        """Return the engine's own figures of a complete answer."""
        return cls(
            stats.generated_tokens, stats.decode_tokens_per_second, stats.time_to_first_token, stats.full_passes,
            stats.tokens_per_full_pass, {tier: (n.tested, n.accepted) for tier, n in stats.acceptance.items()},
            dict(stats.tokens_by_origin), stats.engine, stats.why, stats.verifier, stats.prompt_tokens,
            stats.reused_tokens, stats.prefill_seconds, stats.streamed_bytes_per_second, joules)


def figures_of(result: dict[str, Any]) -> Figures:
    """Return the kept figures of an answer; what an older version did not write keeps its default."""
    kept = result.get("figures") or {}
    known = {name: value for name, value in kept.items() if name in Figures.__dataclass_fields__}
    known["acceptance"] = {tier: tuple(pair) for tier, pair in known.get("acceptance", {}).items()}
    return Figures(**known)


@dataclass
class Trace:
    """The writer of each token of an answer and the work of every round, as plain JSON, apart from the answer.

    tokens: [text, source, round, probability or None, alternatives]. rounds: [tested, accepted, milliseconds by
    stage, most attended pages (page, share beyond the usual), seconds, most attended chunks {page, share, text}], with
    tested and accepted by tier; rounds that older versions stored have no chunks."""

    tokens: list[list[Any]] = field(default_factory=list)
    rounds: list[list[Any]] = field(default_factory=list)

    def add(self, event: RoundEvent, usual: Sequence[float] = ()) -> None:
        """Append a round. usual: each page's attention under any question, () where that is not known."""
        texts = event.texts or ("",) * len(event.sources)
        for n, (text, source) in enumerate(zip(texts, event.sources, strict=True)):
            chance = event.chances[n] if n < len(event.chances) else None
            self.tokens.append([text, source, len(self.rounds), chance and round(chance.probability, 4),
                                [[word, round(p, 4)] for word, p in chance.alternatives] if chance else []])
        shares = above(event.page_shares or (), usual)
        pages = sorted(enumerate(shares), key=lambda item: -item[1])[:TRACED_PAGES]
        self.rounds.append([{tier.tier: tier.tested for tier in event.tiers},
                            {tier.tier: tier.accepted for tier in event.tiers},
                            {stage: round(spent, 2) for stage, spent in event.milliseconds.items()},
                            [[page, round(share, 4)] for page, share in pages if share > 0], round(event.elapsed, 3),
                            [{"page": chunk.page, "share": round(chunk.share, 4), "text": chunk.text}
                             for chunk in event.chunks]])

    @property
    def known(self) -> bool:
        """Return whether the tokens' texts were reported (a remote engine reports none)."""
        return any(token[0] for token in self.tokens)


class Accumulator:
    """Folds one answer's events as they come, with constant work per event. Thread-safe.

    marks: (seconds, characters so far), for a replay in real time. usual_shares: each page's attention under any
    question."""

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        """ranges: pages of the document that are read; () for all. Chunks then name pages by their place in the file;
        shares count from the first page that is read, and pages left out between have a share of 0."""
        self._ranges = tuple(ranges)
        self._lock = threading.Lock()
        self.text = ""
        self.token_ids: list[int] = []
        self.marks: list[tuple[float, int]] = []
        self.finished: Finished | None = None
        self.prefill: PrefillProgress | None = None
        self.version = 0
        self.trace = Trace()
        self.usual_shares: tuple[float, ...] = ()
        self._quotes: dict[int, QuoteEvent] = {}  # by number
        self._joules: tuple[float | None, float | None] = None, None  # at the first event and the last
        self._sums = metrics.RunningFigures()

    def add(self, event: Event) -> None:
        if isinstance(event, RoundEvent | Finished):
            event = replace(event, page_shares=self._placed(event.page_shares) if event.page_shares else
                            event.page_shares, chunks=metrics.in_file(event.chunks, self._ranges))
        with self._lock:
            if not self.version:
                self._joules = joules(), None
            match event:
                case TextDelta():
                    self.text += event.text
                    self.marks.append((event.elapsed, len(self.text)))
                    if event.tokens:
                        self._sums.add_tokens(event.tokens, event.elapsed)
                case RoundEvent():
                    self.trace.add(event, self.usual_shares)
                    self.token_ids.extend(event.token_ids)
                    self._sums.add(event)
                case Finished():
                    self.finished, self.text, self.token_ids = event, event.text, list(event.token_ids)
                    self._joules = self._joules[0], joules()
                case QuoteEvent():
                    self._quotes[event.number] = event
                case PrefillProgress():
                    self.prefill = event
                case DocumentOpened() if event.usual_shares:
                    self.usual_shares = self._placed(event.usual_shares)
            self.version += 1

    def _placed(self, shares: Sequence[float]) -> tuple[float, ...]:
        """Spread the shares of the pages that were read over all pages from the first to the last of them."""
        if len(self._ranges) < 2:
            return tuple(shares)
        start = self._ranges[0][0]
        placed = [0.0] * (self._ranges[-1][1] + 1 - start)
        pages = (page for first, last in self._ranges for page in range(first, last + 1))
        for page, share in zip(pages, shares, strict=True):
            placed[page - start] = share
        return tuple(placed)

    def figures(self) -> Figures:
        with self._lock:
            if self.finished is not None:
                before, after = self._joules
                spent = None if before is None or after is None else after - before
                return Figures.of(self.finished.stats, spent)
            sums = self._sums
            engine = "triforce" if sums.acceptance else "autoregressive" if sums.rounds > 1 else ""
            return Figures(
                sums.tokens, sums.tokens_per_second, sums.time_to_first_token, sums.rounds, sums.tokens_per_full_pass,
                {tier: (n.tested, n.accepted) for tier, n in sums.acceptance.items()}, dict(sums.origins),
                "remote" if sums.tokens and not sums.rounds else engine,
                streamed_bytes_per_second=sums.streamed_bytes_per_second)

    def page_shares(self) -> tuple[float, ...]:
        with self._lock:
            if self.finished is not None and self.finished.page_shares:
                return self.finished.page_shares
            return self._sums.page_shares

    @property
    def quotes(self) -> tuple[QuoteEvent, ...]:
        """Return the quotations that decoding has reported so far."""
        with self._lock:
            return tuple(self._quotes.values())

    def result(self) -> dict[str, Any]:
        """Return everything worth keeping but the text and the tokens, as plain JSON."""
        return {
            "figures": asdict(self.figures()),
            "reason": self.finished.reason if self.finished else "",
            "page_shares": [round(share, 6) for share in self.page_shares()],
            "usual_shares": [round(share, 6) for share in self.usual_shares],
            "passages": [asdict(chunk) for chunk in (self.finished.chunks if self.finished else ())],
        }


def above(shares: Sequence[float], usual: Sequence[float]) -> Sequence[float]:
    """Return each page's share beyond the usual one; the shares as they are where ``usual`` is not known.

    What most pages have beyond it, because another page has less, is no sign of any of them."""
    if not usual or not shares:
        return shares
    more = [share - each for share, each in zip(shares, usual, strict=True)]
    common = max(0.0, median(more)) if len(more) >= LEAST_PAGES else 0.0
    return [max(0.0, each - common) for each in more]


def joules() -> float | None:
    """Return what all GPUs have spent since the driver was loaded; None where NVIDIA's library does not count it."""
    library, handles = _energy_counters()
    if not handles:
        return None
    try:
        return sum(library.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles) / 1000
    except library.NVMLError as error:
        log.debug("energy: %s", type(error).__name__)
        return None


@lru_cache(maxsize=1)
def _energy_counters() -> tuple[Any, tuple[Any, ...]]:
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None, ()
    try:
        library.nvmlInit()
        found = tuple(library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount()))
        for handle in found:  # GPUs before Volta do not count
            library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except library.NVMLError as error:
        log.debug("energy: %s", type(error).__name__)
        return library, ()
    return library, found
