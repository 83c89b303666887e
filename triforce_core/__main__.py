"""python -m triforce_core ask FILE QUESTION: one question about one document, in this process; tune: measure what
passes cost on this machine; models: see there.

Passages and the answer go to stdout, progress and figures to stderr. Exit status: 0, 2 after a mistake that the person
can mend (one line on stderr), 130 after Ctrl+C (what was written until then is printed).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from . import flags
from .config import MEASUREMENTS, READINGS
from .errors import ConfigError, ContextTooLongError, TriForceError
from .events import (
    LEVELS,
    DocumentFit,
    DocumentOpened,
    Finished,
    LoadProgress,
    ModelInfo,
    Passages,
    PrefillProgress,
    SentenceSupport,
    TextDelta,
)
from .metrics import acceptance_rate, cited, content, in_file, passages_in_file, quotes_as_json, support_as_json
from .models import command as models

if TYPE_CHECKING:
    from .documents.chapters import Ranges
    from .documents.document import Document
    from .engine.engine import Engine
    from .evidence.client import EvidenceClient
    from .worker.client import EngineClient

_Kind = TypeVar("_Kind")
_STATS = ("time_to_first_token", "decode_tokens_per_second", "tokens_per_full_pass", "generated_tokens", "full_passes",
          "tokens_by_origin", "engine", "verifier", "why", "streamed_bytes")  # reported as they are
_BESIDE, _SHORT = 2, 110  # passages shown below the best one, and characters of each
_EPILOG = """\
example:
  python -m triforce_core ask book.pdf "What is the main claim?" --pages 1-40 --json

The passages that answer stand first, found without the model: how sure that is, their pages and words. Then comes the
answer: the model's own, or what the built-in one spells of the first passage.

--json prints one object: answer, content (the same, with its pages where the model only spells passages), level
("found", "perhaps", "not found", or null where nothing was asked that can be found), passages [{text, path (headings
above it), lead_in, places [{page, label, start, end (characters of the page)}], marks [[start, end] (characters of its
text that answer)], marked (the same as places), kind, chance}], request, section, words, token_ids, document_tokens,
pages [{label, start, end}] (what was read, in tokens),
finish_reason (stop, length, context, cancelled), stats {document_seconds, restored, reused_tokens, prefill_seconds
(reading or restoring the document, and the question), time_to_first_token, decode_tokens_per_second,
tokens_per_full_pass, acceptance {tier: {tested, accepted}}, ...}, chunks [{page, label, start, end, share, text}] (most
attended first),
quotes [{number, start, end (characters of the answer), closed, count, occurrences [{start, end (tokens), places [{page,
label, start, end (characters of the page)}]}]}] (where quotations that were held to the document stand), support
[{start, end (characters of the answer), verdict, chance, places}] (of free answers: whether a passage of the document
says what a sentence says, "supported", "contradicted" or "not found", and where that passage stands). A page is its
place in the file, counted from 1; its label is what the file calls it.
"""


def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    try:
        return {"models": models.run, "tune": _tune, "ask": _ask}[given.command](given)
    except TriForceError as error:
        print(f"triforce_core: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nCancelled.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has left; do not complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> flags.Parser:
    parser = flags.Parser(prog="python -m triforce_core", description="TriForce: chat with whole long documents.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ask = commands.add_parser(
        "ask", help="answer one question about one document, or about several together", epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        description="Answer one question with the whole document in the model's context. "
                    "(Speed figures: python -m triforce_core.bench --help)")
    ask.add_argument("files", type=Path, metavar="FILE", nargs="+",
                     help="PDF, TXT, Markdown, HTML, DOCX or EPUB; several are read as one, in this order")
    ask.add_argument("question", metavar="QUESTION")
    part = ask.add_mutually_exclusive_group()
    part.add_argument("--pages", metavar="A-B,C", help="read only these pages, counted from 1")
    part.add_argument("--chapters", metavar="A-B,C|TITLE",
                      help='read only these chapters of its outline, such as "3,5-7" or "2.1" (what there is is listed '
                           "where none is it)")
    ask.add_argument("--password", help="of an encrypted PDF")
    ask.add_argument("--encoding", default="", metavar="NAME",
                     help="of a text file that does not say it, such as windows-1251 (where several are likely, the "
                          "error lists them)")
    ask.add_argument("--system", default="", metavar="TEXT",
                     help="instructions for the answer, such as its language; the built-in pair follows none")
    ask.add_argument("--engine", choices=("triforce", "autoregressive"), default="triforce")
    ask.add_argument("--max-new-tokens", type=int, default=1024, metavar="N")
    ask.add_argument("--json", action="store_true", help="print one JSON object instead of the text")
    flags.add_sampling_flags(ask)
    flags.add_speculation_flags(ask)
    flags.add_engine_flags(ask)
    flags.add_tune_flag(ask)
    saving = ask.add_argument_group("saved readings").add_mutually_exclusive_group()
    saving.add_argument("--no-save", action="store_true", help="neither use nor keep a saved reading")
    saving.add_argument("--data-dir", type=Path, metavar="DIR", help="where the app keeps everything")
    tune = commands.add_parser(
        "tune", help="measure what passes cost on this machine with a model",
        description="Forget what was measured on this machine with a model, and measure it again (some seconds). The "
                    "app and ask measure by themselves when they have read a document.")
    tune.add_argument("--context", type=int, nargs="+", default=[], metavar="N",
                      help="tokens of context to measure at (default: a short one and a long one)")
    flags.add_engine_flags(tune)
    tune.add_argument("--data-dir", type=Path, metavar="DIR", help="where the app keeps everything")
    models.add(commands)
    return parser


def _tune(given: Namespace) -> int:
    config = flags.engine_config(given, measurements=_cache(given.data_dir) / MEASUREMENTS)
    say, engine = _Progress(), _make_engine(config)
    try:
        say.last(engine.load(), ModelInfo)
        with _ctrl_c_cancels(engine) as asked:
            found = say.last(engine.tune(given.context), ModelInfo)
    finally:
        engine.close()
    if asked.cancelled or found is None:
        raise KeyboardInterrupt
    say.line(f"{found.name}, draft {found.draft_name}, {found.mode}, {found.dtype}")
    print(found.drafting, flush=True)
    return 0


def _ask(given: Namespace) -> int:
    """Ask the question; return the process's exit status."""
    sampling = flags.sampling_params(given, given.max_new_tokens)
    speculation = flags.speculation_config(given, given.engine)
    cache = None if given.no_save else _cache(given.data_dir)
    config = flags.engine_config(given, cache and cache / READINGS, cache and cache / MEASUREMENTS)
    if not given.question.strip():
        raise TriForceError("The question is empty", remedy="Type a question about the document.")
    say = _Progress()
    document, ranges = _read(given, say)
    chosen = document.pick(ranges)
    evidence = _make_evidence()
    engine = _make_engine(config)
    try:
        *_, found = evidence.find(chosen, given.question)
        placed = passages_in_file(found, ranges)
        if not given.json:
            print(_shown(placed, len(document.pages)), flush=True)
        model = _load(engine, say, given.system)
        with _ctrl_c_cancels(engine):
            _refuse_if_too_long(engine, document, ranges, say)
            opened = say.last(engine.open_document(chosen), DocumentOpened)
            if opened is None:
                raise KeyboardInterrupt
            say.opened(opened, chosen)
            script = None if model.instructions else found.script
            if not given.json:
                print(f"{'Spelled from the passages' if script else 'Answer'}, by {model.name}:", flush=True)
            finished = say.last(engine.ask(given.question, (), sampling, speculation, given.system, script), Finished,
                                shown=not given.json)
            assert finished is not None, "an answer ends with Finished"
        judged = given.json and model.instructions
        support = tuple(evidence.check(chosen, finished.text, given.question)) if judged else None
    finally:
        engine.close()
        evidence.close()
    whole = _as_json(opened, finished, ranges, placed, document, support) if given.json else {}
    print(json.dumps(whole, ensure_ascii=False) if given.json else "", flush=True)
    say.finished(finished)
    return 130 if finished.reason == "cancelled" else 0


def _read(given: Namespace, say: _Progress) -> tuple[Document, Ranges]:
    """Return all files as one document, and which of its pages are asked about."""
    from .documents import read_document
    from .documents.chapters import chapter_ranges, page_ranges
    from .documents.document import together

    read = [read_document(file, given.password, encoding=given.encoding, progress=say.pages) for file in given.files]
    document = together(read) if len(read) > 1 else read[0]
    for sentence in (*document.warnings, *document.notes):
        say.line(sentence)
    if given.pages is not None:
        return document, page_ranges(given.pages, len(document.pages))
    if given.chapters is not None:
        return document, chapter_ranges(given.chapters, document)
    return document, ((1, len(document.pages)),)


def _load(engine: Engine | EngineClient, say: _Progress, system: str) -> ModelInfo:
    """Raises ConfigError where there are instructions for a model that follows none."""
    model = say.last(engine.load(), ModelInfo)
    assert model is not None, "loading ends with ModelInfo"
    if system.strip() and not model.instructions:
        raise ConfigError(f"{model.name} follows no instructions: it only answers questions about the document",
                          remedy="Leave --system out, or choose a chat model with --model.")
    return model


def _make_engine(config: Any) -> Engine | EngineClient:
    """Return an engine in this process; several ranks have processes of their own, which a client leads."""
    if config.gpus > 1:
        from .worker.client import EngineClient

        return EngineClient(config)
    from .worker.child import engine_environment

    os.environ.update(engine_environment(config))
    from .engine.engine import Engine

    return Engine(config)


def _make_evidence() -> EvidenceClient:
    from .evidence.client import EvidenceClient

    return EvidenceClient()


def _shown(found: Passages, pages: int) -> str:
    """Return passages as lines: how sure they are, the best in full, the beginnings of two more. pages: of all."""
    level = LEVELS[found.level] if found.level else "Passages" if found.passages else ""
    lines = [found.words, f"{level}:" if level else ""]
    for place, one in enumerate(found.passages):
        whole = found.several or not place
        if not whole and place > _BESIDE:
            break
        words = one.text if whole else textwrap.shorten(one.text, _SHORT, placeholder=" …")
        where = cited([(each.label, each.page) for each in one.places], pages)
        lines.append(f"[{where}] {' > '.join(one.path)}".rstrip())
        lines += [f"  {line}" for line in (*filter(None, [one.lead_in]), *words.split("\n"))]
    return "\n".join(filter(None, lines)) + "\n"


def _cache(data_dir: Path | None) -> Path:
    """Return the app's cache, so that what one has read or measured serves the other too."""
    if data_dir is not None:
        return data_dir.expanduser().resolve() / "cache"
    from platformdirs import PlatformDirs

    return PlatformDirs("triforce-chat", appauthor=False).user_cache_path


def _refuse_if_too_long(engine: Engine | EngineClient, document: Document, ranges: Ranges,
                        say: _Progress) -> None:
    """Say how long the document is, what fits, and the flag that chooses it: nothing is cut silently."""
    from .documents.chapters import merge_ranges, ranges_text

    fit = engine.measure(document.pick(ranges), say.event)
    if fit.fits:
        return
    pages = [page for first, last in ranges for page in range(first, last + 1)]
    count = pages_that_fit(fit)
    while count and not engine.measure(document.pick(merge_ranges((page, page) for page in pages[:count]))).fits:
        count -= 1
    what = "The document" if len(pages) == len(document.pages) else f"Pages {ranges_text(ranges)}"
    some = ranges_text(merge_ranges((page, page) for page in pages[:count])).replace(" ", "")
    raise ContextTooLongError(
        f"{what} ({len(pages)} pages) would take {fit.tokens:,} tokens, and {fit.max_tokens:,} fit"
        + (" into the memory that is free" if fit.limited_by == "memory" else ""),
        remedy=f"Choose pages, for example --pages {some}, or chapters (--chapters)." if count else
        f"Not even page {pages[0]} fits: use a model with a longer context.")


def pages_that_fit(fit: DocumentFit) -> int:
    """Return how many pages fit, from the first, by their own tokens."""
    total = 0
    for count, tokens in enumerate(fit.page_tokens):
        total += tokens
        if total > fit.max_tokens:
            return count
    return len(fit.page_tokens)


class _ctrl_c_cancels:
    """End the verb in hand in good order at the first Ctrl+C, and the program at the second."""

    def __init__(self, engine: Engine | EngineClient) -> None:
        self._engine, self._before = engine, signal.getsignal(signal.SIGINT)
        self.cancelled = False

    def __enter__(self) -> _ctrl_c_cancels:
        signal.signal(signal.SIGINT, self._first)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _first(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self.cancelled = True
        self._engine.cancel()


class _Progress:
    """Progress and figures on stderr: one line rewritten on a terminal, else only what stays true."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._open = False

    def last(self, events: Iterable[object], kind: type[_Kind], *, shown: bool = False) -> _Kind | None:
        """Show a verb's events and return the last of a kind. shown: its text goes to stdout as it comes."""
        found = None
        for event in events:
            self.event(event)
            if isinstance(event, TextDelta) and shown:
                sys.stdout.write(event.text)
                sys.stdout.flush()
            if isinstance(event, kind):
                found = event
        return found

    def event(self, event: object) -> None:
        if isinstance(event, LoadProgress):
            share = "" if event.fraction is None else f" {event.fraction:.0%}"
            self._rewrite(f"Loading: {event.stage}{share}")
        elif isinstance(event, PrefillProgress):
            eta = "" if event.eta_seconds is None else f", {event.eta_seconds:.0f} s left"
            if event.stage == "tune":
                self._rewrite(f"Measuring this machine: {event.tokens_done} %{eta}")
                return
            doing = {"tokenize": "Tokenizing", "read": "Reading", "restore": "Restoring", "save": "Saving",
                     "warm-up": "Warming up", "draft": "Reading with the draft model"}[event.stage]
            about = "about " if event.stage == "tokenize" else ""
            self._rewrite(f"{doing}: {event.tokens_done:,} of {about}{event.tokens_total:,} tokens, "
                          f"{event.tokens_per_second:,.0f} tokens/s{eta}")
        elif isinstance(event, TextDelta):
            self._end_line()

    def pages(self, done: int, total: int) -> None:
        self._rewrite(f"Extracting the text: page {done:,} of {total:,}")

    def opened(self, opened: DocumentOpened, document: Document) -> None:
        how = f"restored (reading it took {opened.read_seconds:.1f} s)" if opened.restored else "read"
        if opened.reused:
            how = f"(the first {opened.reused:,} from an earlier reading) read"
        self.line(f"{document.title}: {len(opened.pages)} pages, {opened.tokens:,} tokens {how} "
                  f"in {opened.seconds:.1f} s")
        if opened.damaged:
            self.line("The saved reading was damaged: it was removed, and the document was read again.")
        if opened.unsaved:
            self.line(f"The reading is not saved, so it will take as long again. {opened.unsaved}")

    def finished(self, finished: Finished) -> None:
        stats = finished.stats
        tiers = "".join(f" · {tier} {count.accepted}/{count.tested} ({acceptance_rate(count):.0%})"
                        for tier, count in stats.acceptance.items())
        link = f" · {stats.streamed_bytes_per_second / 1e9:.1f} GB/s from host memory" if stats.streamed_bytes else ""
        self.line(f"{stats.generated_tokens} tokens ({finished.reason}) · {stats.decode_tokens_per_second:.1f} tokens/s"
                  f" · first after {stats.time_to_first_token:.2f} s · {stats.tokens_per_full_pass:.2f} per full pass"
                  f"{tiers}{link} · {stats.engine}: {stats.why}")

    def line(self, text: str) -> None:
        self._end_line()
        print(text, file=sys.stderr, flush=True)

    def _rewrite(self, text: str) -> None:
        if self._live:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._open = True

    def _end_line(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._open = False


def _as_json(opened: DocumentOpened, finished: Finished, ranges: Ranges, found: Passages, document: Document,
             support: Sequence[SentenceSupport] | None) -> dict[str, Any]:
    """ranges: the pages that were read, counted from 1. found: with pages of the whole document. support: of an answer
    in free words; None of one that was spelled."""
    stats, passages = finished.stats, asdict(found)
    return {
        "answer": finished.text,
        "content": content(finished.text, found if support is None else None, len(document.pages)),
        **{name: passages[name] for name in ("level", "passages", "request", "section", "words")},
        "token_ids": list(finished.token_ids),
        "document_tokens": opened.tokens,
        "pages": [{"label": page.label, "start": page.start, "end": page.end} for page in opened.pages],
        "finish_reason": finished.reason,
        "stats": {
            "document_seconds": opened.seconds,
            "restored": opened.restored,
            "reused_tokens": opened.reused,
            "prefill_seconds": opened.seconds + stats.prefill_seconds,
            **{name: getattr(stats, name) for name in _STATS},
            "acceptance": {tier: {"tested": count.tested, "accepted": count.accepted}
                           for tier, count in stats.acceptance.items()},
        },
        "chunks": [asdict(chunk) for chunk in in_file(finished.chunks, ranges)],
        "quotes": quotes_as_json(finished.quotes, ranges),
        **({} if support is None else {"support": support_as_json(support, ranges)}),
    }


if __name__ == "__main__":
    sys.exit(main())
