"""Which pages are to be read: the chapters to tick, and whether what was chosen fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from triforce_core import Chapter, Document, DocumentFit, TriForceError, page_ranges, ranges_text

from ..page import number_format as fmt
from ..page.html import esc
from ..state.collection import Weighing
from ..state.context_budget import Part, answer_room, fitting_pages
from ..state.library import Entry, Ranges
from ..words import page_choice as choice_words
from ..words import together as together_words
from . import context_bar
from .library import pages

MOST_NAMED = 3  # ranges of pages in one phrase
Split = Callable[[Ranges], Sequence[tuple[str, int]]]


def which(ranges: Ranges) -> str:
    """Pages in words: 'pages 1 to 12, 40'."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return choice_words.WHICH_ONE.format(page=ranges[0][0])
    return choice_words.WHICH.format(ranges=ranges_text(ranges).replace("-", choice_words.TO))


def scope(entry: Entry) -> str:
    """What answers are written from, in words: 'the whole document', 'pages 1–36'."""
    if entry.chosen and len(entry.ranges) > MOST_NAMED:
        chosen = sum(last - first + 1 for first, last in entry.ranges)
        return choice_words.SOME.format(chosen=fmt.count(chosen), pages=pages(entry.pages))
    if entry.chosen:
        return which(entry.ranges)
    return choice_words.SEVERAL.format(count=len(entry.parts)) if entry.parts else choice_words.WHOLE


def words(entry: Entry, fit: DocumentFit | None, chapters: bool = False) -> str:
    """What fits, and what can be done where not all does. chapters: whether there are any to tick."""
    larger = ""
    if fit is None:
        title, text = choice_words.TITLE, choice_words.UNKNOWN.format(pages=pages(entry.pages))
    elif fit.fits:
        title, text = choice_words.TITLE, choice_words.FITS
    else:
        title = choice_words.PART_FITS.format(fitting=fmt.count(fitting_pages(fit)), pages=pages(entry.pages))
        text = choice_words.TOO_LARGE if fit.limited_by == "memory" else choice_words.TOO_LONG
        text += " " + (choice_words.CHOICES_CHAPTERS if chapters else choice_words.CHOICES)
        larger = (f'<button type="button" class="tf-btn tf-quiet" data-tab="models">{esc(choice_words.LARGER)}'
                  "</button>")
    if fit is not None:
        text = text.format(tokens=fmt.tokens(fit.tokens, fit.estimated), pages=pages(entry.pages),
                           most=fmt.count(fit.max_tokens))
    return f"<h2>{esc(title)}</h2><p>{esc(text)} {larger}</p>"


def range_words(entry: Entry, fit: DocumentFit | None, typed: str, context: int = 0,
                split: Split | None = None) -> str:
    """Whether the pages typed so far fit, and the bar of what they take. context: the model's, 0 if it is not known.
    split: title and tokens of each of several documents, for the pages of some ranges."""
    try:
        ranges = page_ranges(typed, entry.pages)
    except TriForceError:
        return f'<p class="tf-bad">{esc(choice_words.BAD.format(pages=entry.pages))}</p>'
    if fit is None:
        return ""
    tokens = _tokens(fit, ranges)
    chosen = which(ranges).capitalize()
    if tokens > fit.max_tokens:
        good, text = False, choice_words.CHOSEN_TOO_LONG.format(
            chosen=chosen, tokens=fmt.count(tokens), over=fmt.count(tokens - fit.max_tokens))
    else:
        good, text = True, choice_words.CHOSEN_FITS.format(
            chosen=chosen, tokens=fmt.count(tokens), percent=fmt.percent(tokens, fit.max_tokens))
    parts = [Part(title, taken) for title, taken in (split(ranges) if split else [(chosen, tokens)])]
    weighing = Weighing(tuple(parts), fit.max_tokens, answer_room(fit, context))
    drawn = context_bar.bar(parts, weighing.most, weighing.room, legend=split is not None, css="tf-inline")
    if split:
        text += "".join(" " + together_words.DROP_ONE.format(title=part.title) for part in weighing.enough[:1])
    return f'{drawn}<p class="{"tf-good" if good else "tf-bad"}">{esc(text)}</p>'


def readable(entry: Entry, fit: DocumentFit | None, typed: str) -> bool:
    """Whether the pages typed so far are some, and are not known to be too many."""
    try:
        ranges = page_ranges(typed, entry.pages)
    except TriForceError:
        return False
    return fit is None or fit.estimated or _tokens(fit, ranges) <= fit.max_tokens


def _tokens(fit: DocumentFit, ranges: Ranges) -> int:
    return sum(sum(fit.page_tokens[first - 1 : last]) for first, last in ranges)


def listed(document: Document, fit: DocumentFit | None, typed: str) -> str:
    """The chapters to tick, each with what it takes; "" where there are none. typed: the pages chosen so far."""
    if not document.chapters:
        return ""
    sizes = _sizes(document, fit)
    items = "".join(
        f'<li class="tf-level-{chapter.level}"><label><input type="checkbox" data-chapter="{number}" '
        f'data-first="{chapter.first}" data-last="{chapter.last}" data-level="{chapter.level}">'
        f'<span class="tf-chapter-title">{esc(chapter.title)}</span>'
        f'<span class="tf-chapter-size">{esc(size)}</span></label></li>'
        for number, (chapter, size) in enumerate(zip(document.chapters, sizes, strict=True)))
    tools = "".join(f'<button type="button" class="tf-btn tf-quiet" data-chapters="{which}">{esc(label)}</button>'
                    for which, label in (("all", choice_words.ALL), ("none", choice_words.NONE)))
    return (f'<fieldset class="tf-chapters" data-pages="{len(document.pages)}" data-chosen="{esc(typed)}">'
            f"<legend>{esc(choice_words.CHAPTERS)}</legend>{tools}<ul>{items}</ul></fieldset>")


def _sizes(document: Document, fit: DocumentFit | None) -> list[str]:
    """What each chapter takes: tokens where they were counted, words otherwise."""
    each: Sequence[int] = fit.page_tokens if fit else [len(page.text.split()) for page in document.pages]

    def size(chapter: Chapter) -> str:
        count = fmt.count(sum(each[chapter.first - 1 : chapter.last]))
        return choice_words.TOKENS.format(tokens=count) if fit else choice_words.WORDS.format(words=count)

    return [size(chapter) for chapter in document.chapters]
