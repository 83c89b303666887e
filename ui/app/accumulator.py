"""One answer's events -> its text, tokens, figures and attention, live and final."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
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

from . import energy
from .trace import Trace


@dataclass(frozen=True)
class Figures:
    """The numbers of one answer, live or final, in plain types that SQLite and the page both take.

    acceptance: tier -> (tested, accepted). why: why speculation was on or off ("" until the engine said)."""

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
    joules: float | None = None  # what the machine's GPUs spent meanwhile, where that is counted

    @classmethod
    def of(cls, stats: AnswerStats, joules: float | None = None) -> Figures:
        """The engine's own figures, which settle every doubt once the answer is complete."""
        return cls(
            stats.generated_tokens, stats.decode_tokens_per_second, stats.time_to_first_token, stats.full_passes,
            stats.tokens_per_full_pass, {tier: (n.tested, n.accepted) for tier, n in stats.acceptance.items()},
            dict(stats.tokens_by_origin), stats.engine, stats.why, stats.verifier, stats.prompt_tokens,
            stats.reused_tokens, stats.prefill_seconds, stats.streamed_bytes_per_second, joules)


class Accumulator:
    """Folds one answer's events as they come: text, tokens, figures, attention. Constant work per event.

    The figures are those of ``metrics.RunningFigures``. marks: (seconds, characters so far), what a replay in real time
    needs.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        """ranges: pages of the document that are read; (): all. Pages are told by their place in the file from then on,
        shares by the place behind the first page that is read: those left out between them have a share of none."""
        self._ranges = tuple(ranges)
        self._lock = threading.Lock()
        self._places: list[int] = []  # behind the first, of each page that is read; none left out: empty
        if len(ranges) > 1:
            self._places = [page - ranges[0][0] for first, last in ranges for page in range(first, last + 1)]
        self.text = ""
        self.token_ids: list[int] = []
        self.marks: list[tuple[float, int]] = []
        self.finished: Finished | None = None
        self.prefill: PrefillProgress | None = None
        self.version = 0
        self.trace = Trace()
        self.usual_shares: tuple[float, ...] = ()  # of each page, what any question draws to it
        self._quotes: dict[int, QuoteEvent] = {}  # by number
        self._joules_before: float | None = None  # when the first event came
        self._joules: float | None = None
        self._sums = metrics.RunningFigures()

    def add(self, event: Event) -> None:
        if isinstance(event, RoundEvent | Finished):
            if event.page_shares:
                event = replace(event, page_shares=self._placed(event.page_shares))
            if event.chunks:
                event = replace(event, chunks=metrics.in_file(event.chunks, self._ranges))
        with self._lock:
            if not self.version:
                self._joules_before = energy.joules()
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
                    spent = energy.joules()
                    if spent is not None and self._joules_before is not None:
                        self._joules = spent - self._joules_before
                case QuoteEvent():
                    self._quotes[event.number] = event
                case PrefillProgress():
                    self.prefill = event
                case DocumentOpened() if event.usual_shares:
                    self.usual_shares = self._placed(event.usual_shares)
            self.version += 1

    def _placed(self, shares: Sequence[float]) -> tuple[float, ...]:
        """The shares of the pages that were read -> of all from the first to the last of them."""
        if not self._places:
            return tuple(shares)
        placed = [0.0] * (self._places[-1] + 1)
        for place, share in zip(self._places, shares, strict=True):
            placed[place] = share
        return tuple(placed)

    def figures(self) -> Figures:
        with self._lock:
            if self.finished is not None:
                return Figures.of(self.finished.stats, self._joules)
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
        """What decoding has told of the quotations so far."""
        with self._lock:
            return tuple(self._quotes.values())

    def result(self) -> dict[str, Any]:
        """Everything worth keeping but the text and the tokens, as plain JSON."""
        figures, chunks = self.figures(), self.finished.chunks if self.finished else ()
        return {
            "figures": asdict(figures),
            "reason": self.finished.reason if self.finished else "",
            "page_shares": [round(share, 6) for share in self.page_shares()],
            "usual_shares": [round(share, 6) for share in self.usual_shares],
            "passages": [asdict(chunk) for chunk in chunks],
            **self.certainty(),
        }

    def certainty(self) -> dict[str, Any]:
        """confidence and answerable of ``events.Finished``; empty where nobody estimated them."""
        told = self.finished
        if told is None or told.answerable is None:
            return {}
        return {"confidence": round(told.confidence or 0.0, 4), "answerable": told.answerable}


def figures_of(result: dict[str, Any]) -> Figures:
    """The kept figures of an answer; what an older version did not write keeps its default."""
    kept = result.get("figures") or {}
    known = {name: value for name, value in kept.items() if name in Figures.__dataclass_fields__}
    known["acceptance"] = {tier: tuple(pair) for tier, pair in known.get("acceptance", {}).items()}
    return Figures(**known)
