"""One text with all that is easily lost, printed to every format: each gives it back character by character."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.documents.hostile import OFFICE, epub, pdf, stream, zipped
from triforce_core.documents import read_document

TITLE = "The lamp of Wick"
FORMULAS = ("Einstein wrote E = mc^{2} in 1905; a spark of 3 × 10^{−5} J made H_{2}O glow.",
            "It held Ca^{2+} and the isotope ^{14}C, and x_{i}^{2} was half of x^{n+1}.",
            "The energy 𝐸 of a mass 𝑚 is 𝐸 = 𝑚𝑐^{2}. The lamp burns 🔥 bright.")
TABLE = (("Month", "Oil", "Wick", "Keeper"), ("May", "", "12.5", "Aldo"), ("June", "84.50", "", "Ruth"),
         ("July", "31.00", "9.5", ""))
CODE = "def burn(oil):\n    if oil > 0:\n        return oil - 1\n    return 0"
SCRIPTS = ("המגדלור נבנה בשנת 1905 ליד Wick והוא דולק.", "بني المنار سنة 1905 على الساحل قرب Wick للسفن.",
           "灯塔建于一九〇五年，看守人每天晚上点灯，早上再下来写账本，记下夜里用了多少油，看见\n了哪些船，船只因此平安回家。")
LEFT = ("Every evening the keeper went up\nthe stairs of the tower to light\nthe lamp, and every morning he\n"
        "came down again to write into\nthe ledger how much of the oil\nhad gone, and what he had seen.")
RIGHT = ("In the winter of that year the\nsea froze over, and no ship came\nfor nine weeks; the oil that he\n"
         "had left was hardly enough for\nthe nights, which were long, so\nhe burned half of it.[1] It lasted.")
NOTE = "The ledger, page 3."
WANTED = "\n\n".join([
    TITLE, "Einstein wrote E = mc^2 in 1905; a spark of 3 × 10^−5 J made H_2O glow.",
    "It held Ca^2+ and the isotope 14C, and x_i^2 was half of x^(n+1).", FORMULAS[2].replace("^{2}", "^2"),
    "Month | Oil | Wick | Keeper\nMay | | 12.5 | Aldo\nJune | 84.50 | | Ruth\nJuly | 31.00 | 9.5", CODE, *SCRIPTS[:2],
    SCRIPTS[2].replace("\n", ""), LEFT.replace("\n", " "), RIGHT.replace("\n", " ").replace("[1]", ""), f"[1] {NOTE}"])
RAISED = re.compile(r"([\^_])\{(.*?)\}")


def tagged(text: str) -> str:
    return RAISED.sub(lambda found: "<{0}>{1}</{0}>".format("sup" if found[1] == "^" else "sub", found[2]), text)


def web_page(style: str = "", mark: str = '<sup><a id="r" href="#n">1</a></sup>') -> str:
    rows = ("".join(f"<td>{cell}</td>" for cell in row) for row in TABLE)
    return (
        f'<html xmlns="http://www.w3.org/1999/xhtml"><head><meta charset="utf-8"/><title>{TITLE}</title>'
        f"<style>{style}</style></head><body><h1>{TITLE}</h1>"
        + "".join(f"<p>{tagged(text)}</p>\n" for text in FORMULAS)
        + f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table><pre>{html.escape(CODE)}</pre>"
        f'<p dir="rtl">{SCRIPTS[0]}</p><p dir="rtl">{SCRIPTS[1]}</p><p>{SCRIPTS[2]}</p>'
        f'<div class="columns"><p>{LEFT}</p><p>{RIGHT.replace("[1]", mark)}</p></div>'
        f'<aside id="n" role="doc-footnote"><sup>1</sup> {NOTE}</aside></body></html>')


def written_html() -> bytes:
    return web_page().encode()


def written_epub() -> bytes:
    return epub({"a.xhtml": web_page()})


def written_markdown() -> bytes:
    rows = [f"| {' | '.join(row)} |" for row in TABLE]
    table = "\n".join([rows[0], "|---|---|---|---|", *rows[1:]])
    return "\n\n".join([f"# {TITLE}", *map(tagged, FORMULAS), table, f"```python\n{CODE}\n```", *SCRIPTS, LEFT,
                        RIGHT.replace("[1]", "[^1]"), f"[^1]: {NOTE}"]).encode()


def written_docx() -> bytes:
    def runs(text: str) -> str:
        parts = re.split(r"([\^_]\{.*?\}|\[1\])", text.replace("\n", "" if "灯" in text else " "))
        return "".join(map(run, parts))

    def run(part: str) -> str:
        raised = RAISED.fullmatch(part)
        if part == "[1]":
            return '<w:r><w:footnoteReference w:id="2"/></w:r>'
        place = {"^": "superscript", "_": "subscript"}[raised[1]] if raised else ""
        return (f"<w:r>{f'<w:rPr><w:vertAlign w:val={place!r}/></w:rPr>' if place else ''}"
                f'<w:t xml:space="preserve">{html.escape(raised[2] if raised else part)}</w:t></w:r>')

    def paragraph(text: str, properties: str = "") -> str:
        return f"<w:p><w:pPr>{properties}</w:pPr>{runs(text)}</w:p>"

    fixed = '<w:r><w:rPr><w:rFonts w:ascii="Courier New"/></w:rPr><w:t xml:space="preserve">{}</w:t></w:r>'
    rows = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in TABLE)
    body = (paragraph(TITLE, '<w:pStyle w:val="Heading1"/>') + "".join(map(paragraph, FORMULAS))
            + f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
            + "".join(f"<w:p>{fixed.format(html.escape(line))}</w:p>" for line in CODE.split("\n"))
            + "".join(paragraph(text, "<w:bidi/>" * (text < "灯")) for text in SCRIPTS)
            + paragraph(LEFT) + paragraph(RIGHT) + '<w:sectPr><w:cols w:num="2"/></w:sectPr>')
    note = f'<w:footnotes xmlns:w="{OFFICE}"><w:footnote w:id="2">{paragraph(NOTE)}</w:footnote></w:footnotes>'
    return zipped({
        "[Content_Types].xml": "<Types/>", "word/footnotes.xml": note,
        "word/_rels/document.xml.rels": '<R><Relationship Id="a" Type="x/footnotes" Target="footnotes.xml"/></R>',
        "word/document.xml": f'<w:document xmlns:w="{OFFICE}"><w:body>{body}</w:body></w:document>'})


class Sheet:
    """A page of a PDF in a font that is not embedded and says by its /ToUnicode what each glyph means; a line of a
    script from right to left is drawn as it is seen, its last letter first."""

    def __init__(self) -> None:
        self._glyphs = dict.fromkeys(" ")
        self._drawn: list[bytes] = []

    def line(self, x: float, y: float, text: str, size: float = 11) -> None:
        """Draw text with its raised and lowered parts, as browsers set them."""
        for part in re.split(r"([\^_]\{.*?\})", text):
            found = RAISED.fullmatch(part)
            words, scale, rise = (found[2], 5 / 6, 0.4 if found[1] == "^" else -0.27) if found else (part, 1.0, 0.0)
            self._glyphs.update(dict.fromkeys(words))
            codes = "".join(f"{self._code(letter):04x}" for letter in words)
            self._drawn.append(f"BT /F1 {size * scale} Tf {x} {y + rise * size} Td <{codes}> Tj ET".encode())
            x += sum(map(width, words)) * size * scale / 1000

    def code(self, x: float, y: float, text: str) -> None:
        self._drawn.append(f"BT /F2 10 Tf {x} {y} Td <{text.encode().hex()}> Tj ET".encode())

    def _code(self, letter: str) -> int:
        return list(self._glyphs).index(letter) + 1

    def bytes(self) -> bytes:
        known = [(self._code(letter), letter) for letter in self._glyphs]
        meanings = "".join(f"<{code:04x}> <{letter.encode('utf-16-be').hex()}>\n" for code, letter in known)
        widths = "".join(f"{code}[{width(letter)}]" for code, letter in known)
        unicodes = ("/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /A def /CMapType 2 def\n"
                    "1 begincodespacerange <0000> <ffff> endcodespacerange\n"
                    f"{len(known)} beginbfchar\n{meanings}endbfchar\nendcmap end end")
        return pdf([
            b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R/F2 9 0 R>>>>"
            b">>", stream(b"\n".join(self._drawn)),
            b"<</Type/Font/Subtype/Type0/BaseFont/Lamp/Encoding/Identity-H/DescendantFonts[6 0 R]/ToUnicode 8 0 R>>",
            b"<</Type/Font/Subtype/CIDFontType2/BaseFont/Lamp/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)"
            b"/Supplement 0>>/FontDescriptor 7 0 R/DW 500/W[%s]>>" % widths.encode(),
            b"<</Type/FontDescriptor/FontName/Lamp/Flags 4/FontBBox[0 -200 1000 900]/ItalicAngle 0/Ascent 900/Descent "
            b"-200/CapHeight 700/StemV 80>>",
            stream(unicodes.encode()), b"<</Type/Font/Subtype/Type1/BaseFont/Courier>>"])


def width(letter: str) -> int:
    return 1000 if letter > "\u2e80" else 300 if letter in " .,;il" else 500


def as_seen(text: str) -> str:
    """Return a line from right to left as it stands on paper from left to right."""
    return re.sub(r"[\dA-Za-z]+", lambda found: found[0][::-1], text)[::-1]


def written_pdf() -> bytes:
    sheet, y = Sheet(), 690.0
    sheet.line(72, 730, TITLE, 18)
    for text in FORMULAS:
        sheet.line(72, y, text)
        y -= 28
    for row in TABLE:
        for x, cell in zip((72, 180, 270, 360), row, strict=True):
            sheet.line(x, y, cell)
        y -= 15
    y -= 20
    for line in CODE.split("\n"):
        sheet.code(72 + 6 * (len(line) - len(line.lstrip())), y, line.lstrip())
        y -= 13
    for text in SCRIPTS[:2]:
        y -= 20
        sheet.line(540 - sum(map(width, text)) * 11 / 1000, y, as_seen(text))
    y -= 28
    for line in SCRIPTS[2].split("\n"):
        sheet.line(72, y, line)
        y -= 14
    y -= 14
    for x, column in ((72, LEFT), (330, RIGHT)):
        for number, line in enumerate(column.split("\n")):
            sheet.line(x, y - 14 * number, line.replace("[1]", "^{1}"))
    sheet.line(72, 72, "^{1} " + NOTE, 8)
    return sheet.bytes()


@pytest.mark.parametrize(("name", "written"), [
    ("a.html", written_html), ("a.epub", written_epub), ("a.md", written_markdown), ("a.docx", written_docx),
    ("a.pdf", written_pdf)])
def test_every_format_gives_the_text_back(tmp_path: Path, name: str, written: Callable[[], bytes]) -> None:
    (tmp_path / name).write_bytes(written())
    document = read_document(tmp_path / name)
    assert "\n\n".join(page.text for page in document.pages) == WANTED
    assert not document.warnings


def test_glyphs_without_a_meaning_are_no_notes(tmp_path: Path) -> None:
    sheet = Sheet()
    for number in range(9):
        sheet.line(72, 700 - 14 * number, LEFT.split("\n")[number % 6] + LEFT.split("\n")[5 - number % 6])
    sheet.line(72, 90, "\x0e\x0f The ledger.", 8)
    (tmp_path / "a.pdf").write_bytes(sheet.bytes())
    document = read_document(tmp_path / "a.pdf")
    assert document.reader.startswith("pypdfium2") and document.pages[0].text.endswith("\n\nThe ledger.")


def boxes(text: str = WANTED + TITLE) -> bytes:
    """Return a font in which every letter of a text is a box, so that no machine lacks one."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    letters = sorted({*text} - {"\n"})
    names = {ord(letter): f"u{ord(letter):05X}" for letter in letters}
    shapes = {}
    for name, letter in zip(names.values(), letters, strict=True):
        pen = TTGlyphPen(None)
        pen.moveTo((50, 0))
        for corner in ((50, 600), (width(letter) - 50, 600), (width(letter) - 50, 0)):
            pen.lineTo(corner)
        pen.closePath()
        shapes[name] = pen.glyph()
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", *names.values()])
    font.setupCharacterMap(names)
    font.setupGlyf({".notdef": TTGlyphPen(None).glyph(), **shapes})
    widths = {name: (width(chr(code)), 50) for code, name in names.items()}
    font.setupHorizontalMetrics({".notdef": (500, 50), **widths})
    font.setupHorizontalHeader(ascent=900, descent=-200)
    font.setupNameTable({"familyName": "Boxes", "styleName": "Regular"})
    font.setupOS2(sTypoAscender=900, sTypoDescender=-200, usWinAscent=900, usWinDescent=200)
    font.setupPost()
    out = io.BytesIO()
    font.save(out)
    return out.getvalue()



@pytest.mark.browser
def test_what_a_browser_prints_gives_the_text_back(tmp_path: Path, chromium) -> None:  # type: ignore[no-untyped-def]
    style = (f"@font-face {{font-family: Boxes; src: url(data:font/ttf;base64,{base64.b64encode(boxes()).decode()})}}"
             "body {font: 11pt Boxes} pre {font: 10pt monospace} td {padding-right: 4em} aside {font-size: 8pt}"
             ".columns {columns: 2; text-align: left}")
    page = chromium.new_page()
    whole = SCRIPTS[2].replace("\n", "")  # the browser prints a line break between two Han as a blank
    page.set_content(web_page(style, mark="<sup>1</sup>").replace(SCRIPTS[2], whole))
    page.evaluate("document.fonts.ready")
    (tmp_path / "a.pdf").write_bytes(page.pdf(format="Letter"))
    page.close()
    document = read_document(tmp_path / "a.pdf")
    assert "\n\n".join(page.text for page in document.pages) == WANTED
