"""Line ends in every format: none is a blank between Han or kana, or behind a dash that has no blank before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import hostile
from tests.documents.hostile import paragraph
from triforce_core.documents import read_document
from triforce_core.documents.readers.plain_text import text_blocks
from triforce_core.documents.reflow import between_lines

CHINESE = "守灯塔的老人已经七十二岁了，\n每天晚上六点点着火以后，\n他就走到海边的小客栈。"
JAPANESE = "灯台を守る老人は、もう七十二歳にな\nっていた。ラジオを聞きながら、海の\n方を見ている。"


@pytest.mark.parametrize("text", [CHINESE, JAPANESE])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.html", "a.epub", "a.docx"])
def test_no_blank_between_han_or_kana(tmp_path: Path, name: str, text: str) -> None:
    page = f"<html><body><p>{text}</p></body></html>"
    data = {"a.html": page.encode(), "a.epub": hostile.epub({"c.xhtml": page}),
            "a.docx": hostile.docx(paragraph(text))}.get(name, text.encode())
    (tmp_path / name).write_bytes(data)
    assert read_document(tmp_path / name).pages[0].text == text.replace("\n", "")


def test_marked_up_words_and_other_scripts(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>守灯\n<b>塔</b>\n的 in\nEnglish\n中</p><p>한국어\n한국</p>", "utf-8")
    assert read_document(tmp_path / "a.html").pages[0].text == "守灯塔的 in English 中\n\n한국어 한국"


def test_narrow_lines_of_han_are_wrapped_and_verse_is_not() -> None:
    full = "守灯塔的老人已经七十二岁了每天晚上六点点着"  # 21 characters, as wide as 42 letters
    assert text_blocks([full, full, full, "火。"]).finish()[0] == full * 3 + "火。"
    verse = ["白日依山尽", "黄河入海流", "欲穷千里目", "更上一层楼"]
    assert text_blocks(verse).finish()[0] == "\n".join(verse)


@pytest.mark.parametrize(("last", "line", "between"), [
    ("founded in 1899-", "1902 by", ""), ("in 1899–", "1902", ""), ("the lamp‐", "oil", ""),
    ("the long–", "term lease", ""),
    ("a dash –", "then", " "), ("a dash—", "then", ""), ("of 1899-", "then", " "), ("a word", "then", " "),
    ("客栈", "在那", ""), ("客栈", "then", " "), ("한국", "한국", " "),
])
def test_what_stands_between_two_lines(last: str, line: str, between: str) -> None:
    assert between_lines(last, line) == between
