"""Builds triforce_core/assets/sample/handbook.pdf, the app's handbook and first document, from docs/handbook/*.md.

    python -m docs.handbook [--output FILE]    (needs `pip install reportlab`, and only this command does)

The same sources give the same file, whenever and wherever it is built: no dates, no random ids, the fourteen fonts that
every PDF viewer has. Markdown: headings, paragraphs, lists, tables, code.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from reportlab.lib import colors
from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    PageBreak,
    PageTemplate,
    Paragraph,
    Preformatted,
    Spacer,
    Table,
    TableStyle,
)
from reportlab.platypus.tableofcontents import TableOfContents

from triforce_core.assets import HANDBOOK

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "handbook"
TITLE = "The TriForce Chat handbook"
SUBTITLE = "How long documents are read, and how to use the app"
WIDTH = A5[0] - 36 * mm
ACCENT = colors.HexColor("#3553b8")

BODY = ParagraphStyle("body", fontName="Helvetica", fontSize=10, leading=14.6, spaceAfter=6.5)
STYLES = {
    "title": ParagraphStyle("title", BODY, fontName="Helvetica-Bold", fontSize=25, leading=31, textColor=ACCENT),
    "subtitle": ParagraphStyle("subtitle", BODY, fontSize=12.5, leading=18, textColor=colors.HexColor("#555555")),
    "h1": ParagraphStyle("h1", BODY, fontName="Helvetica-Bold", fontSize=18, leading=23, spaceAfter=12,
                         textColor=ACCENT),
    "h2": ParagraphStyle("h2", BODY, fontName="Helvetica-Bold", fontSize=12, leading=16, spaceBefore=9, spaceAfter=4,
                         keepWithNext=1),
    "item": ParagraphStyle("item", BODY, leftIndent=13, bulletIndent=2, spaceAfter=3.5),
    "cell": ParagraphStyle("cell", BODY, fontSize=9, leading=12.4, spaceAfter=0),
    "code": ParagraphStyle("code", BODY, fontName="Courier", fontSize=8.6, leading=12, leftIndent=6, spaceAfter=8,
                           backColor=colors.HexColor("#f1f3f8"), borderPadding=3),
    "entry": ParagraphStyle("entry", BODY, spaceAfter=1.5),
}
LINES = TableStyle([("LINEBELOW", (0, 0), (-1, -1), 0.4, colors.HexColor("#c9cfdd")),
                    ("LINEBELOW", (0, 0), (-1, 0), 0.9, ACCENT), ("VALIGN", (0, 0), (-1, -1), "TOP"),
                    ("LEFTPADDING", (0, 0), (-1, -1), 3), ("RIGHTPADDING", (0, 0), (-1, -1), 3)])


class Handbook(BaseDocTemplate):
    """Numbers the pages, and tells outline and contents where each heading came to stand."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), pagesize=A5, leftMargin=18 * mm, rightMargin=18 * mm, topMargin=17 * mm,
                         bottomMargin=19 * mm, title=TITLE, author="TriForce Chat", invariant=1)
        frame = Frame(self.leftMargin, self.bottomMargin, WIDTH, A5[1] - 36 * mm, 0, 0, 0, 0)
        self.addPageTemplates([PageTemplate("page", [frame], onPage=_number)])

    def afterFlowable(self, flowable: Flowable) -> None:
        level = {"h1": 0, "h2": 1}.get(getattr(getattr(flowable, "style", None), "name", ""))
        if level is None:
            return
        text = flowable.getPlainText()  # type: ignore[attr-defined]
        key = f"place-{self.seq.nextf('place')}"
        self.canv.bookmarkPage(key)
        self.canv.addOutlineEntry(text, key, level, closed=True)
        if level == 0:
            self.notify("TOCEntry", (0, escape(text), self.page, key))

    def beforeDocument(self) -> None:
        self.seq.reset("place")  # the contents take a second pass


def _number(canvas: Canvas, document: BaseDocTemplate) -> None:
    canvas.setFont("Helvetica", 8.5)
    canvas.setFillColor(colors.HexColor("#777777"))
    canvas.drawCentredString(A5[0] / 2, 10 * mm, str(canvas.getPageNumber()))


def build(path: Path) -> None:
    contents = TableOfContents(levelStyles=[STYLES["entry"]], dotsMinLevel=0)
    story: list[Flowable] = [Spacer(1, 42 * mm), Paragraph(TITLE, STYLES["title"]), Spacer(1, 4 * mm),
                             Paragraph(SUBTITLE, STYLES["subtitle"]), PageBreak(), contents]
    for number, source in enumerate(sorted(SOURCES.glob("*.md")), start=1):
        story.append(PageBreak())
        story += flowables(source.read_text(encoding="utf-8"), number)
    Handbook(path).multiBuild(story)


def flowables(markdown: str, chapter: int) -> Iterator[Flowable]:
    """One chapter. Raises ValueError at Markdown that is not laid out here, so that nothing is lost unseen."""
    tokens = MarkdownIt("commonmark", {"typographer": True}).enable(["table", "smartquotes"]).parse(markdown)
    lists: list[int | None] = []  # of each open list the next number, None: bullets
    rows: list[list[Paragraph]] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else token
        if token.type == "heading_open":
            words = _inline(following)
            yield Paragraph(f"{chapter}. {words}" if token.tag == "h1" else words, STYLES[token.tag])
            at += 2
        elif token.type == "paragraph_open":
            if not lists:
                yield Paragraph(_inline(following), BODY)
            elif lists[-1] is None:
                yield Paragraph(_inline(following), STYLES["item"], bulletText="\u2022")
            else:
                yield Paragraph(_inline(following), STYLES["item"], bulletText=f"{lists[-1]}.")
                lists[-1] += 1
            at += 2
        elif token.type in ("bullet_list_open", "ordered_list_open"):
            lists.append(None if token.type == "bullet_list_open" else 1)
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            lists.pop()
        elif token.type == "fence":
            yield Preformatted(token.content.rstrip("\n"), STYLES["code"])
        elif token.type == "table_open":
            rows = []
        elif token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            words = _inline(following)
            rows[-1].append(Paragraph(f"<b>{words}</b>" if token.type == "th_open" else words, STYLES["cell"]))
            at += 2
        elif token.type == "table_close":
            yield _table(rows)
        elif token.type not in ("list_item_open", "list_item_close", "thead_open", "thead_close", "tbody_open",
                                "tbody_close", "tr_close"):
            raise ValueError(f"the handbook's builder does not lay out {token.type!r}")
        at += 1


def _inline(token: Token) -> str:
    """The words of a paragraph in reportlab's own markup."""
    marks = {"strong_open": "<b>", "strong_close": "</b>", "em_open": "<i>", "em_close": "</i>", "softbreak": " "}
    parts = []
    for child in token.children or ():
        if child.type == "text":
            parts.append(_printable(child.content))
        elif child.type == "code_inline":
            parts.append(f'<font face="Courier">{_printable(child.content)}</font>')
        elif child.type in marks:
            parts.append(marks[child.type])
        else:
            raise ValueError(f"the handbook's builder does not lay out {child.type!r}")
    return "".join(parts)


def _printable(words: str) -> str:
    missing = {letter for letter in words if not letter.encode("cp1252", "ignore")}
    if missing:
        raise ValueError(f"the handbook's fonts have no {' '.join(sorted(missing))}: it would be a black box")
    return escape(words, quote=False)


def _table(rows: Sequence[Sequence[Paragraph]]) -> Table:
    """The first column as wide as its longest cell wants, at most two fifths."""
    wanted: Any = max(row[0].minWidth() if " " in row[0].text else row[0].minWidth() + 2 for row in rows)
    first = min(max(wanted + 8, WIDTH * 0.27), WIDTH * 0.42)
    widths = [first, *[(WIDTH - first) / (len(rows[0]) - 1)] * (len(rows[0]) - 1)]
    return Table(rows, colWidths=widths, style=LINES, repeatRows=1, spaceAfter=9, hAlign="LEFT")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.handbook", description="Build the handbook's PDF.")
    parser.add_argument("--output", type=Path, default=HANDBOOK, metavar="FILE")
    build(parser.parse_args().output)


if __name__ == "__main__":
    main()
