"""reStructuredText as text: what a reader sees, and nothing from outside the file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from triforce_core.documents import read_document
from triforce_core.documents.readers.html import HtmlText
from triforce_core.documents.readers.rst import rst_tree


def text_of(markup: str) -> str:
    return HtmlText(rst_tree(markup)[0]).text()


@pytest.mark.parametrize(("markup", "expected"), [
    ("A ``Map<K, V>`` and ``__init__`` *em* **s**", "A Map<K, V> and __init__ em s"),
    ("See :pep:`668`, :rfc:`2119#s`, :ref:`words <t>`, :class:`~a.b.C`, :my:role:`x`.",
     "See PEP 668, RFC 2119, words, C, x."),
    ("A `link <http://x>`_, a ref_ and |sub|_; |und|\n\n.. |sub| replace:: subst\n.. _sub: http://x",
     "A link, a ref and subst; |und|"),
    ("pip [#pip]_ and easy [1]_. [CIT]_\n\n.. [#pip] Its\n   note.\n.. [1] One.\n.. [CIT] Cited.",
     "pip and easy. [CIT]\n\n[pip] Its note.\n\n[1] One.\n\n[CIT] Cited."),
    ("2\\ :sup:`30` and H\\ :sub:`2`\\ O", "2^30 and H_2O"),
    ("- one\n  wraps\n- two\n\n#. three\n\n   more\n#. four", "- one wraps\n- two\n\n1. three\n\nmore\n2. four"),
    ("iv) roman", "iv) roman"),
    ("term : kind\n    What it\n    means.", "term : kind\nWhat it means."),
    (":Author: Me\n:Date: now", "Author: Me\nDate: now"),
    ("--long=X  a word", "--long=X a word"),
    ("| one\n| two", "one\ntwo"),
    ("Code::\n\n    a:\n      b\n\n.. code-block:: py\n   :emphasize-lines: 1\n\n   def f():\n       pass",
     "Code:\n\na:\n  b\n\ndef f():\n    pass"),
    ("+---+-----+\n| a | b   |\n+===+=====+\n| 1 | two |\n|   | lin |\n+---+-----+", "a | b\n1 | two lin"),
    ("=== ===\na   b\n=== ===\n1   2\n=== ===", "a | b\n1 | 2"),
    (".. note:: Take\n   care.\n\n.. versionadded:: 3.8\n   It.\n\n.. mine:: arg *x*\n   :opt: 1\n\n   Inside.",
     "Take care.\n\nAdded in version 3.8: It.\n\narg x\n\nInside."),
    (".. a comment\n\n.. image:: x.png\n   :alt: the words\n\n.. index:: no", "the words"),
    (".. productionlist::\n a: b\n  c: d\n\n.. code-block:: c\n   :caption: Said\n\n   x = 1",
     "a: b\n c: d\n\nSaid\n\nx = 1"),
    (".. mine::\n   - a\n   - b\n\n.. mine:: more\n   words", "- a\n- b\n\nmore words"),
    (".. raw:: html\n\n   <b>Raw &amp; bold</b>", "Raw & bold"),
    ("=== ===\nbroken table\n=== ===\nx", "=== ===\nbroken table\n=== ===\n\nx"),
])  # fmt: skip
def test_what_is_shown(markup: str, expected: str) -> None:
    assert text_of(markup) == expected


def test_a_proposal_with_a_header(tmp_path: Path) -> None:
    words = "The whale is a mammal. " * 150
    (tmp_path / "a.rst").write_text(f"PEP: 1\nTitle: Of Whales\nAuthor: One,\n        Two\n\nFirst\n=====\n\n{words}\n"
                                    f"\nDeeper\n------\n\n{words}\n\nSecond\n======\n\n{words}\n")
    document = read_document(tmp_path / "a.rst")
    assert (document.kind, document.title, document.warnings) == ("rst", "Of Whales", ())
    assert [(chapter.title, chapter.level) for chapter in document.chapters] == [
        ("First", 1), ("Deeper", 2), ("Second", 1)]
    assert document.pages[0].text.startswith("PEP: 1\nTitle: Of Whales\nAuthor: One, Two\n\nFirst\n\nThe whale")


@pytest.mark.parametrize("directive", [
    ".. include:: {path}", ".. literalinclude:: {path}", ".. csv-table:: x\n   :file: {path}",
    ".. raw:: html\n   :file: {path}", ".. |x| include:: {path}", ".. csv-table:: x\n   :url: file://{path}"])
def test_nothing_is_read_from_outside_and_that_is_told(tmp_path: Path, directive: str) -> None:
    (tmp_path / "secret.txt").write_text("the secret words")
    (tmp_path / "a.rst").write_text(f"Seen.\n\n{directive.format(path=tmp_path / 'secret.txt')}\n\nAlso seen.\n")
    document = read_document(tmp_path / "a.rst")
    (page,) = document.pages
    assert "Seen." in page.text and "Also seen." in page.text and "secret words" not in page.text
    assert document.warnings == ("This file includes other files, which were not read.",)


@pytest.mark.parametrize("markup", [
    "".join(f"{' ' * depth}word{depth}\n\n" for depth in range(400)), "*a " * 10_000, "- " * 2_000 + "word9"])
def test_what_docutils_cannot_read_is_read_as_text(tmp_path: Path, markup: str) -> None:
    (tmp_path / "a.rst").write_text(f"Before.\n\n{markup}\n\nAfter.\n")
    begin = time.perf_counter()
    document = read_document(tmp_path / "a.rst")
    text = "\n".join(page.text for page in document.pages)
    assert "Before." in text and "After." in text and time.perf_counter() - begin < 60
    assert document.warnings == ("The markup of this file could not be understood: it was read as plain text.",)
    assert markup.count("word") == text.count("word")
