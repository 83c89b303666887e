"""The middle: finished exchanges, the one being written, and the line to ask in.

The exchange that is being written is drawn apart, so that its cost never grows with the chat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import Document, LoadProgress, stays_here

from ..app.accumulator import Trace, figures_of
from ..app.conversations import Answer
from ..app.runs import Run, plain_rate
from ..app.services import SAMPLE_NAME, Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import formatting as fmt
from . import markdown, provenance
from .document_head import prefill_line
from .figures import figures_line
from .first_model import first_model
from .html import COPY, DISMISS, PREPARING, STOP, STOPPED, STOPPING, button, card, esc
from .page_choice import scope, which
from .panel import PRIVATE, Actions, Outputs, Panel, block, noticing, pace, stop_panel
from .passages import Side, drawn, pages_of, spelled

CHAT = "Chat"
ASK_PLACEHOLDER = "Ask about a document"
ASK_ABOUT = "Ask about {scope}"
NOT_ALL_FIT = "not all of them fit the model, and on these the passages stand."
ASK_SO_FAR = "Ask about the first {pages}, read so far"
ASK_PARTS = "Ask about any of its pages"
WHICH_STAND = "the pages where the passages stand"
QUOTES_ONLY_HELP = ("The loaded model only spells the passages that were found. For free answers load a chat model "
                    "under Models.")
KEYS = "Enter asks · Shift+Enter new line · ? all keys"
COPIED = "Copied"
READ_SILENT = "Stop reading"
MEANWHILE_ASK = ("You can ask now. Passages are shown at once; an answer starts when everything is read, or "
                 "at once from the pages read so far, if you choose that.")
START_MORE = ("Passages of {scope} are shown at once, with their pages. The model answers below them, and the strip "
              "shows which pages it looked at. Press Race to see the same answer with and without speculation.")
WELCOME_MORE = ("Drop a document anywhere on this window. The model reads all of it, or the pages that you choose. "
                "Nothing leaves this machine.")
WELCOME_REMOTE = ("Drop a document anywhere on this window. All of it, or the pages you choose, is sent to the server "
                  "with every question.")
ENDED_BECAUSE = {"length": "Ended at the longest answer allowed (see Settings).",
                 "context": "Ended because the context is full. Start a new conversation to make room.",
                 "loop": "Stopped when it said the same for the third time in a row. A larger model repeats itself "
                         "less, and so does the preset “Creative” in Settings."}
ANSWER_BROKE_OFF = "The answer broke off here"
READ_ALOUD = "Read aloud"
SENTENCES_SUPPORTED = "{supported} of {count} sentences are supported by the document."
ONE_SENTENCE = {True: "The sentence is supported by the document.", False: "The sentence is not supported."}
VERSION_BEFORE = "Earlier version"
QUESTION_TAKES = "reading this long question takes about {time}"
CARRIED = "Carried over from an earlier conversation"

MOST_CHAPTERS = 60
SCROLLS = 300  # characters of a question, which may then be higher than its bubble
LONG_QUESTION = 5.0  # seconds of reading a question that are told before it is read


def welcome(sample: str | None, sends_to: str = "", first: str = "") -> str:
    """Return the HTML that is shown while no document is open. sample: id of the handbook, if it is in the library.
    first: the way to a first chat model."""
    action = button("Try it with the handbook", "open", css="tf-primary", document=sample) if sample else ""
    more = WELCOME_REMOTE if sends_to and not stays_here(sends_to) else WELCOME_MORE
    return f'<div class="tf-welcome"><h1>Ask your documents</h1><p>{esc(more)}</p>{action}{first}</div>'


def meanwhile(document: Document | None) -> str:
    """Return the HTML that is shown while a document is read: its chapters, to be looked into. document: None while
    its text is being extracted."""
    ask = f'<div class="tf-meanwhile"><p>{esc(MEANWHILE_ASK)}</p>'
    if document is None or not document.chapters:
        return f"{ask}</div>"
    items = "".join(
        f'<li class="tf-level-{chapter.level}"><button type="button" data-action="page" data-page="{chapter.first}">'
        f'<span>{esc(chapter.title)}</span><span class="tf-muted">'
        f"{esc(fmt.cited_page(document, chapter.first))}</span></button></li>"
        for chapter in [chapter for chapter in document.chapters if chapter.level <= 2][:MOST_CHAPTERS])
    return (f"{ask}<h2>What it contains</h2><p>Look into it while the model reads: a chapter opens its page.</p>"
            f"<ul>{items}</ul></div>")


def begin(scope: str, questions: Sequence[str] = ()) -> str:
    """Return the HTML of a conversation without questions. scope: pages that are read; questions: to begin with."""
    listed = "".join(button(words, "ask", question=words) for words in questions)
    return (f'<div class="tf-welcome tf-small"><h2>{esc(ASK_ABOUT.format(scope=scope))}</h2>'
            f'<p>{esc(START_MORE.format(scope=scope))}</p><div class="tf-starters">{listed}</div></div>')


def question(text: str) -> str:
    scrolls = ' tabindex="0"' if len(text) > SCROLLS else ""  # a pasted chapter would push its answer out of sight
    return f'<div class="tf-question"><div class="tf-bubble"{scrolls}>{esc(text)}</div></div>'


def trace_button(answer: str, on: bool) -> str:
    label = provenance.TRACE_OFF if on else provenance.TRACE
    return (f'<button type="button" class="tf-copy" data-action="trace" data-answer="{esc(answer)}" '
            f'aria-pressed="{str(on).lower()}">{esc(label)}</button>')


def tools(item: Answer, versions: Sequence[str]) -> str:
    """Return the buttons under a question: edit it, and turn to another of the ``versions`` (ids, its own included)."""
    parts = []
    if len(versions) > 1:
        here = versions.index(item.id)
        for target, sign, label in ((here - 1, "‹", VERSION_BEFORE), (here + 1, "›", "Later version")):
            off = "" if 0 <= target < len(versions) else " disabled"
            parts.append(f'<button type="button" class="tf-turn" data-action="version" aria-label="{label}" '
                         f'data-answer="{esc(versions[target % len(versions)])}"{off}>{sign}</button>')
        parts.insert(1, f"<span>{here + 1} of {len(versions)}</span>")
    parts.append(button("Edit", "edit", css="tf-quiet", answer=item.id, question=item.question))
    return f'<div class="tf-tools">{"".join(parts)}</div>'


def ending(item: Answer) -> str:
    """Return what an answer's end says: who stopped it, which limit it reached, or what broke it off."""
    lines = []
    if item.result.get("asked_about"):
        lines.append(from_pages(item.result))
    reason = item.result.get("reason")
    if item.state == "stopped" and not item.error:
        lines.append(STOPPED if item.text else "Stopped before the first word.")
    elif reason in ENDED_BECAUSE:
        lines.append(ENDED_BECAUSE[reason])
    words = "".join(f'<p class="tf-ended">{esc(line)}</p>' for line in lines)
    return words + card("error", ANSWER_BROKE_OFF if item.text else "No answer", item.error) if item.error else words


def answer(item: Answer, body: str, traced: bool = False, versions: Sequence[str] = (), plain_rate: float = 0.0,
           sides: Sequence[Side] = ()) -> str:
    """Return one finished exchange with its figures. body: the answer as safe HTML, token by token if ``traced``.
    plain_rate: as in ``figures_line``; sides: as in ``passages.drawn``."""
    found = drawn(item.result.get("found"), item.result.get("search_problem", ""), sides=sides)
    parts = [f'<div id="answer-{esc(item.id)}">', question(item.question), tools(item, versions),
             '<div class="tf-answer">', found]
    if item.text:
        words = f'<div class="{"tf-by-token" if traced else "tf-prose"}">{body}</div>'
        given = item.result.get("spelled") and not traced
        parts.append(spelled(item.result["found"], pages_of(sides), words) if given else words)
        if not traced:
            said = compared(markdown.judged(item.result))
            parts.append(f'<p class="tf-ended">{esc(said)}</p>' if said else "")
    parts.append(ending(item))
    again = f'<button type="button" class="tf-copy" data-action="again" data-answer="{esc(item.id)}">Ask again</button>'
    figures = figures_of(item.result)
    if not figures.tokens:
        parts.append(f'<div class="tf-foot"><span class="tf-line"></span>{again}</div>')
    else:
        line = figures_line(figures, plain_rate, item.result)
        parts.append(f'<div class="tf-foot">{line}'
                     f'{trace_button(item.id, traced)}{again}'
                     f'<button type="button" class="tf-copy tf-aloud" data-aloud>{READ_ALOUD}</button>'
                     f'<button type="button" class="tf-copy" data-copy="answer" aria-label="{COPY}">{COPY}</button>'
                     "</div>")
    return "".join([*parts, "</div></div>"])


def compared(support: Sequence[Mapping[str, Any]]) -> str:
    """Return how many of the sentences that were judged are supported; "" where none was."""
    supported = sum(one["verdict"] == "supported" for one in support)
    if len(support) == 1:
        return ONE_SENTENCE[bool(supported)]
    return SENTENCES_SUPPORTED.format(supported=supported, count=len(support)) if support else ""


def from_pages(result: Mapping[str, Any]) -> str:
    """Return from which pages an answer was written, and why not from all that were asked about."""
    why = NOT_ALL_FIT if result.get("did_not_fit") else "the rest was still being read."
    return f"Answered from {which(result['ranges'])} of {which(result['asked_about'])}: {why}"


def transcript(answers: Sequence[Answer], body: Callable[[Answer], str], traced: str | None = None,
               versions: Mapping[str, Sequence[str]] | None = None,
               plain_rate: Callable[[Answer], float] = lambda item: 0.0, sides: Sequence[Side] = ()) -> str:
    """Return all finished exchanges of a conversation. body: an answer as safe HTML. traced: id of the answer shown
    token by token. versions: as ``Conversations.versions`` gives them."""
    carried = f'<p class="tf-ended">{CARRIED}</p>' if answers and answers[0].result.get("carried") else ""
    return carried + "".join(
        answer(item, body(item), item.id == traced, (versions or {}).get(item.id, ()), plain_rate(item), sides)
        for item in answers if item.state != "running")


def live(run: Run, by_token: bool, inside: str) -> str:
    """Return the exchange that is being written; writing.js keeps ``inside`` up to date."""
    return (f'{question(run.question)}<div class="tf-answer" aria-busy="true" data-writing="{run.id}" '
            f'data-tokens="{int(by_token)}">{inside}</div>')


def state_line(run: Run, wait: str, pages: int) -> str:
    """Return what a run does now, as one line. wait: what it waits for, while it is queued or prepared. pages: of the
    document."""
    if run.stopping:
        return STOPPING
    if run.state in ("queued", "preparing"):
        return wait or ("Queued: next" if run.state == "queued" else PREPARING)
    if not run.accumulator.text:
        read = run.accumulator.prefill  # a conversation that was left is read again behind the document
        left = fmt.left(read.eta_seconds) if read is not None and (read.eta_seconds or 0) >= 1 else wait
        left = left or (fmt.so_far(read.seconds) if read is not None else "")
        return " · ".join(filter(None, ("Reading the question", left)))
    figures = run.accumulator.figures()
    rate = fmt.rate(figures.tokens_per_second) if figures.tokens_per_second else "–"  # one round has none
    doing, waited = "Spelling: " if run.spelled else "", run.waited
    first = f" · first word after {fmt.seconds(waited['first'])}" if waited else ""
    return f"{doing}{rate} tok/s · {figures.tokens} tokens{first}{quoting(run.quotes, pages)}"


def quoting(quotes: Sequence[Mapping[str, Any]], pages: int) -> str:
    """Return the page of a quotation that is being written, once a single place in the document is left for it."""
    last = quotes[-1] if quotes else None
    places = last["occurrences"][0]["places"] if last and not last["closed"] and last["occurrences"] else ()
    return f" · quoting {fmt.cited(places[:1], pages)}" if places else ""


def writing(run: Run, body: Callable[[], str], wait: str = "", by_token: bool = False, moves: bool = True,
            offer: str = "", found: Mapping[str, Any] | None = None, pages: int = 0) -> str:
    """Return the text so far and one line of state. body: the text as safe HTML; by_token: who wrote each token
    instead. moves: whether a sign of life does. offer: a button behind the line. found: passages that are spelled.
    pages: of the document."""
    text = ""
    if run.accumulator.text:
        words = (f'<div class="tf-tokens">{provenance.tokens(run.accumulator.trace, run.accumulator.text)}</div>'
                 if by_token else body())
        text = f'<div class="tf-prose tf-streaming">{words}</div>'
        text = spelled(found, pages, text) if found and not by_token else text
    trace = trace_button(run.id, by_token) if text else ""
    return (f'{text}<p class="tf-state"><span class="tf-dots{"" if moves else " tf-still"}" aria-hidden="true">'
            f"<i></i><i></i><i></i></span><span>{esc(state_line(run, wait, pages))}</span>{offer}{trace}</p>")


def inside(services: Services, run: Run, by_token: bool) -> str:
    """Return what the answer shows by now, as safe HTML. by_token: who wrote each token."""
    text, document = run.accumulator.text, services.library.document(run.document)
    pages = services.queue.pages_read(run)
    offer = button(f"Answer now from {which(pages)}", "answer-now", css="tf-quiet", run=run.id) if pages else ""
    found = asdict(run.passages) if run.passages else None
    known = sides(services, run.document)
    above = drawn(found, run.search_problem, searched=not run.searches, sides=known)

    def body() -> str:
        return markdown.live(text, document, run.quotes, run.support or ())

    return above + writing(run, body, wait(services, run), by_token, pace(services.queue, services.runs).moves, offer,
                           found if run.spelled else None, pages_of(known))


def sides(services: Services, document: str | None) -> list[Side]:
    """Return the documents that one consists of, or itself; [] where it is gone."""
    entry, first, found = services.library.get(document), 1, list[Side]()
    for part in services.library.parts(entry) if entry is not None else ():
        found.append(Side(part.title or part.name, first, first + part.pages - 1))
        first += part.pages
    return found


def wait(services: Services, run: Run) -> str:
    """Return what a run waits for; "" where it waits no more."""
    if run.state == "preparing":
        prefill = services.queue.prefills.get(run.document)
        line, _, figures = prefill_line(prefill, services.queue.load_progress) if prefill else ("", 0.0, "")
        return f"{line} · {figures}" if figures else line
    seconds = services.queue.question_seconds(run)
    if run.state != "queued":
        return fmt.left(seconds) if seconds >= LONG_QUESTION else ""
    if services.queue.holds(run):
        extraction = services.extractor.extractions.get(run.document)
        return fmt.text_line(extraction) if extraction else ""
    takes = QUESTION_TAKES.format(time=fmt.seconds(seconds)) if seconds >= LONG_QUESTION else ""
    return " · ".join(filter(None, (fmt.wait_line(services.queue.ahead(run)), takes)))


def build(services: Services, tabs: Tabs) -> tuple[Outputs, gr.Button]:
    """Return the panels' components, and the button that starts a race."""
    with gr.Column(elem_id="chat-scroll"):
        finished, live = block("transcript", clicks=True), block("live", clicks=True)
    editing, context = block("editing", clicks=True), block("context-note", clicks=True)
    with gr.Column(elem_id="composer"):
        question = gr.Textbox(placeholder=ASK_PLACEHOLDER, label=ASK_PLACEHOLDER, show_label=False, container=False,
                              lines=1, max_lines=7, elem_id="question")
        with gr.Row(elem_id="composer-row"):
            keys = block("keys")
            race = gr.Button("Race", elem_id="race-now", size="sm", min_width=74)
            stop = gr.Button(STOP, variant="stop", elem_id="stop", size="sm", min_width=74, visible=False)
            send = gr.Button("Ask", variant="primary", elem_id="send", size="sm", min_width=74)

    def ask(question: str, request: gr.Request) -> str:
        view = tabs.get(request.session_hash)
        run = None
        with noticing(view):
            run = services.ask(view, question)
        return "" if run else question

    def stop_answer(request: gr.Request) -> None:
        services.stop(tabs.get(request.session_hash))

    for event in (send.click, question.submit):
        event(ask, [question], [question], queue=False, **PRIVATE)
    stop.click(stop_answer, None, None, queue=False, **PRIVATE)
    return {"transcript": finished, "live": live, "editing": editing, "context_note": context, "question": question,
            "keys": keys, "stop": stop}, race


def actions(services: Services) -> Actions:
    def edit(view: TabView, data: dict[str, str]) -> None:
        view.editing = data.get("answer")

    def trace(view: TabView, data: dict[str, str]) -> None:
        view.traced = None if view.traced == data.get("answer") else data.get("answer")

    return {
        "ask": lambda view, data: services.ask(view, data.get("question", "")),
        "answer-now": lambda view, data: services.answer_now(data.get("run", "")),
        "again": lambda view, data: services.ask_again(view, data.get("answer", "")),
        "version": lambda view, data: services.conversations.show(data.get("answer", "")),
        "edit": edit, "leave-edit": edit, "trace": trace,
    }


def asked_about(services: Services, view: TabView) -> str:
    """Return what the question line asks for."""
    entry = services.library.get(view.document)
    if entry is None:
        return ASK_PLACEHOLDER
    if entry.state == "part":
        return ASK_SO_FAR.format(pages=fmt.pages(entry.pages))
    return ASK_PARTS if services.phase(entry) == "too_long" else ASK_ABOUT.format(scope=scope(entry))


def panels(services: Services) -> list[Panel]:
    conversations, citations = services.conversations, markdown.Citations(services.finders)

    def askable(view: TabView) -> bool:
        entry = services.library.get(view.document)
        return entry is not None and services.phase(entry) in ("ready", "resting", "unsaved", "too_long")

    def first_chat() -> str:
        """Return the way to a first chat model, where none is there; while one is loaded, how far that is."""
        queue = services.queue
        if queue.state == "starting" and queue.config.model != "builtin":
            return first_model(services.models, queue.load_progress or LoadProgress("Starting the engine"))
        return first_model(services.models) if services.quotes_only else ""

    def draw_transcript(view: TabView) -> str:
        if view.document is None:
            entries = services.library.entries()
            sample = next((entry.id for entry in entries if entry.name == SAMPLE_NAME), None)
            return welcome(sample, services.sends_to, first_chat())
        answers = conversations.answers(view.conversation) if view.conversation else []
        document = services.library.document(view.document)
        if not answers:
            entry = services.library.get(view.document)
            if entry is None:
                return ""
            if not askable(view):
                return meanwhile(document) if document or entry.state == "extracting" else ""
            asked = WHICH_STAND if services.phase(entry) == "too_long" else scope(entry)
            return begin(asked, services.suggestions.of(entry))

        def body(answer: Answer) -> str:
            if answer.id != view.traced:
                return citations.render(answer.text, document, view.document or "",
                                        answer.result.get("quotes", ()), markdown.judged(answer.result))
            kept = conversations.trace(answer.id) or Trace()
            return provenance.drawn(kept, answer.text, answer.result.get("first_page", 1), document)

        versions, raced = conversations.versions(view.conversation or ""), conversations.race(view.document)
        return transcript(answers, body, view.traced, versions,
                          lambda answer: plain_rate(raced, answer.question, answer.result),
                          sides(services, view.document))

    def text_state(view: TabView) -> object:
        entry = services.library.get(view.document)
        return entry and (entry.state, services.phase(entry) == "too_long")

    def suggested(view: TabView) -> tuple[str, ...]:
        entry = services.library.get(view.document)
        return services.suggestions.of(entry) if entry else ()

    def raced(view: TabView) -> str | None:
        """Return the id of the race that ended last: what it measured stands under an answer."""
        run = services.runs.race_of(view.document)
        return run.id if run and run.ended else None

    def shown_trace(view: TabView) -> str | None:
        """Return the traced answer, unless it is the one being written: the others need not be drawn again for it."""
        run = services.running(view)
        return None if run and run.id == view.traced else view.traced

    return [
        Panel("transcript", lambda view: (
            view.document, view.conversation, shown_trace(view), conversations.version, askable(view),
            asked_about(services, view), raced(view), suggested(view), text_state(view),
            view.document is None and (services.library.version, services.sends_to, services.quotes_only,
                                       services.models.version, services.queue.state, services.queue.load_progress)),
            draw_transcript),
        Panel("question", partial(asked_about, services), lambda view: gr.update(
            placeholder=asked_about(services, view), label=asked_about(services, view))),
        *_live_panels(services),
    ]


def _live_panels(services: Services) -> list[Panel]:
    def live_key(view: TabView) -> object:
        run = services.running(view)
        return run and (run.id, run.id == view.traced)

    def draw_live(view: TabView) -> str:
        run = services.running(view)
        by_token = run is not None and run.id == view.traced
        return live(run, by_token, inside(services, run, by_token)) if run else ""

    def draw_keys(view: TabView) -> str:
        """Say what the model cannot do where a question is written."""
        words, more = ("Finds passages · ? all keys", QUOTES_ONLY_HELP) if services.quotes_only else (KEYS, "")
        return f'<span class="tf-keys" title="{more}">{words}</span>'

    def draw_editing(view: TabView) -> str:
        if view.editing is None:
            return ""
        return ('<div class="tf-editing" role="status"><span>You are rewording an earlier question. The old version is '
                f'kept.</span>{button(DISMISS, "leave-edit", css="tf-quiet")}</div>')

    return [Panel("live", live_key, draw_live), stop_panel("stop", services.active_run),
            Panel("keys", lambda view: services.quotes_only, draw_keys),
            Panel("editing", lambda view: view.editing, draw_editing)]
