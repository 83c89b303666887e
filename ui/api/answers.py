"""From a wish to a run, which waits its turn with the page's questions, and what is told of it while it goes on.

Every shape of a request (chat completions, responses) is answered through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from starlette.requests import Request

from triforce_core import Document, ModelInfo, Page, Turn, chapter_ranges, metrics, page_ranges, ranges_text, together

from ..app import jobs
from ..app.folders import plainly
from ..app.jobs import Selection
from ..app.library import Entry, Ranges
from ..app.runs import Run
from ..app.services import Services
from ..page.formatting import wait_line
from ..page.html import STOPPED
from .files import Files, file_name
from .messages import GRANTED, INSTRUCTION, FileRef, Wish, own_context, sampling, shown
from .models import Models
from .problems import Problem

REASONS = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop", "loop": "length"}
_LOOK_EVERY = 0.5  # seconds between two looks whether the asker is still there
_EARLY = 10.0  # seconds in which an error still gets a status of its own; after them the stream begins ...
_EARLY_FOUND = 2.0  # ... and after these where passages are there to be sent
_ALIVE_EVERY = 5.0  # seconds of silence after which is said how far the prefill is
_REMEMBERED = 256  # answers whose tokens are known when they come back as history
_LENT = 4  # documents that came as text
NEEDS = ('I only quote from a document, and this request has none: add a part {"type": "file", "file": {"file_id": '
         f"...}}}} to a message (see /v1/files), send the document's text (more than {INSTRUCTION:,} characters) as "
         "the system message or before your question, or load a chat model under Models.")
NO_DOCUMENT = Document("", "txt", (Page("", ""),), "none")  # a chat model is asked as if there were none


class Source(NamedTuple):
    """A file that is asked about. pages: how many of the answer's pages are its."""

    file_id: str
    filename: str
    pages: int


@dataclass(eq=False)
class Asked:
    """A wish and its run. sources: the files, in the order of their pages. hit: a stop text ended it; length:
    characters of the answer that may be shown; reason: the finish_reason, once it has ended."""

    wish: Wish
    run: Run
    news: asyncio.Event
    sources: tuple[Source, ...] = ()
    hit: bool = False
    length: int = 0
    reason: str = ""

    @property
    def content(self) -> str:
        """Return the whole answer, up to a stop text, or with the pages of passages that were spelled."""
        return self.run.accumulator.text[: self.length] if self.hit else _content(self.run)


class Update(NamedTuple):
    """Something new of a run. text: words; found: see ``passages``; quotes, support: those that are new; silence: how
    far it is."""

    kind: Literal["text", "found", "quotes", "support", "silence"]
    value: Any


class Answers:
    def __init__(self, services: Services, files: Files, models: Models) -> None:
        self._services, self._files, self.models = services, files, models
        self._tokens: OrderedDict[str, tuple[int, ...]] = OrderedDict()  # digest of an answer -> its tokens
        self._ephemeral: OrderedDict[str, Document] = OrderedDict()

    async def ask(self, wish: Wish, body: Mapping[str, Any]) -> Asked | None:
        """Queue a request; None where the model can say nothing without a document. Raises Problem.

        Whoever gets the run stops it where they give up."""
        if not wish.files and not wish.text and not (await self.models.loaded()).instructions:
            found = own_context(wish)
            if found is None:
                return None
            wish = found
        settings = self._services.resolved_settings()
        chosen = sampling(body, settings.sampling(), here=not self._services.sends_to)
        if chosen.schema and not (model := await self.models.loaded()).instructions:
            raise Problem(400, "unsupported_parameter", f"{model.name} only quotes, and writes no JSON",
                          param="response_format", remedy="Leave it out, or load a chat model under Models.")
        selection, system, sources = await self._selection(wish)
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def heard() -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped: nobody listens
                loop.call_soon_threadsafe(news.set)

        history = tuple(Turn(said, self._tokens.get(_digest(answer), ()), answer) for said, answer in wish.history)
        run = self._services.queue.answer(jobs.Request(
            selection, wish.question, chosen, (("", settings.speculation()),), history, system,
            alone=not wish.files and not wish.text), heard)
        return Asked(wish, run, news, sources)

    def stop(self, asked: Asked) -> None:
        """End a run; of no effect where it has ended."""
        self._services.queue.stop(asked.run)

    async def begun(self, request: Request, asked: Asked) -> None:
        """Wait a little for the first word, so that a refusal is a refusal and not a stream that breaks off."""
        clock, run = asyncio.get_running_loop().time, asked.run
        start = clock()
        while not run.ended and not run.accumulator.text and (
                clock() - start < (_EARLY_FOUND if run.passages else _EARLY)):
            await self._wait(request, asked)
        if run.state == "failed":
            raise _failure(run)

    async def whole(self, request: Request, asked: Asked) -> None:
        """Wait until a run has ended. Raises Problem where the answer is not whole."""
        async for _ in self.follow(request, asked):
            pass

    async def follow(self, request: Request, asked: Asked) -> AsyncIterator[Update]:
        """Yield what comes, to the end. Raises Problem where the answer is not whole."""
        run, clock = asked.run, asyncio.get_running_loop().time
        sent, told = 0, 0
        sent_quotes: list[dict[str, Any]] = []
        sent_found: dict[str, Any] = {}
        spoken = clock()
        while True:
            # Before the text is looked at: nothing comes after it.
            ended = run.ended and not run.searches and not run.judges
            if (now := passages(run)) != sent_found:
                yield Update("found", now)
                sent_found, spoken = now, clock()
            length, found = shown(run.accumulator.text, asked.wish.stops, ended)
            if length > sent and not asked.hit:
                yield Update("text", run.accumulator.text[sent:length])
                sent, spoken = length, clock()
            known = quotes(run, sent)
            if known != sent_quotes:
                yield Update("quotes", [quote for quote in known if quote not in sent_quotes])
                sent_quotes = known
            if len(judged := support(run, sent).get("support", [])) > told:
                yield Update("support", judged[told:])
                told = len(judged)
            if found and not asked.hit:
                asked.hit = True
                self.stop(asked)
            if ended:
                break
            if clock() - spoken > _ALIVE_EVERY:
                yield Update("silence", self._progress(run))
                spoken = clock()
            await self._wait(request, asked)
        asked.length, asked.reason = length, _reason(run, asked.hit)
        self._remember(run)
        if not asked.hit and (rest := asked.content[len(run.accumulator.text) :]):
            yield Update("text", rest)

    async def _selection(self, wish: Wish) -> tuple[Selection, str, tuple[Source, ...]]:
        """Return the pages that the wish is about, its system text, and whose pages they are. Raises Problem."""
        if not wish.files and not wish.text:
            return Selection.of_ephemeral(NO_DOCUMENT), wish.system, ()
        if wish.system:
            model = await self.models.loaded()
            if not model.instructions:
                raise _no_instructions(model)
        if not wish.files:
            return await self._lent(wish.text), wish.system, ()
        found = [await self._files.read(file) for file in wish.files]
        parts = [(entry, document, _ranges(file, entry, document))
                 for file, (entry, document) in zip(wish.files, found, strict=True)]
        if len(parts) > 1:
            picked = [document.pick(ranges) for _, document, ranges in parts]
            sources = tuple(source(entry, len(some.pages)) for (entry, *_), some in zip(parts, picked, strict=True))
            return Selection.of_ephemeral(together(picked)), wish.system, sources
        (entry, document, ranges), (file,) = parts[0], wish.files
        own = not file.pages and not file.chapters
        return (Selection(entry.id, document, ranges) if own else Selection.of_ephemeral(document, ranges),
                wish.system, (source(entry, len(document.pages)),))

    async def _lent(self, text: str) -> Selection:
        return Selection.of_ephemeral(await asyncio.to_thread(self._lend, text))

    def _lend(self, text: str) -> Document:
        """Return a document that came as text, taken in by the reader that files go through (clean-up, sections)."""
        key = _digest(text)
        if key not in self._ephemeral:
            path = self._services.folders.uploads / f"{uuid.uuid4().hex}.txt"
            try:
                with plainly(path):
                    path.touch(0o600)
                    path.write_text(text, encoding="utf-8")
                self._ephemeral[key] = self._services.take_text(path)
            finally:
                path.unlink(missing_ok=True)
            while len(self._ephemeral) > _LENT:
                self._ephemeral.popitem(last=False)
        return self._ephemeral[key]

    async def _wait(self, request: Request, asked: Asked) -> None:
        """Wait until something happened, or for a moment. Raises Problem where the asker has gone away."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.news.wait(), _LOOK_EVERY)
        asked.news.clear()
        if await request.is_disconnected():
            self.stop(asked)
            raise Problem(499, "client_closed_request", "The request was closed by the one who asked")

    def _progress(self, run: Run) -> str:
        """Return what a run that says nothing waits for."""
        prefill = self._services.queue.prefills.get(run.document)
        progress = prefill.progress if prefill else None
        wait = wait_line(self._services.queue.ahead(run)) if run.state == "queued" else ""
        if progress is not None and progress.stage == "served":
            return f"the server is reading {progress.tokens_total} tokens, {progress.seconds:.0f} s so far"
        return f"reading {progress.tokens_done} of {progress.tokens_total} tokens" if progress else wait or run.state

    def _remember(self, run: Run) -> None:
        """Keep the answer's tokens: the next question's history is then what is in the cache."""
        if run.accumulator.token_ids:
            for text in (run.accumulator.text, _content(run)):
                self._tokens[_digest(text)] = tuple(run.accumulator.token_ids)
            while len(self._tokens) > _REMEMBERED:
                self._tokens.popitem(last=False)


def source(entry: Entry, pages: int) -> Source:
    return Source(file_name(entry), entry.name, pages)


def _no_instructions(model: ModelInfo) -> Problem:
    return Problem(400, "system_prompt_unsupported", f"{model.name} follows no system prompt: it only answers "
                   "questions about the document", param="messages",
                   remedy="Leave the system message out, or choose a chat model with --model.")


def _reason(run: Run, hit: bool) -> str:
    """Return finish_reason. Raises Problem where the answer is not whole."""
    if hit:
        return "stop"
    if run.state != "done":
        raise _failure(run)
    assert run.accumulator.finished is not None
    return REASONS[run.accumulator.finished.reason]


def _ranges(file: FileRef, entry: Entry, document: Document) -> Ranges:
    """Return the pages that a message wants of a document, or else those that were chosen on the page."""
    if file.pages:
        return page_ranges(file.pages, len(document.pages))
    return chapter_ranges(file.chapters, document) if file.chapters else entry.ranges


def _failure(run: Run) -> Problem:
    if run.fit is not None:
        return Problem(400, "context_length_exceeded", f"The document has {run.fit.tokens:,} tokens; "
                       f"{run.fit.max_tokens:,} fit beside questions and answers", param="messages",
                       remedy="Not one page of it fits beside your messages. Send fewer, or load a model with a longer "
                              "context.",
                       need=run.fit.tokens, have=run.fit.max_tokens)
    if run.state == "stopped":
        return Problem(503, "stopped", run.error or STOPPED)
    if run.cause is None:
        return Problem(503, "not_answered", run.error)
    named = str(run.cause).partition(" ")[0]  # what the engine alone can check
    problem = Problem.of(run.cause)
    return problem.about({None: named}) if named in GRANTED else problem


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _content(run: Run) -> str:
    """Return the whole answer, with the pages of passages that were spelled."""
    pages = len(run.searching.document.pages) if run.searching else 0
    return metrics.content(run.accumulator.text, run.passages if run.spelled else None, pages)


def counts(asked: Asked) -> tuple[int, int, int]:
    """Return tokens: of the whole context, of it those that were in the cache, and of the answer as far as it is shown.
    """
    figures = asked.run.accumulator.figures()
    written, tokens = figures.tokens, asked.run.accumulator.trace.tokens
    if asked.hit and tokens:
        begins = accumulate((len(token[0]) for token in tokens[:-1]), initial=0)
        written = sum(begin < asked.length for begin in begins)
    return figures.prompt_tokens + figures.reused_tokens, figures.reused_tokens, written


def timings(run: Run) -> dict[str, Any]:
    """Return draft_n, draft_n_accepted: drafted tokens that the full model tested and accepted; tiers: every tier's.

    Forced quotations are not drafts in that sense: they stand under tiers only."""
    figures = run.accumulator.figures()
    seconds = figures.tokens / figures.tokens_per_second if figures.tokens_per_second else 0.0
    drafted = [figures.acceptance[tier] for tier in ("retrieval", "draft", "n-gram") if tier in figures.acceptance][:1]
    tested, accepted = drafted[0] if drafted else (0, 0)
    return {
        "cache_n": figures.reused_tokens, "prompt_n": figures.prompt_tokens,
        "prompt_ms": figures.prefill_seconds * 1e3,
        "prompt_per_second": _rate(figures.prompt_tokens, figures.prefill_seconds),
        "predicted_n": figures.tokens, "predicted_ms": seconds * 1e3,
        "predicted_per_second": figures.tokens_per_second, "draft_n": tested, "draft_n_accepted": accepted,
        "full_passes": figures.full_passes, "engine": figures.engine,
        "tiers": {tier: {"tested": n, "accepted": good} for tier, (n, good) in figures.acceptance.items()},
    }


def quotes(run: Run, length: int) -> list[dict[str, Any]]:
    """Return what decoding found of the quotations in the answer's first ``length`` characters."""
    return [quote for quote in run.quotes if quote["end"] <= length]


def support(run: Run, length: int) -> dict[str, Any]:
    """Return which sentences of the answer's first ``length`` characters have a passage in the document; {} where
    nobody looked."""
    return {} if run.support is None else {"support": [one for one in run.support if one["end"] <= length]}


def passages(run: Run) -> dict[str, Any]:
    """Return the passages that answer the question, and how sure that is; {} while none are found."""
    if run.passages is None:
        return {"passages": [], "level": None, "passages_problem": run.search_problem} if run.search_problem else {}
    known = dataclasses.asdict(run.passages)
    return {name: known[name] for name in ("passages", "level", "request", "section", "words")}


def pages(run: Run) -> dict[str, Any]:
    """Return which pages an answer was written from, where not all that were asked about fit the model."""
    if not run.did_not_fit:
        return {}
    return {"pages_read": ranges_text(run.ranges), "pages_asked_about": ranges_text(run.asked_about)}


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
