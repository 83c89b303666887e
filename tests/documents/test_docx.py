"""DOCX: what stands beside the main text, what is there twice, what is hidden or deleted, what styles say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import hostile
from tests.documents.hostile import paragraph
from triforce_core.documents import Document, read_document
from triforce_core.errors import DocumentTooLargeError

SPACES = (f'xmlns:w="{hostile.OFFICE}" xmlns:r="http://r" xmlns:mc="http://mc" xmlns:v="urn:v" xmlns:a="http://a" '
          'xmlns:m="http://m"')
SECRET, BEGINS, WIDE = "<w:rStyle w:val='Secret'/>", "<w:vMerge w:val='restart'/>", "<w:gridSpan w:val='2'/>"
KINDS = {"footnotes.xml": "footnotes", "endnotes.xml": "endnotes", "comments.xml": "comments"}


def run(words: str, properties: str = "") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t xml:space='preserve'>{words}</w:t></w:r>"


def part(root: str, content: str) -> str:
    return f"<w:{root} {SPACES}>{content}</w:{root}>"


def read(folder: Path, body: str, parts: dict[str, str | bytes] | None = None) -> Document:
    """parts: beside word/document.xml; each is named in its relations by the beginning of its name."""
    parts = parts or {}
    links = "".join(
        f'<Relationship Id="{name}" Type="http://x/{KINDS.get(name, name.rstrip("0123456789.xml"))}" Target="{name}"/>'
        for name in parts)
    whole: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>", "word/document.xml": part("document", f"<w:body>{body}</w:body>"),
        "word/_rels/document.xml.rels": f"<Relationships>{links}</Relationships>"}
    (folder / "a.docx").write_bytes(hostile.zipped(whole | {f"word/{name}": data for name, data in parts.items()}))
    return read_document(folder / "a.docx")


def text(folder: Path, body: str, parts: dict[str, str | bytes] | None = None) -> str:
    return "\f".join(page.text for page in read(folder, body, parts).pages)


def test_notes_behind_their_paragraph_and_at_the_end(tmp_path: Path) -> None:
    body = (f"<w:p>{run('In RFC 793')}<w:r><w:footnoteReference w:id='2'/></w:r>{run('. Next')}"
            f"<w:r><w:endnoteReference w:id='2'/></w:r>{run('.')}</w:p>" + paragraph("After."))
    notes: dict[str, str | bytes] = {
        "footnotes.xml": part("footnotes", "<w:footnote w:type='separator' w:id='0'><w:p/></w:footnote><w:footnote "
                              f"w:id='2'>{paragraph('See it.', '<w:r><w:footnoteRef/></w:r>')}{paragraph('Twice.')}"
                              "</w:footnote>"),
        "endnotes.xml": part("endnotes", f"<w:endnote w:id='2'>{paragraph('The end.')}</w:endnote>")}
    assert text(tmp_path, body, notes) == "In RFC 793. Next.\n\n[1] See it. Twice.\n\nAfter.\n\n[i] The end."
    document = read(tmp_path, body, notes | {"footnotes.xml": "<w:footnotes"})
    assert document.warnings == ("The footnotes of a.docx are damaged: some or all of them are missing.",)


def test_comments_deletions_and_hidden_text_are_counted(tmp_path: Path) -> None:
    hidden = part("styles", "<w:style w:styleId='Secret'><w:rPr><w:vanish/></w:rPr></w:style>")
    unseen = run("not seen", "<w:vanish/>") + run("nor this", SECRET)
    body = (f"<w:p><w:pPr><w:rPr><w:vanish/><w:del/></w:rPr></w:pPr>{run('Kept.')}"
            f"<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins>{run(' New.')}</w:ins>"
            f"<w:moveFrom>{run('moved')}</w:moveFrom>{unseen}<w:r><a:blip/></w:r></w:p>")
    comment = part("comments", f"<w:comment w:id='1'>{paragraph('Hm.')}</w:comment>")
    document = read(tmp_path, body, {"comments.xml": comment, "styles.xml": hidden})
    assert document.pages[0].text == "Kept. New." and not document.warnings
    assert document.notes == ("1 picture or other object was not read.", "1 comment was left out.",
                              "1 deletion that was tracked was left out.", "4 words that the file hides were left out.")


def test_one_of_several_versions_and_boxes_once(tmp_path: Path) -> None:
    box = f"<w:txbxContent>{paragraph('Boxed.')}</w:txbxContent>"
    both = (f"<mc:AlternateContent><mc:Choice Requires='wps'>{box}</mc:Choice><mc:Fallback><v:textbox>{box}"
            "</v:textbox></mc:Fallback></mc:AlternateContent>")
    assert text(tmp_path, f"<w:p>{run('Before ')}<w:r>{both}</w:r>{run('after.')}</w:p>") == "Before after.\n\nBoxed."
    only = "<mc:AlternateContent><mc:Choice Requires='x'/>"
    only += "<mc:Fallback><w:t>Fallen back.</w:t></mc:Fallback></mc:AlternateContent>"
    assert text(tmp_path, f"<w:p><w:r>{only}</w:r></w:p>") == "Fallen back."


def test_a_drop_cap_in_a_box_leaves_what_stands_around_it(tmp_path: Path) -> None:
    box = f"<w:txbxContent><w:p><w:pPr><w:framePr w:dropCap='drop'/></w:pPr>{run('T')}</w:p></w:txbxContent>"
    assert text(tmp_path, f"<w:p><w:r>{box}</w:r>{run('After.')}</w:p>") == "After.\n\nT"


def test_a_table_behind_a_drop_cap_keeps_its_cells(tmp_path: Path) -> None:
    letter = f"<w:p><w:pPr><w:framePr w:dropCap='drop'/></w:pPr>{run('T')}</w:p>"
    table = f"<w:tbl><w:tr><w:tc>{paragraph('one')}</w:tc><w:tc>{paragraph('two')}</w:tc></w:tr></w:tbl>"
    assert text(tmp_path, letter + table) == "T\n\none | two"


def test_embedded_parts(tmp_path: Path) -> None:
    names = ("c.html", "n.docx", "m.mht", "x.rtf")
    body = paragraph("Before.") + "".join(f"<w:altChunk r:id='{name}'/>" for name in names)
    document = read(tmp_path, body, {
        "c.html": "<html><h2>Chunk</h2><p>From a page.</p></html>", "n.docx": hostile.docx(paragraph("Nested.")),
        "m.mht": "MIME-Version: 1.0\nContent-Type: text/html; charset=shift_jis\n\n<p>Маяк.</p>".encode("shift_jis"),
        "x.rtf": "{\\rtf1 lost}"})
    assert document.pages[0].text == "Before.\n\nChunk\n\nFrom a page.\n\nNested.\n\nМаяк."
    assert document.warnings == ("An embedded part (word/x.rtf) could not be read: its text is missing.",)


def test_an_archive_in_the_archive_has_limits_too(tmp_path: Path) -> None:
    bomb = hostile.zipped({"word/document.xml": bytes(100_000_000)})
    inner = hostile.docx("<w:altChunk/>" + paragraph("Deep."))
    document = read(tmp_path, paragraph("Before.") + "<w:altChunk r:id='n.docx'/>", {"n.docx": inner})
    assert document.pages[0].text == "Before.\n\nDeep." and len(document.warnings) == 1
    with pytest.raises(DocumentTooLargeError):
        read(tmp_path, "<w:altChunk r:id='n.docx'/>", {"n.docx": bomb})


def test_headers_and_footers_once(tmp_path: Path) -> None:
    parts: dict[str, str | bytes] = {
        "header1.xml": part("hdr", paragraph("A letterhead")), "header2.xml": part("hdr", paragraph("A letterhead")),
        "header3.xml": part("hdr", paragraph("The whale")), "footer1.xml": part("ftr", paragraph("Page 1 of 3")),
        "footer2.xml": part("ftr", paragraph("Draft only"))}
    assert text(tmp_path, paragraph("The whale swims."), parts) == "A letterhead\n\nThe whale swims.\n\nDraft only"


def test_headings_by_style_in_any_language(tmp_path: Path) -> None:
    styles = part("styles", "<w:style w:styleId='berschrift1'><w:name w:val='heading 1'/></w:style>"
                  "<w:style w:styleId='X'><w:basedOn w:val='berschrift1'/></w:style>"
                  "<w:style w:styleId='O'><w:pPr><w:outlineLvl w:val='1'/></w:pPr></w:style>"
                  "<w:style w:styleId='Titel'><w:name w:val='Title'/></w:style>")
    body = "".join(paragraph(words, f"<w:pPr><w:pStyle w:val='{style}'/></w:pPr>") for words, style in
                   (("All", "Titel"), ("One", "berschrift1"), ("Sub", "O"), ("Two", "X")))
    body += paragraph("Own", "<w:pPr><w:outlineLvl w:val='0'/></w:pPr>") + paragraph("Plain.")
    document = read(tmp_path, body, {"styles.xml": styles})
    assert [(chapter.title, chapter.level) for chapter in document.chapters] == [
        ("One", 1), ("Sub", 2), ("Two", 1), ("Own", 1)]
    assert document.pages[0].text == "All\n\nOne\n\nSub\n\nTwo\n\nOwn\n\nPlain."


def test_lists_count_as_they_say(tmp_path: Path) -> None:
    def level(depth: int, kind: str, look: str) -> str:
        return (f"<w:lvl w:ilvl='{depth}'><w:start w:val='1'/>"
                f"<w:numFmt w:val='{kind}'/><w:lvlText w:val='{look}'/></w:lvl>")

    numbering = part("numbering", f"<w:abstractNum w:abstractNumId='0'>{level(0, 'decimal', '%1.')}"
                     f"{level(1, 'lowerLetter', '%1.%2)')}</w:abstractNum><w:abstractNum w:abstractNumId='1'>"
                     f"{level(0, 'bullet', '')}</w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>"
                     "<w:num w:numId='2'><w:abstractNumId w:val='1'/><w:lvlOverride w:ilvl='0'><w:lvl w:ilvl='0'>"
                     "<w:numFmt w:val='decimal'/></w:lvl></w:lvlOverride></w:num>")

    def item(words: str, key: int, depth: int = 0) -> str:
        return paragraph(words, f"<w:pPr><w:numPr><w:ilvl w:val='{depth}'/><w:numId w:val='{key}'/></w:numPr></w:pPr>")

    body = item("one", 1) + item("a", 1, 1) + item("b", 1, 1) + item("two", 1) + item("a", 1, 1) + paragraph("Then.")
    body += item("dot", 2) + item("none", 0)
    assert text(tmp_path, body, {"numbering.xml": numbering}) == (
        "1. one\n1.a) a\n1.b) b\n2. two\n2.a) a\n\nThen.\n\n- dot\n\nnone")


def test_tables_with_merged_cells_and_single_boxes(tmp_path: Path) -> None:
    def cell(*words: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr>{''.join(map(paragraph, words)) or '<w:p/>'}</w:tc>"

    table = (f"<w:tbl><w:tr>{cell('Kind')}{cell('Size')}{cell('Age')}</w:tr>"
             f"<w:tr>{cell('Blue', properties=BEGINS)}{cell('1')}{cell('2', 'm')}</w:tr>"
             f"<w:tr>{cell(properties='<w:vMerge/>')}{cell('3', properties=WIDE)}</w:tr></w:tbl>")
    assert text(tmp_path, paragraph("Before.") + table + paragraph("After.")) == (
        "Before.\n\nKind | Size | Age\nBlue | 1 | 2 m\nBlue | 3\n\nAfter.")
    assert text(tmp_path, f"<w:tbl><w:tr>{cell('One.', 'Two.')}</w:tr></w:tbl>") == "One.\n\nTwo."


def test_characters(tmp_path: Path) -> None:
    raised = "<w:vertAlign w:val='superscript'/>"
    body = (f"<w:p><w:pPr><w:framePr w:dropCap='drop'/></w:pPr>{run('T')}</w:p>"
            f"<w:p>{run('he co')}<w:r><w:softHyphen/></w:r>{run('op is 2')}{run('3', raised)}{run('0', raised)}"
            f"{run(' bytes')}{run(', the 1')}{run('st', raised)}<w:r><w:t> of </w:t><w:sym "
            "w:font='Symbol' w:char='F061'/><w:t>.</w:t></w:r><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>")
    assert text(tmp_path, body) == "The coop is 2^30 bytes, the 1st of α."
    power = "<m:sSup><m:e><m:t>x</m:t></m:e><m:sup><m:t>2</m:t></m:sup></m:sSup>"
    assert text(tmp_path, f"<w:p><m:oMath>{power}</m:oMath></w:p>") == "x^2"


def test_the_main_part_is_the_one_that_the_package_names(tmp_path: Path) -> None:
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    style = part("styles", "<w:style w:styleId='X'><w:rPr><w:vanish/></w:rPr></w:style>")
    body = paragraph("One", "<w:pPr><w:pStyle w:val='X'/></w:pPr>") + paragraph("The keeper.")
    for name, target in (("word/document2.xml", "/word/document2.xml"), ("a/b/main.xml", "a/b/main.xml")):
        folder = name.rpartition("/")[0]
        (tmp_path / "a.docx").write_bytes(hostile.zipped({
            "[Content_Types].xml": f'<Types><Override PartName="/{name}" ContentType="{kind}"/></Types>',
            "_rels/.rels": f'<Relationships><Relationship Id="r" Type="http://x/officeDocument" Target="{target}"/>'
                           "</Relationships>",
            name: part("document", f"<w:body>{body}</w:body>"), f"{folder}/s.xml": style,
            f"{folder}/_rels/{name.rpartition('/')[2]}.rels":
                '<Relationships><Relationship Id="s" Type="http://x/styles" Target="s.xml"/></Relationships>'}))
        assert read_document(tmp_path / "a.docx").pages[0].text == "The keeper."


@pytest.mark.parametrize("mark", ["del", "moveFrom"])
def test_a_deleted_paragraph_mark_divides_nothing(tmp_path: Path, mark: str) -> None:
    gone = f"<w:pPr><w:rPr><w:{mark}/></w:rPr></w:pPr>"
    assert text(tmp_path, paragraph("One", gone) + paragraph(" two", gone) + paragraph(" three.")) == "One two three."
    cells = f"<w:tbl><w:tr><w:tc>{paragraph('a', gone)}</w:tc><w:tc>{paragraph('b')}</w:tc></w:tr></w:tbl>"
    assert text(tmp_path, paragraph("Before", gone) + cells + paragraph("After.")) == "Before\n\na | b\n\nAfter."
    deleted = f"<w:p>{gone}<w:del>{run('x')}</w:del></w:p>"
    assert text(tmp_path, deleted + paragraph("Kept.")) == "Kept."


def test_a_reading_stands_behind_its_base(tmp_path: Path) -> None:
    ruby = f"<w:r><w:ruby><w:rt>{run('とう')}</w:rt><w:rubyBase>{run('灯')}</w:rubyBase></w:ruby></w:r>"
    assert text(tmp_path, f"<w:p>{ruby}{run('の人')}</w:p>") == "灯 (とう)の人"


def test_formulas_stand_on_a_line(tmp_path: Path) -> None:
    def t(words: str, tag: str = "e") -> str:
        return f"<m:{tag}><m:r><m:t>{words}</m:t></m:r></m:{tag}>"

    for markup, expected in (
        (f"<m:sSubSup>{t('x')}{t('1', 'sub')}{t('2', 'sup')}</m:sSubSup>", "x_1^2"),
        (f"<m:f>{t('a+b', 'num')}{t('2', 'den')}</m:f>", "(a+b)/2"),
        (f"<m:rad>{t('3', 'deg')}{t('x+1')}</m:rad>", "^3√(x+1)"), (f"<m:rad><m:deg/>{t('x')}</m:rad>", "√x"),
        (f"<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr>{t('i=1', 'sub')}{t('n', 'sup')}{t('i')}</m:nary>",
         "∑_(i=1)^n i"),
        (f"<m:sSup><m:e><m:d>{t('a+b')}</m:d></m:e>{t('2', 'sup')}</m:sSup>", "(a+b)^2"),
        (f"<m:m><m:mr>{t('1')}{t('0')}</m:mr><m:mr>{t('0')}{t('1')}</m:mr></m:m>", "1 0; 0 1"),
        (f"<m:func>{t('sin', 'fName')}{t('x')}</m:func>", "sin x"),
    ):
        body = f"<w:p>{run('So ')}<m:oMath>{markup}</m:oMath>{run(' it is.')}</w:p>"
        assert text(tmp_path, body) == f"So {expected} it is."


def test_formulas_that_stand_apart_do_so_on_a_line(tmp_path: Path) -> None:
    def formula(markup: str) -> str:
        return f"<m:oMath><m:r><m:t>{markup}</m:t></m:r></m:oMath>"

    half = "<m:f><m:num><m:r><m:t>a</m:t></m:r></m:num><m:den><m:r><m:t>b</m:t></m:r></m:den></m:f>"
    square = "<m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    for markup, expected in (
        (f"<m:oMath><m:r><m:t>E=m</m:t></m:r>{square}{half}<m:r><m:t>k</m:t></m:r></m:oMath>", "E=mc^2 a/b k"),
        (f"<m:oMath>{square}<m:r><m:t>+(</m:t></m:r>{half}<m:r><m:t>)</m:t></m:r></m:oMath>", "c^2+(a/b)"),
        (f"<m:oMath>{square}</m:oMath><m:oMath>{half}</m:oMath>{formula('x')}{run(', and')}", "c^2 a/b x, and"),
        (f"<m:oMathPara>{formula('x=1')}{formula('y=2')}</m:oMathPara>", "x=1\ny=2"),
    ):
        assert text(tmp_path, f"<w:p>{run('So ')}{markup}{run(' it is.')}</w:p>") == f"So {expected} it is."
    assert text(tmp_path, f"<w:p>{run('So')}<m:oMathPara>{formula('x=1')}</m:oMathPara>{run('it is.')}</w:p>") == (
        "So x=1 it is.")


def test_raised_by_a_style_and_lowered(tmp_path: Path) -> None:
    styles = part("styles", "<w:style w:styleId='Up'><w:rPr><w:vertAlign w:val='superscript'/></w:rPr></w:style>")
    low = "<w:vertAlign w:val='subscript'/>"
    up = "<w:rStyle w:val='Up'/>"
    body = (f"<w:p>{run('mc')}{run('2', up)}{run(' of told')}{run('7', up)}{run(' with x')}{run('1', low)}{run(', H')}"
            f"{run('2', low)}{run('O')}</w:p>")
    assert text(tmp_path, body, {"styles.xml": styles}) == "mc^2 of told^7 with x_1, H_2O"


def test_code_keeps_its_lines_and_indentation(tmp_path: Path) -> None:
    named = part("styles", "<w:style w:styleId='S'><w:name w:val='Source Code'/></w:style>")
    lines = ["def keeper(x):", "    if x:", "", "\treturn  x * 2"]
    expected = "Example:\n\ndef keeper(x):\n    if x:\n\n    return  x * 2\n\nEnd."
    for properties, font in (("<w:pPr><w:pStyle w:val='S'/></w:pPr>", ""),
                             ("", "<w:rFonts w:ascii='Courier New'/>")):
        code = "".join(f"<w:p>{properties}{run(line, font) if line else ''}</w:p>" for line in lines)
        code = code.replace("\t", "</w:t><w:tab/><w:t xml:space='preserve'>")
        assert text(tmp_path, paragraph("Example:") + code + paragraph("End."), {"styles.xml": named}) == expected
    broken = run(lines[0]) + "<w:r><w:br/></w:r>" + run(lines[1]) + "<w:r><w:br/></w:r>" + run("        return 1")
    body = f"<w:p><w:pPr><w:pStyle w:val='S'/></w:pPr>{broken}</w:p>"  # as pandoc writes it
    assert text(tmp_path, body, {"styles.xml": named}) == "def keeper(x):\n    if x:\n        return 1"
    courier = "<w:rFonts w:ascii='Courier'/>"
    typed = part("styles", f"<w:style w:styleId='N'><w:name w:val='Normal'/><w:rPr>{courier}</w:rPr></w:style>")
    prose = "".join(f"<w:p>{run(words, courier)}</w:p>" for words in ("One.", "Two."))
    assert text(tmp_path, prose, {"styles.xml": typed}) == "One.\n\nTwo."  # all of it as by a typewriter
