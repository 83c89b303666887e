"""Questions and answers -> HTML. Pure. The live answer is drawn apart, so that its cost never grows with the chat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..app.accumulator import figures_of
from ..app.conversations import Answer
from ..app.runs import Run
from . import markdown, provenance
from . import number_format as fmt
from .figures import figures_line
from .html import COPY, STOPPED, button, card, esc
from .page_choice import which
from .wait_line import ETA

STOP = "Stop"
STOPPING = "Stopping…"
PREPARING = "Getting the document ready"
FROM_PAGES = "Answered from {pages} of {whole}: the rest was still being read."
ENDED_BECAUSE = {"length": "Ended at the longest answer allowed (see Settings).",
                 "context": "Ended because the context is full. Start a new conversation to make room."}
REPEATED = ("It repeats itself, as small models do at low temperatures. A larger model does so less, and so does "
            "the preset “Creative” in Settings.")
ANSWER_BROKE_OFF = "The answer broke off here"
READ_ALOUD = "Read aloud"
LEAD_IN = "Under: {words}"  # the line that introduces a list, the first row of a table
IN_CONTEXT = "In context"  # the sentences around a quotation
QUOTING = "quoting p. {label}"
NO_PASSAGES = ("No passage found for {missing} of {count} sentences. Words were compared, not meaning: a sentence "
               "without this mark may be wrong too.")
ALL_PASSAGES = ("A passage with similar words was found for each of {count} sentences. That does not make them right.")

AGAIN = "Ask again"
VERSION_BEFORE = "Earlier version"
CARRIED = "Carried over from an earlier conversation"

_CIRCLE = 40  # characters that no answer writes three times without going in circles


def question(text: str) -> str:
    return f'<div class="tf-question"><div class="tf-bubble">{esc(text)}</div></div>'


def plain(item: Answer) -> str:
    return markdown.render(item.text)


def trace_button(answer: str, on: bool) -> str:
    label = provenance.TRACE_OFF if on else provenance.TRACE
    return (f'<button type="button" class="tf-copy" data-action="trace" data-answer="{esc(answer)}" '
            f'aria-pressed="{str(on).lower()}">{esc(label)}</button>')


def tools(item: Answer, beside: Sequence[str]) -> str:
    """Under a question: ask it in other words, and the other versions of what follows. beside: ids, this among them."""
    parts = []
    if len(beside) > 1:
        here = beside.index(item.id)
        for target, sign, label in ((here - 1, "‹", VERSION_BEFORE), (here + 1, "›", "Later version")):
            off = "" if 0 <= target < len(beside) else " disabled"
            parts.append(f'<button type="button" class="tf-turn" data-action="version" aria-label="{esc(label)}" '
                         f'data-answer="{esc(beside[target % len(beside)])}"{off}>{sign}</button>')
        parts.insert(1, f"<span>{esc(f'{here + 1} of {len(beside)}')}</span>")
    parts.append(button("Edit", "edit", css="tf-quiet", answer=item.id, question=item.question))
    return f'<div class="tf-tools">{"".join(parts)}</div>'


def cut_off(reason: str, text: str) -> str:
    """Why an answer has no end of its own; and whether its last words stood there twice before: it goes in circles."""
    repeats = len(text) > _CIRCLE and text.count(text[-_CIRCLE:]) > 2
    return " ".join([ENDED_BECAUSE[reason], *([REPEATED] if repeats else [])])


def answer(item: Answer, body: Callable[[Answer], str] = plain, traced: bool = False,
           beside: Sequence[str] = (), plain_rate: float = 0.0) -> str:
    """One finished exchange with its permanent figures. body: its text as safe HTML (with quotations checked, or token
    by token if it is ``traced``). beside: the answers in its place, if there are several. plain_rate: as of
    ``figures_line``."""
    parts = [f'<div id="answer-{esc(item.id)}">', question(item.question), tools(item, beside),
             f'<div class="tf-answer{" tf-doubtful" if item.result.get("answerable") is False else ""}">']
    if item.text:
        parts.append(f'<div class="{"tf-by-token" if traced else "tf-prose"}">{body(item)}</div>')
        parts.append("" if traced else in_context(item.text, item.result.get("quotes", ())))
        parts.append("" if traced else f'<p class="tf-ended">{esc(said)}</p>' if (
            said := compared(item.result.get("support", ()))) else "")
    if item.result.get("asked_about"):
        parts.append(f'<p class="tf-ended">{esc(from_pages(item.result))}</p>')
    if item.state == "stopped" and not item.error:
        parts.append(f'<p class="tf-ended">{esc(STOPPED if item.text else "Stopped before the first word.")}</p>')
    elif item.result.get("reason") in ENDED_BECAUSE:
        parts.append(f'<p class="tf-ended">{esc(cut_off(item.result["reason"], item.text))}</p>')
    if item.error:
        title = ANSWER_BROKE_OFF if item.text else "No answer"
        parts.append(card("error", title, item.error))
    again = (f'<button type="button" class="tf-copy" data-action="again" data-answer="{esc(item.id)}">'
             f"{esc(AGAIN)}</button>")
    figures = figures_of(item.result)
    if not figures.tokens:
        parts.append(f'<div class="tf-foot"><span class="tf-line"></span>{again}</div>')
    else:
        parts.append('<div class="tf-foot">' + figures_line(figures, plain_rate, item.result.get("model", ""))
                     + trace_button(item.id, traced) + again
                     + f'<button type="button" class="tf-copy tf-aloud" data-aloud>'
                     f"{esc(READ_ALOUD)}</button>"
                     + f'<button type="button" class="tf-copy" data-copy="answer" aria-label="{esc(COPY)}">'
                     f"{esc(COPY)}</button></div>")
    parts.append("</div></div>")
    return "".join(parts)


def compared(support: Sequence[Mapping[str, Any]]) -> str:
    """For how many sentences no passage of the document was found; "" where none was compared."""
    missing = sum(not one["found"] for one in support)
    words = NO_PASSAGES if missing else ALL_PASSAGES
    return words.format(missing=missing, count=len(support)) if support else ""


def from_pages(result: Mapping[str, Any]) -> str:
    """That an answer was written while the rest of its pages was being read."""
    return FROM_PAGES.format(pages=which(result["ranges"]), whole=which(result["asked_about"]))


def in_context(text: str, quotes: Sequence[Mapping[str, Any]]) -> str:
    """What items and rows hang on, and each quotation between the sentences around it, folded away; "" where there is
    nothing to tell."""
    leads = dict.fromkeys(lead for quote in quotes if quote["closed"] and (lead := quote.get("lead_in", "")))
    shown = "".join(f'<p class="tf-lead-in">{esc(LEAD_IN.format(words=lead))}</p>' for lead in leads)
    told = [quote for quote in quotes if quote["closed"] and (quote.get("before") or quote.get("after"))]
    if not told:
        return shown
    parts = "".join(f'<p>{esc(quote.get("before", ""))} <b>{esc(text[quote["start"] : quote["end"]])}</b> '
                    f'{esc(quote.get("after", ""))}</p>' for quote in told)
    return shown + f'<details class="tf-context"><summary>{esc(IN_CONTEXT)}</summary>{parts}</details>'


def transcript(answers: Sequence[Answer], body: Callable[[Answer], str] = plain, traced: str | None = None,
               versions: Mapping[str, Sequence[str]] | None = None,
               plain_rate: Callable[[Answer], float] = lambda item: 0.0) -> str:
    """All finished exchanges of a conversation. traced: the answer shown token by token. versions: as of
    ``Conversations.versions``. plain_rate: of each, as of ``figures_line``."""
    carried = f'<p class="tf-ended">{esc(CARRIED)}</p>'
    drawn = "".join(answer(item, body, item.id == traced, (versions or {}).get(item.id, ()), plain_rate(item))
                    for item in answers if item.state != "running")
    return (carried if answers and answers[0].result.get("carried") else "") + drawn


def quoting(quotes: Sequence[Mapping[str, Any]]) -> str:
    """The page of a quotation that is being written, once a single place in the document is left for it."""
    last = quotes[-1] if quotes else None
    places = last["occurrences"][0]["places"] if last and not last["closed"] and last["occurrences"] else ()
    return f" · {QUOTING.format(label=places[0]['label'])}" if places else ""


def live(run: Run, by_token: bool, inside: str) -> str:
    """The exchange that is being written; writing.js keeps what is ``inside`` up to date. by_token: as ``writing``."""
    return (f'{question(run.question)}<div class="tf-answer" aria-busy="true" data-writing="{run.id}" '
            f'data-tokens="{int(by_token)}">{inside}</div>')


def writing(run: Run, wait: str = "", by_token: bool = False, moves: bool = True,
            body: Callable[[], str] | None = None, offer: str = "") -> str:
    """The text so far and one line of state. wait: for what, while it is queued or prepared. body: the text as safe
    HTML. by_token: who wrote each token instead. moves: whether a sign of life does. offer: a button behind."""
    figures = run.accumulator.figures()
    if run.stopping:
        state = STOPPING
    elif run.state == "queued":
        state = wait or "Queued: next"
    elif run.state == "preparing":
        state = wait or PREPARING
    elif not run.accumulator.text:
        state = "Reading the question"
        read = run.accumulator.prefill  # a conversation that was left is read again behind the document
        if read is not None and read.eta_seconds is not None and read.eta_seconds >= 1:
            state += f" · {ETA.format(eta=fmt.seconds(read.eta_seconds))}"
    else:
        rate = fmt.rate(figures.tokens_per_second) if figures.tokens_per_second else "–"  # none of one round
        state = f"{rate} tok/s · {figures.tokens} tokens"
        state += quoting(run.quotes)
    text = ""
    if run.accumulator.text:
        words = (f'<div class="tf-tokens">{provenance.tokens(run.accumulator.trace, run.accumulator.text)}</div>'
                 if by_token
                 else body() if body else markdown.render(run.accumulator.text))
        text = f'<div class="tf-prose tf-streaming">{words}</div>'
    trace = trace_button(run.id, by_token) if text else ""
    return (f'{text}<p class="tf-state"><span class="tf-dots{"" if moves else " tf-still"}" aria-hidden="true">'
            f'<i></i><i></i><i></i></span><span>{esc(state)}</span>{offer}{trace}</p>')
