"""Documents to read together: the list to tick, and what the ticked ones take of the context."""

from __future__ import annotations

from collections.abc import Sequence

from ..page import number_format as fmt
from ..page.html import CANCEL, button, esc
from ..state.collection import Weighing
from ..state.library import Entry
from ..words import page_choice as choice_words
from ..words import together as together_words
from . import context_bar


def listed(entries: Sequence[Entry], picked: Sequence[str], weighing: Weighing) -> str:
    """weighing: of the entries, in their order."""
    rows = []
    for entry, part in sorted(zip(entries, weighing.parts, strict=True),
                              key=lambda item: picked.index(item[0].id) if item[0].id in picked else len(picked)):
        off = "" if entry.state == "ready" else " disabled"
        on = " checked" if entry.id in picked else ""
        size = together_words.NOT_READY if off else choice_words.TOKENS.format(
            tokens=fmt.tokens(part.tokens, part.estimated))
        rows.append(f'<li><label><input type="checkbox" data-action="pick" data-document="{esc(entry.id)}"{on}{off}>'
                    f'<span class="tf-chapter-title">{esc(part.title)}</span>'
                    f'<span class="tf-chapter-size">{esc(size)}</span></label></li>')
    return (f"<h2>{esc(together_words.PICK_TITLE)}</h2><p>{esc(together_words.PICK_HELP)}</p>"
            f'<fieldset class="tf-chapters tf-pick"><legend class="tf-hidden">{esc(together_words.PICK)}</legend>'
            f'<ul>{"".join(rows)}</ul></fieldset>')


def verdict(weighing: Weighing) -> str:
    """Whether they fit, and if not, which of them to leave out."""
    used = fmt.tokens(sum(part.tokens for part in weighing.parts), any(part.estimated for part in weighing.parts))
    if weighing.over <= 0:
        return (f'<p class="tf-good">'
                f"{esc(together_words.FITS_TOGETHER.format(used=used, most=fmt.count(weighing.most)))}</p>")
    words = [together_words.OVER_BY.format(over=fmt.count(weighing.over))]
    words += [together_words.DROP_ONE.format(title=part.title) for part in weighing.enough[:1]]
    if not weighing.enough:
        words.append(together_words.DROP_MORE)
    return f'<p class="tf-bad">{esc(" ".join(words))}</p>'


def chosen(weighing: Weighing) -> str:
    """The bar, what it means, and what to do next."""
    drawn = fits = ""
    if weighing.parts and not weighing.most:
        drawn = f'<p class="tf-note">{esc(together_words.ROOM_UNKNOWN)}</p>'
    elif weighing.parts:
        drawn, fits = context_bar.bar(weighing.parts, weighing.most, weighing.room), verdict(weighing)
        if any(part.estimated for part in weighing.parts):
            drawn += f'<p class="tf-note">{esc(together_words.ESTIMATED)}</p>'
    read = button(together_words.READ_TOGETHER, "read-together", css="tf-primary")
    if len(weighing.parts) < 2:
        read = read.replace("<button ", "<button disabled ")
    return f'{drawn}<div class="tf-dialog-row">{fits}{read}{button(CANCEL, "leave-together")}</div>'
