"""Answers and races on their way, independent of any browser tab: the engine's thread writes them, any number of tabs
read. A race's lanes are compared here; the replay itself runs in the browser."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any, Literal

from triforce_core import ConfigError, DocumentFit, ModelInfo, Passages, SpeculationConfig, metrics

from .accumulator import Accumulator
from .settings import Settings

RunState = Literal["queued", "preparing", "answering", "done", "stopped", "failed"]
ENDED = ("done", "stopped", "failed")
KEPT = 20  # ended runs that stay for tabs that come late; answers live on in the database


@dataclass(eq=False)
class Run:
    """One answer (one lane) or one race (several) on its way.

    ranges: the document's pages that it is answered from. asked_about: the pages that were asked about where they are
    more; did_not_fit: more than fit the model, not than were read. system: instructions for it. longest: tokens that
    it may have. taken_at: when the engine turned to it; began_at: when the writing of this lane began. outcome: of a
    race, once all lanes are in. fit: of pages of which not one fits. support: of an answer in free words, the
    sentences that are judged by now (None: they are not); judges: there may be more; written: no text comes any more.
    heard: called after every change, by the thread that changes it. stop_asked: it was cancelled, and is to end.
    passages: what the document holds for the question, pages counted in the file; search_problem: why there are none.
    searching: the ``Selection`` in which they are looked for; searched: that has ended. spelled: the model only
    quotes, and was given a part of them to say."""

    document: str
    question: str
    conversation: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    race: bool = False
    lanes: tuple[tuple[str, SpeculationConfig], ...] = ()
    system: str = ""
    longest: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: RunState = "queued"
    error: str = ""
    accumulators: list[Accumulator] = field(default_factory=list)
    started_at: float = field(default_factory=time.time)
    taken_at: float = 0.0
    began_at: float = 0.0
    ended_at: float = 0.0
    outcome: dict[str, Any] = field(default_factory=dict)
    fit: DocumentFit | None = None
    cause: Exception | None = None
    support: Sequence[dict[str, Any]] | None = None
    heard: Callable[[], None] = lambda: None
    asked_about: tuple[tuple[int, int], ...] = ()
    did_not_fit: bool = False
    stop_asked: bool = False
    passages: Passages | None = None
    search_problem: str = ""
    searching: Any = None
    spelled: bool = False
    searched: threading.Event = field(default_factory=threading.Event)
    written: threading.Event = field(default_factory=threading.Event)
    judges: bool = False

    def __post_init__(self) -> None:
        self.accumulators.append(Accumulator(self.ranges))

    def about(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Set the pages to answer from, before it has begun."""
        self.ranges = ranges
        self.accumulators[:] = [Accumulator(ranges)]

    def narrow(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Answer from a part of the pages that were asked about, before it has begun."""
        self.asked_about = self.asked_about or self.ranges
        self.about(ranges)

    @property
    def first_page(self) -> int:
        """Return the document's page that page_shares[0] stands for."""
        return self.ranges[0][0] if self.ranges else 1

    @property
    def accumulator(self) -> Accumulator:
        """Return that of the lane that is being written."""
        return self.accumulators[-1]

    @property
    def quotes(self) -> list[dict[str, Any]]:
        """Return the quotations that decoding has reported, as plain JSON; pages count in the whole document."""
        return metrics.quotes_as_json(self.accumulator.quotes, self.ranges)

    def kept(self, model: str) -> dict[str, Any]:
        """Return everything a conversation keeps beside the text, as plain JSON. model: the one that writes it."""
        kept = self.accumulator.result() | {"first_page": self.first_page, "ranges": self.ranges, "system": self.system,
                                            "quotes": self.quotes, "model": model, "support": self.support or [],
                                            "found": asdict(self.passages) if self.passages else None,
                                            "search_problem": self.search_problem, "spelled": self.spelled,
                                            "waited": self.waited}
        asked = {"asked_about": self.asked_about, "did_not_fit": self.did_not_fit}
        return kept | asked if self.asked_about else kept

    @property
    def waited(self) -> dict[str, float]:
        """Return seconds from when it was asked: in line, until the first word, and until now; {} before the first."""
        first = self.accumulator.figures().time_to_first_token
        return {"line": self.taken_at - self.started_at, "first": self.began_at - self.started_at + first,
                "last": time.time() - self.started_at} if first else {}

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def searches(self) -> bool:
        """Return whether passages are being looked for."""
        return self.searching is not None and not self.searched.is_set()

    @property
    def stopping(self) -> bool:
        """Return whether a stop was asked for and is not confirmed yet."""
        return self.stop_asked and not self.ended

    @property
    def version(self) -> tuple[Any, ...]:
        return (self.id, self.state, self.stopping, self.passages is not None, self.searched.is_set(),
                len(self.support or ()), self.judges,
                len(self.accumulators), self.accumulator.version)


class RunStore:
    """Runs by id: those on their way and the last that ended. Thread-safe."""

    def __init__(self, keep: int = KEPT) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()
        self._keep = keep

    def add(self, run: Run) -> Run:
        with self._lock:
            self._runs[run.id] = run
            ended = [run.id for run in self._runs.values() if run.ended]
            for key in ended[: max(0, len(ended) - self._keep)]:
                del self._runs[key]
        return run

    def get(self, key: str) -> Run | None:
        return self._runs.get(key)

    def active(self) -> list[Run]:
        with self._lock:
            return [run for run in self._runs.values() if not run.ended]

    def of_conversation(self, conversation: str | None) -> Run | None:
        """Return the unfinished answer of a conversation, if there is one."""
        return next((run for run in self.active() if not run.race and run.conversation == conversation), None)

    def race_of(self, document: str | None) -> Run | None:
        """Return a document's newest race, running or ended."""
        with self._lock:
            races = [run for run in self._runs.values() if run.race and run.document == document]
        return races[-1] if races else None


class Counters:
    """Counts over every answer since the start, for ``/metrics``: numbers only, no word of a document.

    answers: by end state. tokens: "prompt", "reused" and "generated". tested, accepted: drafted tokens by tier. Written
    under the queue's lock."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.tested: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.full_passes = 0
        self.first_token_seconds = 0.0

    def add(self, run: Run) -> None:
        """Count an answer or a race that has ended."""
        self.answers[run.state] += 1
        for figures in (answer.figures() for answer in run.accumulators):
            self.tokens.update(prompt=figures.prompt_tokens, reused=figures.reused_tokens, generated=figures.tokens)
            self.full_passes += figures.full_passes
            self.first_token_seconds += figures.time_to_first_token
            for tier, (tested, accepted) in figures.acceptance.items():
                self.tested[tier] += tested
                self.accepted[tier] += accepted

LANES = ("Plain decoding", "TriForce")
THIRD = (("No third lane", ""), ("Without copied text", "ngram=off"),
         ("Copied text only", "ngram=straight, small_model=off, middle_cache=none"),
         ("Small model only", "middle_cache=none, ngram=off"),
         ("Short drafts: 4 tokens per full pass", "gamma2=4"))
THIRD_BAD = "{part} is not a setting of a third lane"
DIFFERS_ROUNDING = ("In {dtype} a pass over several tokens rounds a little differently from a pass over one, and "
                    "a near-tie can fall the other way. Choose 'exact' numbers in Settings for identical words.")
DIFFERS_EXACT = ("With exact numbers this should not happen. Please report it with the document's length, the "
                 "seed and the settings.")

FIXED = ("engine", "verifier", "quotes")  # of a third lane: without them the words could differ
CONTEXT = 60  # characters shown on either side of the first difference


def race_lanes(settings: Settings, third: str = "") -> tuple[tuple[str, SpeculationConfig], ...]:
    """Return plain decoding, TriForce with these settings, and TriForce with some of them changed, as in "gamma2=6".

    All use the verifier whose words the seed alone decides. Raises ConfigError."""
    fast = settings.speculation(engine="triforce", verifier="coupled")
    found = [(LANES[0], settings.speculation(engine="autoregressive", verifier="coupled")), (LANES[1], fast)]
    if third.strip():
        changes = _changes(third)
        name = next((label for label, text in THIRD if _changes(text) == changes), third.strip())
        found.append((name, replace(fast, **changes)))
    return tuple(found)


def _changes(text: str) -> dict[str, Any]:
    known = [field.name for field in fields(SpeculationConfig) if field.name not in FIXED]
    changes: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known or not value:
            raise ConfigError(THIRD_BAD.format(part=part), allowed=", ".join(known))
        changes[name] = int(value) if value.isdigit() else value
    return changes


def compare_lanes(answers: Sequence[Accumulator], model: ModelInfo | None,
            names: Sequence[str] = LANES) -> dict[str, Any]:
    """Return the lanes for the replay, each with its speed-up over the first and whether its words are the same."""
    made: list[dict[str, Any]] = [
        {"name": name, "text": answer.text, "marks": thin(answer.marks), "figures": asdict(answer.figures()),
         "same": answer.token_ids == answers[0].token_ids, "round": round_cost(answer),
         "variety": metrics.variety(answer.token_ids), "forced": forced(answer)}
        for name, answer in zip(names, answers, strict=True)]
    rates = [lane["figures"]["tokens_per_second"] for lane in made]
    for lane, rate in zip(made, rates, strict=True):
        lane["speedup"] = rate / rates[0] if rate and rates[0] else None
    return {
        "lanes": made, "speedup": made[1]["speedup"], "same": made[1]["same"],
        "difference": None if made[1]["same"] else difference(answers[0], answers[1], model),
        "model": model.name if model else "",
        **{name: getattr(model, name) if model else "" for name in ("dtype", "device")},
    }


def plain_rate(kept: Mapping[str, Any] | None, question: str, result: Mapping[str, Any]) -> float:
    """Return the tokens per second of plain decoding in a document's last race; 0 where that did not run on the
    answer's question, pages and model. result: the answer's."""
    if kept is None or kept["question"] != question or kept["model"] != result.get("model"):
        return 0.0
    if "ranges" not in kept or [*map(list, kept["ranges"])] != [*map(list, result.get("ranges", ()))]:
        return 0.0
    return float(kept["lanes"][0]["figures"]["tokens_per_second"])


def round_cost(answer: Accumulator) -> dict[str, float]:
    """Return the mean milliseconds of a round: in the full pass, and in everything else."""
    spent = [stages for _, _, stages, *_ in answer.trace.rounds]
    full = sum(stages.get("verify", 0.0) for stages in spent)
    rounds = max(len(spent), 1)
    return {"verify": full / rounds, "rest": (sum(sum(stages.values()) for stages in spent) - full) / rounds}


def forced(answer: Accumulator) -> float:
    """Return the share of an answer's tokens that the document forced: nobody had to find them."""
    origins = answer.figures().origins
    return origins.get("quote", 0) / max(1, sum(origins.values()))


def difference(plain: Accumulator, fast: Accumulator, model: ModelInfo | None) -> dict[str, Any]:
    """Return where two answers part, and the likeliest reason."""
    token = next(index for index, (a, b) in enumerate(zip_longest(plain.token_ids, fast.token_ids)) if a != b)
    start = next((i for i, (a, b) in enumerate(zip(plain.text, fast.text, strict=False)) if a != b),
                 min(len(plain.text), len(fast.text)))
    exact = model is not None and model.dtype == "float32"
    return {
        "token": token + 1,
        "before": plain.text[max(0, start - CONTEXT) : start],
        "plain": plain.text[start : start + CONTEXT],
        "fast": fast.text[start : start + CONTEXT],
        "why": DIFFERS_EXACT if exact else DIFFERS_ROUNDING.format(dtype=model.dtype if model else "?"),
    }


def thin(marks: Sequence[tuple[float, int]], most: int = 600) -> list[tuple[float, int]]:
    """Return at most ``most`` of the (seconds, characters) marks and the last one."""
    kept = [*marks[:: max(1, -(-len(marks) // most))]]
    if marks and kept[-1][1] != marks[-1][1]:
        kept.append(marks[-1])
    return [(round(seconds, 3), characters) for seconds, characters in kept]
