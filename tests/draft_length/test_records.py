"""The file of measurements: what is kept comes back, and nothing else is ever mistaken for it."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from triforce_core.draft_length.costs import Costs, Curve, quickest
from triforce_core.draft_length.profile import Records, Subject, TreeCosts

HERE = Subject({"CPU": "EPYC", "threads": "2"}, "weights", "small weights")
COSTS = Costs(10.0, Curve(((3, 12.0), (33, 40.0))), {0: 3.0, 2: 4.0}, 0.5)
PLACE, TIERS = "all on the device", "small model; retrieval 768"


def kept(folder: Path, subject: Subject = HERE) -> Records:
    records = Records(folder, subject)
    records.keep_costs(PLACE, TIERS, 4096, COSTS)
    records.keep_trees(PLACE, 4096, TreeCosts(Curve(((5, 12.0),)), Curve(((1, 3.0),))))
    records.seen("retrieval, greedy").learn([False, False], refused=True)
    records.seen("retrieval, greedy").learn_pace(2, (30.0, 20.0, 9.0, 8.0))
    records.words = "drafting 10 tokens at a time"
    records.write()
    return records


def test_what_is_kept_comes_back(tmp_path):
    first = kept(tmp_path / "made")
    again = Records(tmp_path / "made", HERE)
    assert not again.trouble and again.measured == first.measured and again.words == "drafting 10 tokens at a time"
    assert again.costs(PLACE, TIERS, 4096, (0, 2)) == COSTS and again.lengths() == (4096,)
    assert again.seen("retrieval, greedy") == first.seen("retrieval, greedy")
    assert again.trees(PLACE, 4096) == first.trees(PLACE, 4096)
    assert again.gamma1s(TIERS) == (0, 2)
    [file] = (tmp_path / "made").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_costs_near_and_between_lengths(tmp_path):
    records = kept(tmp_path)
    assert records.costs(PLACE, TIERS, 4500, (2,)).steps == {2: 4.0}  # near enough
    assert records.costs(PLACE, TIERS, 8000, (2,)) is None
    assert records.costs(PLACE, TIERS, 4096, (1, 2)) is None  # a chain that nobody timed
    assert records.costs("on another device", TIERS, 4096, (2,)) is None
    records.keep_costs(PLACE, TIERS, 12288, Costs(30.0, Curve(((3, 36.0), (33, 80.0))), {0: 3.0}, 1.5))
    middle = records.costs(PLACE, TIERS, 8192, (2,))
    assert middle.plain == pytest.approx(20.0) and middle.verify.at(33) == pytest.approx(60.0)
    assert middle.choose == pytest.approx(1.0)
    records.keep_costs(PLACE, TIERS, 12300, COSTS)  # the newer one stands
    assert records.lengths() == (4096, 12300)


def test_of_two_measurements_the_quicker_counts():
    one = Costs(10.0, Curve(((3, 90.0), (9, 14.0))), {0: 3.0, 2: 9.0}, 0.5)
    other = Costs(12.0, Curve(((3, 12.0), (9, 16.0))), {0: 4.0, 2: 5.0}, 0.2)
    assert quickest(one, other) == Costs(10.0, Curve(((3, 12.0), (9, 14.0))), {0: 3.0, 2: 5.0}, 0.2)


def test_a_pass_that_was_disturbed_is_not_dearer_than_a_wider_one(tmp_path):
    records = Records(None, HERE)
    records.keep_costs(PLACE, TIERS, 100, Costs(90.0, Curve(((3, 12.0), (9, 80.0), (33, 40.0))), {0: 9.0, 2: 4.0}))
    found = records.costs(PLACE, TIERS, 100, (0, 2))
    assert found.plain == 12.0 and found.verify.points == ((3, 12.0), (9, 40.0), (33, 40.0))
    assert found.steps == {0: 4.0, 2: 4.0}


@pytest.mark.parametrize("damage", [
    lambda text: text[: len(text) // 2], lambda text: "", lambda text: "[]", lambda text: text.replace("4.0", '"x"'),
    lambda text: text.replace("10.0", "-1"), lambda text: text.replace("12.0", "NaN"),
    lambda text: text.replace('"tested"', '"test"'), lambda text: text.replace('"4096"', '"many"'),
    lambda text: text.replace("10.0", "true")], ids=range(9))
def test_a_damaged_file_is_measured_again_and_said_so(tmp_path, damage):
    kept(tmp_path)
    [file] = tmp_path.iterdir()
    file.write_text(damage(file.read_text()))
    records = Records(tmp_path, HERE)
    assert records.trouble == "what was measured before cannot be read" and not records.measured
    assert records.costs(PLACE, TIERS, 4096, (2,)) is None
    assert kept(tmp_path).measured and not Records(tmp_path, HERE).trouble


def test_another_machine_version_or_model_is_not_believed(tmp_path):
    kept(tmp_path)
    moved = Records(tmp_path, Subject({"CPU": "EPYC", "threads": "8"}, "weights", "small weights"))
    assert moved.trouble == "what was measured before is of another machine (threads)" and not moved.measured
    assert not Records(tmp_path, Subject(HERE.machine, "other weights", "small weights")).measured
    assert not Records(tmp_path, Subject(HERE.machine, "weights", "")).measured
    [file] = tmp_path.iterdir()
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"model": "other"}))
    assert "of another model" in Records(tmp_path, HERE).trouble
    file.write_text(json.dumps(content | {"version": 99}))
    assert "another version" in Records(tmp_path, HERE).trouble


def test_forgetting_takes_the_file_along_and_a_full_disk_only_costs_time(tmp_path):
    records = kept(tmp_path)
    records.forget()
    assert not list(tmp_path.iterdir()) and not records.measured and not records.seen("retrieval, greedy").total
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    kept(nowhere / "folder")  # cannot be written: nothing is raised
    assert kept(tmp_path, HERE).measured


def test_what_a_full_disk_broke_off_takes_no_place(tmp_path, monkeypatch):
    before = kept(tmp_path).measured

    def full(content, file, **_):
        file.write("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    kept(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"] and Records(tmp_path, HERE).measured == before
