"""A conversation -> Markdown, JSON or one HTML file that needs nothing else. Pure.

Markdown and HTML hold the branch that is shown: questions, answers, pages. JSON holds all branches, with statistics.
The HTML is made by the page's own safe renderer: no scripts, no images, nothing is fetched.
"""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from triforce_core import LEVELS

from ..app.accumulator import figures_of
from ..app.conversations import Answer, Conversation
from ..app.services import Services
from . import formatting as fmt
from . import markdown
from .chat import compared, from_pages
from .html import APP, STOPPED, esc
from .markdown import BY_OCR, CONTRADICTED, NOT_SUPPORTED, more_places
from .passages import spelled_from

EXPORTED_INSTRUCTIONS = "Instructions:"

KINDS = {"md": "text/markdown", "json": "application/json", "html": "text/html"}
FORMAT = 1
STYLE = """
:root { color-scheme: light dark; font: 16px/1.6 system-ui, sans-serif; }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } .about, .note { color: GrayText; font-size: .85rem; }
section { margin: 2rem 0; } .question { padding: .6rem 1rem; border-radius: .8rem; background: rgb(125 150 170 / 18%);
  white-space: pre-wrap; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .7rem 1rem; border: 1px solid rgb(125 125 125 / 40%); border-radius: .5rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; border: 1px solid rgb(125 125 125 / 40%); text-align: left; }
blockquote { margin: 0 0 1rem; padding-left: 1rem; border-left: 3px solid rgb(125 125 125 / 40%); }
.tf-copy { display: none; } .tf-host { opacity: .7; font-size: .85em; }
"""


@dataclass(frozen=True)
class Talk:
    """A conversation to export. document, pages: its title, and how many it has; every: answers of all branches;
    versions: as ``Conversations.versions`` gives them."""

    conversation: Conversation
    document: str
    pages: int
    shown: Sequence[Answer]
    every: Sequence[Answer]
    versions: dict[str, tuple[str, ...]]


def export(talk: Talk, kind: str) -> tuple[str, str]:
    """Return (file name, content). kind: one of KINDS."""
    name = re.sub(r"[^\w.-]+", "-", talk.conversation.title).strip("-.")[:60] or "conversation"
    return f"{name}.{kind}", {"md": to_markdown, "json": to_json, "html": to_html}[kind](talk)


def exported(services: Services, conversation: str | None, kind: str) -> tuple[str, str, str] | None:
    """Return (file name, type, content) of a conversation; None if there is none of either."""
    known = services.conversations
    talk = known.get(conversation)
    entry = services.library.get(talk.document) if talk else None
    if talk is None or entry is None or kind not in KINDS:
        return None
    name, content = export(Talk(talk, entry.title or entry.name, entry.pages, known.answers(talk.id),
                                known.every_answer(talk.id), known.versions(talk.id)), kind)
    return name, KINDS[kind], content


def to_markdown(talk: Talk) -> str:
    title = " ".join(talk.conversation.title.split())
    system = " ".join(talk.conversation.system.split())
    parts = [f"# {title}", _about(talk), system and f"*{EXPORTED_INSTRUCTIONS} {system}*"]
    for answer in talk.shown:
        parts += [f"## {' '.join(answer.question.split())}", *_passages(answer, talk.pages), answer.text.strip()]
        parts += [f"*{line}*" for line in _notes(answer, talk)]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_json(talk: Talk) -> str:
    return json.dumps({
        "format": FORMAT, "app": APP, "document": talk.document, "title": talk.conversation.title,
        "created_at": talk.conversation.created_at, "instructions": talk.conversation.system,
        "shown": [answer.id for answer in talk.shown],
        "answers": [{
            "id": answer.id, "parent": answer.parent or None, "created_at": answer.created_at, "state": answer.state,
            "question": answer.question, "instructions": answer.result.get("system", ""), "answer": answer.text,
            "error": answer.error,
            "figures": asdict(figures_of(answer.result)), "pages": answer.result.get("page_shares", []),
            "pages_read": answer.result.get("ranges", []),
            "pages_asked_about": answer.result.get("asked_about") or answer.result.get("ranges", []),
            "first_page": answer.result.get("first_page", 1), "quotes": answer.result.get("quotes", []),
            "support": answer.result.get("support", []), "passages": answer.result.get("found"),
            "spelled": answer.result.get("spelled", False)}
            for answer in talk.every],
    }, ensure_ascii=False, indent=1)


def to_html(talk: Talk) -> str:
    title = esc(talk.conversation.title)
    parts = []
    if talk.conversation.system:
        parts.append(f'<p class="about">{EXPORTED_INSTRUCTIONS} {esc(talk.conversation.system)}</p>')
    for answer in talk.shown:
        notes = "".join(f'<p class="note">{esc(line)}</p>' for line in _notes(answer, talk))
        found = markdown.render("\n\n".join(_passages(answer, talk.pages)))
        parts.append(f'<section><div class="question">{esc(answer.question)}</div>{found}'
                     f"{markdown.render(answer.text)}{notes}</section>")
    return ('<!doctype html><html><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
            f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
            f'<p class="about">{esc(_about(talk))}</p>{"".join(parts)}</body></html>\n')


def _about(talk: Talk) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(talk.conversation.created_at))
    return f"About “{' '.join(talk.document.split())}”, started {day}, exported from {APP}."


def _passages(answer: Answer, pages: int) -> list[str]:
    """Return the passages of an answer as paragraphs of Markdown: how sure they are, then each with its pages, the
    answering words in bold; and where the text below them comes from. pages: of the document."""
    found = answer.result.get("found")
    if not found:
        return []
    parts = [f"**{LEVELS[found['level']]}**" if found["level"] else "", _literal(found["words"])]
    for one in found["passages"]:
        head = _literal(" › ".join([fmt.cited(one["places"], pages), *one["path"]]))
        words, at = "", 0
        for low, high in one["marks"]:
            words += f"{_literal(one['text'][at:low])}**{_literal(one['text'][low:high])}**"
            at = high
        lines = f"{words}{_literal(one['text'][at:])}".split("\n")
        parts.append("> " + "  \n> ".join([head, *filter(None, [_literal(one["lead_in"])]), *lines]))
    if answer.text and answer.result.get("spelled"):
        parts.append(f"*{spelled_from(found, pages)}*" if found["passages"] else "")
    return [part for part in parts if part]


def _literal(text: str) -> str:
    """Return a text of the document so that Markdown shows it as it stands."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~-])", r"\\\1", text)


def _notes(answer: Answer, talk: Talk) -> list[str]:
    """Return where its quotations stand, how the answer ended, and that there are others in its place."""
    notes = [_quotation(answer.text, quote, talk.pages) for quote in answer.result.get("quotes", ()) if quote["closed"]]
    support = markdown.judged(answer.result)
    notes += [f"{_beginning(answer.text, one)} {_verdict(one, talk.pages)}" for one in support]
    notes += [compared(support)] if support else []
    if answer.result.get("asked_about"):
        notes.append(from_pages(answer.result))
    if answer.state == "stopped" and not answer.error:
        notes.append(STOPPED)
    if answer.error:
        notes.append(" ".join(answer.error.split()))
    system = answer.result.get("system", talk.conversation.system)
    if system != talk.conversation.system:
        notes.append(f"Written with other instructions: {' '.join(system.split())}" if system
                     else "Written without instructions.")
    versions = talk.versions.get(answer.id, ())
    if versions:
        notes.append(f"Version {versions.index(answer.id) + 1} of {len(versions)}; the JSON export has them all.")
    return notes


def _verdict(sentence: Mapping[str, Any], pages: int) -> str:
    """Return the page that supports a sentence or says otherwise, or that there is none."""
    if sentence["verdict"] == "not found":
        return NOT_SUPPORTED
    page = fmt.cited(sentence["places"], pages)
    return page if sentence["verdict"] == "supported" else f"{CONTRADICTED}: {page}"


def _quotation(text: str, quote: Mapping[str, Any], pages: int) -> str:
    """Return the beginning of a quotation and the pages on which it stands, as decoding reported them."""
    labels = dict.fromkeys(fmt.cited([place], pages) + f" ({BY_OCR})" * place.get("ocr", False)
                           for occurrence in quote["occurrences"]
                           for place in occurrence["places"])
    more = quote["count"] - len(quote["occurrences"])
    listed = [*labels, *([more_places(more)] if more else [])]
    return f"{_beginning(text, quote)} {', '.join(listed)}"


def _beginning(text: str, part: Mapping[str, Any]) -> str:
    """Return the first words of a part of the answer."""
    return f"“{textwrap.shorten(text[part['start'] : part['end']], 60, placeholder='…')}”"
