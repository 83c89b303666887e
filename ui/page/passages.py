"""Passages that answer a question -> HTML: how sure they are, the best in full with its answering words marked, two
more at a glance, the others folded. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triforce_core import LEVELS

from ..app.quotes import Place, spot
from . import formatting as fmt
from .html import esc

SEARCHING = "Looking for passages"
NO_SEARCH = "No passages were found: {why}"
FIRST_ORDER = "first order, being read more closely"
LEVELS_HELP = {"found": "These words stand in the document. Whether they answer you is for you to judge.",
               "perhaps": "Something here may answer; it is not certain.",
               "not found": "Nothing in the document clearly answers this. These passages come closest."}
SEVERAL = {"summary": "Passages that tell what it is about", "more": "What follows", "several": "Passages"}
SPELLED = "Spelled from {pages}, not written"
MORE = "{count} more passages"
ONE_MORE = "1 more passage"

AT_A_GLANCE = 2  # passages below the best one that are not folded
_LEAD = 60  # characters of a short passage before its first answering word


@dataclass(frozen=True)
class Side:
    """A document, alone or among those that are read together, and its pages."""

    title: str
    first: int
    last: int


def drawn(found: Mapping[str, Any] | None, problem: str = "", *, searched: bool = True,
          sides: Sequence[Side] = ()) -> str:
    """Return the passages of a question. found: ``Passages`` as plain JSON; None: there are none yet, or there is a
    problem. searched: whether that is all. sides: the document, or those that are read together."""
    if found is None:
        line = NO_SEARCH.format(why=problem) if problem else "" if searched else f"{SEARCHING} …"
        return f'<p class="tf-ended">{esc(line)}</p>' if line else ""
    pages = pages_of(sides)
    listed = [one | {"cited": esc(fmt.cited(one["places"], pages))} for one in found["passages"]]
    level = found["level"]
    if not listed:
        return _head(level, "") if level else ""
    columns = _columns(listed, sides)
    if len(columns) > 1:
        body = '<div class="tf-sides">' + "".join(
            f'<section><h5>{esc(title)}</h5>{_ranked(own)}</section>' for title, own in columns) + "</div>"
    elif level is None:  # a digest, in the document's order
        body = "".join(_whole(one) for one in listed)
    else:
        body = _ranked(listed)
    words = f'<p class="tf-note">{esc(found["words"])}</p>' if found["words"] else ""
    about = SEVERAL.get(found["request"], "") if level is None else ""
    note = "" if found["final"] else FIRST_ORDER
    return (f'<section class="tf-found" aria-label="Passages">{_head(level, note, about)}{words}{body}</section>')


def spelled(found: Mapping[str, Any], pages: int, body: str) -> str:
    """Return what a model that only quotes has spelled of these passages, under a line that says so; several of them,
    which stand above already, folded."""
    line = esc(spelled_from(found, pages)) if found["passages"] else ""
    if line and found["request"] in SEVERAL:
        return f'<details class="tf-spelled"><summary>{line}</summary>{body}</details>'
    return f'<div class="tf-spelled">{f"<p>{line}</p>" if line else ""}{body}</div>'


def pages_of(sides: Sequence[Side]) -> int:
    """Return how many pages documents have together."""
    return sides[-1].last if sides else 0


def spelled_from(found: Mapping[str, Any], pages: int) -> str:
    """Return from which of the document's ``pages`` it spelled."""
    listed = found["passages"] if found["request"] in SEVERAL else found["passages"][:1]
    return SPELLED.format(pages=", ".join(dict.fromkeys(fmt.cited(one["places"], pages) for one in listed)))


def _head(level: str | None, note: str, about: str = "") -> str:
    words = LEVELS[level] if level else about
    if not words and not note:
        return ""
    css = f"tf-level-{level.replace(' ', '-')}" if level else ""
    more = f'<span class="tf-muted">{esc(note)}</span>' if note else ""
    return (f'<p class="tf-level {css}"><b title="{esc(LEVELS_HELP[level] if level else "")}">{esc(words)}</b>'
            f"{more}</p>")


def _columns(listed: Sequence[Mapping[str, Any]], sides: Sequence[Side]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Return the passages of each document that has some, the document of the best one first."""
    columns: dict[str, list[Mapping[str, Any]]] = {}
    for one in listed:
        page = one["places"][0]["page"]
        title = next((side.title for side in sides if side.first <= page <= side.last), "")
        columns.setdefault(title, []).append(one)
    return list(columns.items())


def _ranked(listed: Sequence[Mapping[str, Any]]) -> str:
    """Return the first passage in full, the next ones as single lines to press, the others of those folded."""
    lines = [_short(one) for one in listed[1:]]
    rest = lines[AT_A_GLANCE:]
    label = ONE_MORE if len(rest) == 1 else MORE.format(count=len(rest))
    folded = f"<details><summary>{label}</summary>{''.join(rest)}</details>" if rest else ""
    return _whole(listed[0]) + "".join(lines[:AT_A_GLANCE]) + folded


def _whole(one: Mapping[str, Any]) -> str:
    lead = f'<p class="tf-lead-in">{esc(one["lead_in"])}</p>' if one["lead_in"] else ""
    return (f'<article class="tf-best">{_where(one)}{lead}<p class="tf-words">{_marked(one["text"], one["marks"])}</p>'
            "</article>")


def _short(one: Mapping[str, Any]) -> str:
    """Return a passage as a line to press, from a little before its first answering word."""
    text, marks = one["text"], one["marks"]
    cut = marks[0][0] - _LEAD if marks else 0
    start = text.rfind(" ", 0, cut) + 1 if cut > 0 else 0
    words = _marked(text[start:], [(low - start, high - start) for low, high in marks if low >= start])
    return (f'<button type="button" class="tf-other" {_press(one)}><span class="tf-cite">{one["cited"]}</span>'
            f'<span class="tf-clip">{"… " if start else ""}{words}</span></button>')


def _where(one: Mapping[str, Any]) -> str:
    path = '<span class="tf-path">' + " › ".join(map(esc, one["path"])) + "</span>" if one["path"] else ""
    return f'<p class="tf-where"><button type="button" class="tf-cite" {_press(one)}>{one["cited"]}</button>{path}</p>'


def _press(one: Mapping[str, Any]) -> str:
    places = [Place(place["page"], place["start"], place["end"]) for place in one["marked"] or one["places"]]
    return f'data-action="page" data-page="{places[0].page}" data-spot="{spot(places)}" title="Open {one["cited"]}"'


def _marked(text: str, marks: Sequence[Sequence[int]]) -> str:
    parts, at = [], 0
    for low, high in marks:
        parts += [esc(text[at:low]), f"<mark>{esc(text[low:high])}</mark>"]
        at = high
    return "".join(parts) + esc(text[at:])
