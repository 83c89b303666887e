"""The measurement of passages on a folder of questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triforce_core.bench import answers
from triforce_core.events import Passage, Passages, QuotePlace

TEXT = ("1. Ships\n\nThe keeper counted forty ships before the storm reached the harbour. Then he went to sleep.\n\n"
        "2. Pay\n\nThe council paid the keeper twelve pounds a year. Nobody painted the tower.\n")
QUESTIONS = (
    {"type": "fact", "question": "How many ships did the keeper count?", "gold": ["counted forty ships"], "key": []},
    {"type": "fact", "question": "What did the council pay?", "gold": [], "key": [r"twelve\s+pounds"]},
    {"type": "section", "question": "Summarise section 2", "gold": ["Nobody painted the tower."], "key": []},
    {"type": "unanswerable", "question": "Who won the football match against Sweden?", "gold": [], "key": []},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "ships.txt").write_text(TEXT)
    (tmp_path / "docs.json").write_text(json.dumps([{"id": "ships", "file": "ships.txt"}]))
    (tmp_path / "questions.jsonl").write_text("\n".join(json.dumps({"doc": "ships", "also": [], **row})
                                                        for row in QUESTIONS))
    return tmp_path


def test_it_measures_every_moment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answers.main([str(folder), "--out", str(folder / "found.jsonl")]) == 0
    told = capsys.readouterr().out
    assert "| fact | 2 | " in told and "called not found 1, perhaps 0 of 1" in told
    rows = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    assert len(rows) == 5 * len(QUESTIONS) and {row["moment"] for row in rows} == set(answers._MOMENTS)
    last = {row["question"]: row for row in rows if row["moment"] == "vectors, read"}
    assert last[QUESTIONS[0]["question"]]["marked_right"] and last[QUESTIONS[1]["question"]]["marked_right"]
    assert last["Summarise section 2"]["section"] == "2. Pay" and last["Summarise section 2"]["marked_right"]


def test_only_marked_words_count_as_the_answer() -> None:
    asked = answers.Asked("d", "fact", "?", ("The answer is here.",), ())
    text = "Something else. The answer is here."
    place = (QuotePlace(1, "1", 0, len(text)),)
    for marks, right in (((0, 15), False), ((16, len(text)), True)):
        found = Passages("?", "sentence", (Passage(place, text, marks=(marks,)),), "found")
        row = answers.record_of(asked, "words", found, 0.0)
        assert row["text_right"] and row["marked_right"] is row["three_right"] is right


def test_a_folder_without_questions_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answers.main([str(tmp_path)]) == 2 and "holds no questions" in capsys.readouterr().err
