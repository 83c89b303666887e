"""HTML: nothing behind a tag that is never closed is lost; notes, tables, lists and powers read as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import hostile
from triforce_core.documents import Document, read_document
from triforce_core.documents.readers.flow import lowered_text, raised_text


def read(folder: Path, markup: str) -> Document:
    (folder / "a.html").write_text(markup, "utf-8")
    return read_document(folder / "a.html")


def text(folder: Path, markup: str) -> str:
    return "\n".join(page.text for page in read(folder, markup).pages)


UNCLOSED = "nav button svg object select noscript template math iframe textarea title audio video canvas dialog".split()


@pytest.mark.parametrize("tag", UNCLOSED)
def test_nothing_is_lost_behind_a_tag_that_is_never_closed(tmp_path: Path, tag: str) -> None:
    markup = f"<p>Before.</p><{tag} class=x><p>The whale.</p><h2>Ships</h2><ul><li>one<li>two</ul>"
    assert text(tmp_path, markup) == "Before.\n\nThe whale.\n\nShips\n\n- one\n- two"


@pytest.mark.parametrize("tag", ["nav", "button", "select", "noscript", "template", "dialog"])
def test_what_is_closed_and_no_text_is_left_out(tmp_path: Path, tag: str) -> None:
    document = read(tmp_path, f"<p>Before.</p><{tag}>Home Next</{tag}><p>After.</p>")
    assert document.pages[0].text == "Before.\n\nAfter." and not document.warnings
    assert document.notes == {
        "template": (), "dialog": ("2 words that the file hides were left out.",),
    }.get(tag, ("2 words of menus, buttons and forms were left out.",))


def test_what_was_not_read_is_counted(tmp_path: Path) -> None:
    document = read(tmp_path, "<p>Seen.<img src=a><img src=b width=1></p><video></video><p hidden>not seen</p>"
                              "<p style='display: none'>nor this</p><span aria-hidden=true>*deco</span><nav>Home</nav>")
    assert document.pages[0].text == "Seen." and not document.warnings
    assert document.notes == ("2 pictures and other objects were not read.",
                              "5 words that the file hides were left out.",
                              "1 word of menus, buttons or forms was left out.")


def test_a_script_without_end_is_a_loss_that_is_told(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, "<p>Seen.</p><script>let a = 1;<p>Lost.</p>").warnings
    assert "breaks off inside a script" in warning
    assert text(tmp_path, "<p>Seen.</p><!-- a comment <p>Kept.</p>").endswith("Kept.")


@pytest.mark.parametrize("markup", [
    # one way for each of: pandoc, Wikipedia, Word, docutils, asciidoctor, a bare raised link
    "<p>As told.<a href='#fn1' class='footnote-ref' id='fnref1' role='doc-noteref'><sup>1</sup></a> More.</p>"
    "<section class=footnotes role=doc-endnotes><hr><ol><li id=fn1><p>See it.<a href='#fnref1' role=doc-backlink>↩︎</a>"
    "</p></ol></section>",
    "<p>As told.<sup id=cite_ref-1 class=reference><a href='#cite_note-1'><span>[</span>1<span>]</span></a></sup> More."
    "<ol class=references><li id=cite_note-1><b><a href='#cite_ref-1'>^</a></b> <span>See it.</span></ol>",
    "<p>As told.<a href='#_ftn1' name='_ftnref1'><sup>[1]</sup></a> More.</p><div id=ftn1><p class=MsoFootnoteText>"
    "<a href='#_ftnref1' name='_ftn1'><sup>[1]</sup></a> See it.</p></div>",
    "<p>As told.<a class='footnote-reference brackets' href='#f1' id=id9 role=doc-noteref>1</a> More.</p><aside "
    "class='footnote brackets' id=f1 role=doc-footnote><span class=label><span>[</span><a role=doc-backlink "
    "href='#id9'>1</a><span>]</span></span><p>See it.</p></aside>",
    "<p>As told.<sup class=footnote>[<a id=_footnoteref_1 class=footnote href='#_footnotedef_1'>1</a>]</sup> More.</p>"
    "<div id=footnotes><hr><div class=footnote id=_footnotedef_1><a href='#_footnoteref_1'>1</a>. See it.</div></div>",
    "<p>As told.<sup><a href='#n'>1</a></sup> More.</p><p id=n>1. See it.</p>",
    "<p>As told.<a id=r1 href='#f1' class=fnanchor>[1]</a> More.</p><div class=footnotes><div class=footnote><p>"
    "<a id=f1 href='#r1' class=label>[1]</a> See</p><p>it.</p></div></div>",
    "<p>As told.<a epub:type=noteref href='#n'>1</a> More.</p><section epub:type=footnotes><aside epub:type=footnote "
    "id=n><p>See it.</p></aside></section>",
])
def test_notes_are_paragraphs_of_their_own(tmp_path: Path, markup: str) -> None:
    assert text(tmp_path, markup) == "As told. More.\n\n[1] See it."


def test_links_that_are_no_notes_stay(tmp_path: Path) -> None:
    assert text(tmp_path, "<p>See chapter <a href='#c3'>3</a> and [<a href='#b7'>7</a>].</p><h2 id=c3>Three</h2>"
                          "<p id=b7>Melville.</p>") == "See chapter 3 and [7].\n\nThree\n\nMelville."
    assert text(tmp_path, "<p>A whale<span class=footnote>A mammal of the sea.</span> swims.</p><p>Next.</p>") == (
        "A whale swims.\n\n[*] A mammal of the sea.\n\nNext.")
    assert text(tmp_path, "<p>Note<sup><a href='#s'>1</a></sup> it.</p><div id=s><h2>Part</h2><p>1848 was a year.</div>"
                ) == "Note it.\n\nPart\n\n1848 was a year."


@pytest.mark.parametrize(("raised", "tail", "added"), [
    ("30", "is 2", "^30"), ("-3", "10", "^-3"), ("n+1", "x", "^(n+1)"), ("2", "12 km", "^2"), ("2", "(a+b)", "^2"),
    ("2", "E=mc", "^2"),
    ("st", "the 1", None), ("th", "19", None), ("4", "the whale", ""), ("4", "ends.", ""), ("*", "whale", ""),
    ("TM", "Word", None), ("er", "le 1", None), ("2", "", None), ("1, 2", "told.", ""), ("5", "the whale", "^5"),
    ("1, 3", "told.", "^(1, 3)"), ("2+", "Ca", "^2+"), ("-", "Cl", "^-"), ("2", "mc", ""), ("3", "cos", "^3"),
    ("14", "(", None), ("†", "whale", None), ("-5", "10", "^-5"), ("-1", "a s", "^-1"),
])
def test_raised_figures(raised: str, tail: str, added: str | None) -> None:
    assert raised_text(raised, tail, {"1", "2", "4", "*"}) == added


def test_powers_and_marks_in_a_page(tmp_path: Path) -> None:
    assert text(tmp_path, "<p>2<sup>30</sup> bytes, the 1<sup>st</sup> of 5 m<sup>2</sup>, told<sup>7</sup> . "
                          "H<sub>2</sub>O") == (
        "2^30 bytes, the 1st of 5 m^2, told^7 . H_2O")
    assert text(tmp_path, "<math><msup><mi>x</mi><mn>2</mn></msup><mo>=</mo><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi>"
                          "</mrow><mn>2</mn></mfrac><annotation>x^{2}</annotation></math>") == "x^2=(a+b)/2"


def test_tables_lists_and_definitions(tmp_path: Path) -> None:
    assert text(tmp_path, "<table><caption>Sizes</caption><tr><th>Kind<th>2019<th>2020<tr><td rowspan=2>Blue<td>1<td>"
                          "<p>2</p><p>m</p><tr><td>3<td>4</table>") == (
        "Sizes\n\nKind | 2019 | 2020\nBlue | 1 | 2 m\nBlue | 3 | 4")
    assert text(tmp_path, "<table><tr><td><h2>Card</h2><p>One.</p><p>Two.</p><td>Side.</table>") == (
        "Card\n\nOne.\n\nTwo.\n\nSide.")
    assert text(tmp_path, "<dl><dt>Whale<dt>Cetacean<dd><p>A mammal.</p><dt>Ship<dd>A thing.</dl>") == (
        "Whale\nCetacean\nA mammal.\n\nShip\nA thing.")
    assert text(tmp_path, "<ol start=3><li><p>three</p><ul><li>in</ul><li><p>four</p></ol><p>End.") == (
        "3. three\n- in\n4. four\n\nEnd.")


def test_headings_code_and_small_things(tmp_path: Path) -> None:
    document = read(tmp_path, """<h1>One<br>line<a class=headerlink href='#x'>¶</a></h1><p>a</p><pre>
if a:
\tb
</pre><h2><button>Question?</button></h2><details><summary>More</summary>Body</details>
<p>See <q>it</q><span class=pagenum>[Pg 3]</span> go.</p><figure><img><figcaption>A ship.</figcaption></figure>""")
    lines = [line.strip() for line in document.pages[0].text.split("\n\n")]
    assert lines[:2] == ["One line", "a"] and lines[2].startswith("if a:\n")
    assert lines[3:] == ["Question?", "More", "Body", "See “it” go.", "A ship."]
    assert [chapter.title for chapter in document.chapters] == [] and document.title == "One line"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("markup", [
    "<sup>" * 100_000 + "x", "<a href='#x'>1" * 50_000, "<table><tr><td rowspan=9999 colspan=9999>x" * 5_000,
    "<div class=footnotes>" * 100_000 + "x", "<dl><dt>" * 50_000 + "x", "<svg><foreignObject>" * 20_000 + "x",
    "<!--" * 500_000 + "x", "<?xml ?>" + "<a '" * 200_000 + "x", "<nav>" * 300_000 + "x",
    "".join(f"<sup><a href='#{n}'>1</a></sup>" for n in range(20_000)) + "<p id=5>x",
])
def test_hostile_nesting_ends_soon(tmp_path: Path, markup: str) -> None:
    read(tmp_path, f"<p>The whale.</p>{markup}")


@pytest.mark.parametrize("name", ["a.html", "a.epub"])
def test_code_keeps_its_indentation_through_the_reader(tmp_path: Path, name: str) -> None:
    page = "<html><body><p>Some   prose.</p><pre>if x:\n    return  1</pre></body></html>"
    (tmp_path / name).write_bytes(hostile.epub({"c.xhtml": page}) if name == "a.epub" else page.encode())
    assert read_document(tmp_path / name).pages[0].text == "Some prose.\n\nif x:\n    return  1"


@pytest.mark.parametrize(("lowered", "tail", "added"), [
    ("2", "H", "_2"), ("2", "Ca(OH)", "_2"), ("1", "x", "_1"), ("2", "log", "_2"),
    ("i,j", "a", "_(i,j)"), ("2", "1011", "_2"), ("max", "v", "_max"), ("2", "", None), ("small print of a", "x", None),
])
def test_lowered_figures(lowered: str, tail: str, added: str | None) -> None:
    assert lowered_text(lowered, tail) == added


@pytest.mark.parametrize(("markup", "expected"), [
    ("<p>E = mc<sup>2</sup> and chi<sup>2</sup>, 10<sup>-5</sup> g, <sup>14</sup>C</p>",
     "E = mc^2 and chi^2, 10^-5 g, 14C"),
    ("<p>So it was.<sup>2</sup> Then.<sup>3</sup></p><p><sup>2</sup> See it.</p>", "So it was. Then.^3\n\n2 See it."),
    ("<p>It was.<sup>1,2</sup> Then.<sup>3</sup></p><h2>References</h2><ol><li>A<li>B</ol>",
     "It was. Then.^3\n\nReferences\n\n1. A\n2. B"),
    ("<p>a<span class=sup>2</span> b<span style='vertical-align: sub'>3</span> log<sub>2</sub> 8</p>",
     "a^2 b_3 log_2 8"),
    ("<math><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup><mo>+</mo><msqrt><mi>x</mi></msqrt><mo>+</mo><mroot><mi>x</mi>"
     "<mn>3</mn></mroot></math>", "x_1^2+√(x)+^3√x"),
    ("<math><msup><mrow><mo>(</mo><mi>a</mi><mo>+</mo><mi>b</mi><mo>)</mo></mrow><mn>2</mn></msup><mtable><mtr><mtd>1</mtd>"
     "<mtd>0</mtd></mtr><mtr><mtd>0</mtd><mtd>1</mtd></mtr></mtable></math>", "(a+b)^2 1 0; 0 1"),
    ("<p>Is<math display=block><msub><mi>x</mi><mn>1</mn></msub><mi>y</mi></math>so? <math><mi>x</mi></math><math><mi>y"
     "</mi></math>th, <math><mn>2</mn><mfrac><mn>1</mn><mn>3</mn></mfrac><mo>(</mo><mi>t</mi><mo>)</mo></math></p>",
     "Is x_1 y so? x yth, 2 1/3 (t)"),
])
def test_raised_and_lowered_figures_are_kept_unless_a_note_has_their_mark(
        tmp_path: Path, markup: str, expected: str) -> None:
    assert text(tmp_path, markup) == expected
