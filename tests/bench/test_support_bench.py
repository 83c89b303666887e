"""The measurement of support on a folder of questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triforce_core.bench import answers

TEXTS = {
    "ships": "The keeper counted forty ships before the storm reached the harbour.\n\nNobody painted the tower.\n\n"
             "Before the storm came, the keeper had counted forty ships in the harbour.",
    "gates": "Quantum computers factor large integers with many gates.\n\nEvery gate acts on two qubits at once.\n\n"
             "With many gates, large integers are factored by quantum computers.",
}


def test_it_measures_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    rows = []
    for name, text in TEXTS.items():
        (tmp_path / "docs" / f"{name}.txt").write_text(text)
        first, _, last = text.split("\n\n")
        rows.append({"doc": name, "type": "fact", "question": "?", "gold": [first], "also": [last], "key": []})
    (tmp_path / "docs.json").write_text(json.dumps([{"id": name, "file": f"{name}.txt"} for name in TEXTS]))
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert answers.main([str(tmp_path), "--support"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[0])
    assert found["sentences"] == {"restated": 4, "foreign": 2, "half foreign": 2}
    assert found["marked"]["restated"] == 0 and found["marked"]["foreign"] == 1.0
    assert found["precision_at_equal_numbers"] == 1.0


def test_a_folder_without_questions_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answers.main([str(tmp_path), "--support"]) == 2 and "holds no questions" in capsys.readouterr().err
