"""Pure folds of events into figures. A screen, a log and a benchmark all call these, so they all agree.

A rate never contains prefill. An answer's rate is all its tokens over the wall clock's time from the end of its
prefill to its last token: a round may write thirty tokens at once, so leaving the first round out would misstate a
short answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .events import (
    AnswerStats,
    AttendedChunk,
    Passages,
    QuoteEvent,
    QuoteOccurrence,
    QuotePlace,
    RankCount,
    RoundEvent,
    SentenceSupport,
    TierCount,
)

BETWEEN = ", "  # of several documents that are read together, a title and the label of its page


class RunningFigures:
    """Sums over the rounds of one answer as they come, with constant work for each.

    A rate counts from the end of the question's prefill where the first round says how long it decoded; elsewhere from
    the end of the first round, whose tokens it then leaves out. Page shares are the mean over the rounds that measured
    them, so that early and late parts of an answer weigh alike.
    """

    def __init__(self, rounds: Iterable[RoundEvent] = ()) -> None:
        self.rounds = self.tokens = self.streamed_bytes = 0
        self.time_to_first_token = 0.0
        self.acceptance: dict[str, TierCount] = {}  # tiers in order of first appearance
        self.origins: dict[str, int] = {}
        self._start = self._last = 0.0
        self._before = (0, 0)  # tokens and streamed bytes that came before the rate's start
        self._shares: list[float] = []
        self._measured = 0
        for event in rounds:
            self.add(event)

    def add(self, event: RoundEvent) -> None:
        if not self.rounds:
            self._begin(event.elapsed, event.decoding, 0 if event.decoding else len(event.token_ids),
                        event.streamed_bytes)
        self.rounds += 1
        self.tokens += len(event.token_ids)
        self.streamed_bytes += event.streamed_bytes
        self._last = event.elapsed
        for count in event.tiers:
            before = self.acceptance.get(count.tier, TierCount(count.tier, 0, 0))
            self.acceptance[count.tier] = TierCount(count.tier, before.tested + count.tested,
                                                    before.accepted + count.accepted)
        for origin in event.sources:
            self.origins[origin] = self.origins.get(origin, 0) + 1
        if event.page_shares is not None:
            if len(self._shares) != len(event.page_shares):
                self._shares, self._measured = [0.0] * len(event.page_shares), 0
            self._shares = [total + share for total, share in zip(self._shares, event.page_shares, strict=True)]
            self._measured += 1

    def add_tokens(self, tokens: int, elapsed: float) -> None:
        """Count tokens of a server that reports no rounds."""
        if not self.tokens:
            self._begin(elapsed, 0.0, tokens, 0)
        self.tokens += tokens
        self._last = elapsed

    def _begin(self, elapsed: float, decoding: float, tokens: int, streamed_bytes: int) -> None:
        self.time_to_first_token, self._start = elapsed, elapsed - decoding
        self._before = (tokens, streamed_bytes)

    @property
    def tokens_per_second(self) -> float:
        return self._rate(self.tokens - self._before[0])

    @property
    def streamed_bytes_per_second(self) -> float:
        return self._rate(self.streamed_bytes - self._before[1])

    def _rate(self, amount: int) -> float:
        seconds = self._last - self._start
        return amount / seconds if seconds > 0 else 0.0

    @property
    def tokens_per_full_pass(self) -> float:
        """Return the mean tokens per verification by the full cache: 1 for plain decoding, 0 before the first."""
        return self.tokens / self.rounds if self.rounds else 0.0

    @property
    def page_shares(self) -> tuple[float, ...]:
        """Return the mean attention share of every page; () where no round measured it."""
        return tuple(total / self._measured for total in self._shares) if self._measured else ()


def acceptance(rounds: Iterable[RoundEvent]) -> dict[str, TierCount]:
    """Return tested and accepted tokens of every tier, summed; tiers in order of first appearance."""
    return RunningFigures(rounds).acceptance


def rank_counts(counts: Iterable[RankCount]) -> tuple[RankCount, ...]:
    """Return the counts summed by tier and rank; ranks in order."""
    totals: dict[tuple[str, int], RankCount] = {}
    for count in counts:
        key = count.tier, count.rank
        before = totals.get(key, RankCount(*key, 0, 0))
        totals[key] = RankCount(*key, before.tested + count.tested, before.accepted + count.accepted)
    return tuple(totals[key] for key in sorted(totals))


def acceptance_rate(count: TierCount) -> float:
    """Return accepted / tested; 0 where nothing was tested."""
    return count.accepted / count.tested if count.tested else 0.0


def generated_tokens(rounds: Sequence[RoundEvent]) -> int:
    return sum(len(event.token_ids) for event in rounds)


def draft_lengths(rounds: Sequence[RoundEvent]) -> dict[int, int]:
    """Return how many rounds had each number of drafted tokens (0: nothing was drafted), ascending."""
    return dict(sorted(Counter(event.drafted for event in rounds).items()))


def milliseconds(rounds: Sequence[RoundEvent]) -> dict[str, float]:
    """Return the time per stage, summed."""
    totals: dict[str, float] = {}
    for event in rounds:
        for stage, spent in event.milliseconds.items():
            totals[stage] = totals.get(stage, 0.0) + spent
    return totals


def answer_stats(
    rounds: Sequence[RoundEvent], *, prompt_tokens: int, reused_tokens: int, prefill_seconds: float,
    engine: str, why: str, verifier: str = "rejection", settings: Mapping[str, int | str] | None = None,
) -> AnswerStats:
    """Return the figures of one answer from its rounds (none: it ended before the first)."""
    sums = RunningFigures(rounds)
    seconds = max(0.0, rounds[-1].elapsed - prefill_seconds) if rounds else 0.0
    return AnswerStats(
        prompt_tokens=prompt_tokens,
        reused_tokens=reused_tokens,
        generated_tokens=sums.tokens,
        full_passes=sums.rounds,
        prefill_seconds=prefill_seconds,
        time_to_first_token=sums.time_to_first_token,
        decode_seconds=seconds,
        decode_tokens_per_second=sums.tokens / seconds if seconds else 0.0,
        tokens_per_full_pass=sums.tokens_per_full_pass,
        acceptance=sums.acceptance,
        tokens_by_origin=sums.origins,
        engine=engine,
        why=why,
        verifier=verifier,
        settings=settings or {},
        streamed_bytes=sums.streamed_bytes,
        ranks=rank_counts(count for event in rounds for count in event.ranks),
    )


LEAST_VARIETY = 0.5  # below it a text loops, and how fast it was written is no result


def variety(token_ids: Sequence[int]) -> float:
    """Return distinct runs of four tokens over all of them: a text that goes in circles is easy to draft."""
    runs = list(zip(token_ids, token_ids[1:], token_ids[2:], token_ids[3:], strict=False))
    return len(set(runs)) / len(runs) if runs else 1.0


def speedup(plain: AnswerStats | None, fast: AnswerStats | None) -> float | None:
    """Return the decode rate of ``fast`` over ``plain``, or None where either could not be measured."""
    if not plain or not fast or not plain.decode_tokens_per_second or not fast.decode_tokens_per_second:
        return None
    return fast.decode_tokens_per_second / plain.decode_tokens_per_second


def merge_acceptance(answers: Sequence[Mapping[str, TierCount]]) -> dict[str, TierCount]:
    """Return the acceptance over several answers."""
    return acceptance([RoundEvent(0, (), (), tuple(answer.values())) for answer in answers])


def cited(places: Sequence[tuple[str, int]], pages: int, word: str = "p. ") -> str:
    """Return what pages are called wherever one is named: 'p. 85', and where the file calls them otherwise than by
    their place, both: 'p. iv (4 of 60)', 'Moby Dick, p. 29–30 (31–32 of 60)'.

    places: label and page, counted from 1, of each, in order; pages: how many the document has."""
    (first, start), (last, end) = places[0], places[-1]
    title, _, own = first.rpartition(BETWEEN)
    to = f"{BETWEEN if title else ''}{word}{own}"
    name = f"{title}{to}{f'–{last.rpartition(BETWEEN)[2]}' if last != first else ''}"
    if (first, last) == (str(start), str(end)):
        return name
    return f"{name} ({start}{f'–{end}' if end != start else ''} of {pages:,})"


def page_in_file(page: int, ranges: Sequence[tuple[int, int]]) -> int:
    """Return the page of the file that was opened as the ``page``-th, both counted from 1; ranges: of
    ``quotes_as_json``."""
    for first, last in ranges:
        if page <= last - first + 1:
            return first + page - 1
        page -= last - first + 1
    assert not ranges, "a page that was not opened"
    return page


def in_file(chunks: Iterable[AttendedChunk], ranges: Sequence[tuple[int, int]]) -> tuple[AttendedChunk, ...]:
    """Return chunks of the pages that were opened, their pages counted in the file; ranges: of ``quotes_as_json``."""
    return tuple(replace(chunk, page=page_in_file(chunk.page, ranges)) for chunk in chunks)


def passages_in_file(found: Passages, ranges: Sequence[tuple[int, int]]) -> Passages:
    """Return passages of the pages that were opened, their pages counted in the file; ranges: of ``quotes_as_json``."""
    return _placed_anew(found, lambda page: page_in_file(page, ranges))


def content(text: str, spelled: Passages | None, pages: int) -> str:
    """Return an answer as programs get it. spelled: the passages that a model which only quotes was given, of a
    document of so many pages: those that it spells stand behind it with theirs; None for other models."""
    named = dict.fromkeys(cited([(place.label, place.page) for place in one], pages)
                          for one in (spelled.script.quotes if spelled else ()))
    return f"{text.rstrip()} ({', '.join(named)})" if text.strip() and named else text


def passages_opened(found: Passages, ranges: Sequence[tuple[int, int]]) -> Passages:
    """Return those of a file's passages that stand wholly on the pages that are open, pages counted among those."""
    opened = [page for first, last in ranges for page in range(first, last + 1)]
    number = {page: at for at, page in enumerate(opened, start=1)}
    there = [one for one in found.passages if all(place.page in number for place in one.places)]
    return _placed_anew(replace(found, passages=tuple(there)), number.__getitem__)


def _placed_anew(found: Passages, page: Callable[[int], int]) -> Passages:
    def placed(places: Sequence[QuotePlace]) -> tuple[QuotePlace, ...]:
        return tuple(replace(place, page=page(place.page)) for place in places)

    return replace(found, passages=tuple(replace(one, places=placed(one.places), marked=placed(one.marked))
                                         for one in found.passages))


def quotes_as_json(quotes: Iterable[QuoteEvent], ranges: Sequence[tuple[int, int]] = ()) -> list[dict[str, Any]]:
    """Return quotations as plain JSON values. ranges: the file's pages that were opened, where not all were; pages then
    count in it."""

    def placed(found: QuoteOccurrence) -> QuoteOccurrence:
        places = (replace(place, page=page_in_file(place.page, ranges)) for place in found.places)
        return replace(found, places=tuple(places))

    return [asdict(replace(quote, occurrences=tuple(map(placed, quote.occurrences)))) for quote in quotes]


def support_as_json(support: Iterable[SentenceSupport], ranges: Sequence[tuple[int, int]] = ()) -> list[dict[str, Any]]:
    """Return support as plain JSON values; ranges: of ``quotes_as_json``."""
    return [asdict(replace(one, places=tuple(replace(place, page=page_in_file(place.page, ranges))
                                             for place in one.places))) for one in support]


def reasoning(text: str) -> tuple[str, int]:
    """Return what a model reasons before it answers, and the first character of its answer. The mark that opens it may
    be missing, as some chat templates write it: then the one that closes it stands on a line of its own."""
    before, closing, after = text.partition("</think>")
    opened = before.lstrip().startswith("<think>")
    alone = bool(closing) and before.endswith("\n") and (not after or after[0] == "\n") and "<think>" not in before
    if not opened and not alone:
        return "", 0
    return before.lstrip().removeprefix("<think>").strip(), len(before) + len(closing)
