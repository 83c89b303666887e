"""The handbook: the PDF is what its sources say, and what they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.commands import FLAG, flags
from triforce_core import HANDBOOK, read_document
from triforce_core.documents.document import Document
from triforce_core.evidence.finder import PassageFinder
from ui.app import settings as settings_words

ROOT = Path(__file__).parents[1]
CHAPTERS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "handbook").glob("*.md"))}
LEAST_WORDS = 3  # of a piece of an error message: shorter ones are found everywhere


@pytest.fixture(scope="module")
def handbook() -> Document:
    return read_document(HANDBOOK)


def test_the_pdf_is_what_its_sources_build(handbook: Document, tmp_path: Path) -> None:
    builder = pytest.importorskip("docs.handbook", reason="reportlab is not installed")
    builder.build(tmp_path / "first.pdf")
    builder.build(tmp_path / "second.pdf")
    assert (tmp_path / "first.pdf").read_bytes() == (tmp_path / "second.pdf").read_bytes()
    assert [page.text for page in read_document(tmp_path / "first.pdf").pages] == [p.text for p in handbook.pages], (
        "run `python -m docs.handbook`")


def test_it_is_a_whole_book(handbook: Document) -> None:
    import pypdfium2

    assert len(handbook.pages) >= 30 and handbook.title == "The TriForce Chat handbook" and not handbook.warnings
    with pypdfium2.PdfDocument(HANDBOOK) as pdf:
        entries = [(mark.level, mark.get_title(), mark.get_dest().get_index()) for mark in pdf.get_toc()]
    chapters = [(title, page) for level, title, page in entries if level == 0]
    assert any("The weights of the two models are read once, when the engine starts." in page.text
               for page in handbook.pages), "lines of a list's item belong together"
    assert [title.partition(". ")[0] for title, _ in chapters] == [str(i + 1) for i in range(len(CHAPTERS))]
    for title, page in chapters:
        assert handbook.pages[page].text.startswith(title)
    assert sum(level == 1 for level, *_ in entries) == sum(text.count("\n## ") for text in CHAPTERS.values())


def test_every_command_and_flag_exists() -> None:
    known = flags()
    spans = [span for text in CHAPTERS.values() for span in re.findall(r"`([^`\n]+)`|^(python .+)$", text, re.M)]
    commands = set()
    for span in map("".join, spans):
        if span.startswith("python "):
            command = max((each for each in known if f"{span} ".startswith(f"{each} ")), key=len, default="")
            assert command, f"`{span}` is no command"
            commands.add(command)
            assert set(FLAG.findall(span)) <= known[command], span
        else:
            assert set(FLAG.findall(span)) <= set().union(*known.values()), span
    assert commands == set(known), "a command is missing from the handbook"


def test_settings_and_messages_are_called_by_their_names() -> None:
    labels = {label for label, _ in settings_words.SETTINGS.values()}
    for line in CHAPTERS["11-settings"].splitlines():
        if line.startswith("**"):
            assert {name.strip(".") for name in re.findall(r"\*\*([^*]+)\*\*", line)} <= labels, line
    said = "\n".join(_words_of_the_program())
    messages = re.findall(r"^\*\*\"(.+?)\"\.?\*\*", CHAPTERS["15-troubleshooting"], re.M)
    assert len(messages) > 20
    for message in messages:
        pieces = [piece.strip() for piece in message.split("...")]
        long = [piece for piece in pieces if len(piece.split()) >= LEAST_WORDS] or pieces
        assert any(long) and all(piece in said for piece in long), message


def _words_of_the_program() -> list[str]:
    """Every string in the program's source."""
    found = []
    for path in (*(ROOT / "triforce_core").rglob("*.py"), *(ROOT / "ui").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


QUESTIONS = [  # and words of the sentence that answers
    ("How many tokens are kept for questions and answers?", "At least 640 tokens of the context are kept"),
    ("When was TriForce published?", "was published in 2024 by Hanshi Sun"),
    ("What is a bonus token?", "the extra token that a full pass yields"),
    ("Which command adds a text layer?", "ocrmypdf in.pdf out.pdf"),
    ("What does Ctrl+C do?", "ends the app within five seconds"),
]


@pytest.mark.slow
def test_the_first_passage_answers_questions_about_it(handbook: Document) -> None:
    finder = PassageFinder(handbook)
    for question, words in QUESTIONS:
        *_, found = finder.find(question)
        assert words in " ".join(found.passages[0].text.split()), (question, found.passages[0].text)
