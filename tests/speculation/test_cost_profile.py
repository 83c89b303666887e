"""The file of measurements: what is kept comes back, and nothing else is ever mistaken for it."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from triforce_core.speculation.cost_profile import Profile, Subject
from triforce_core.speculation.draft_length import Costs

HERE = Subject({"CPU": "EPYC", "threads": "2"}, "weights", "small weights")
COSTS = Costs(10.0, ((3, 12.0), (33, 40.0)), 4.0, 0.5)
PLACE, TIERS = "all on the device", "small model; retrieval 768"


def kept(folder: Path, subject: Subject = HERE) -> Profile:
    profile = Profile(folder, subject)
    profile.keep_costs(PLACE, TIERS, 4096, 2, COSTS)
    profile.write()
    return profile


def test_what_is_kept_comes_back(tmp_path):
    first = kept(tmp_path / "made")
    again = Profile(tmp_path / "made", HERE)
    assert not again.trouble and again.measured == first.measured
    assert again.costs(PLACE, TIERS, 4096, 2) == COSTS and again.lengths() == (4096,)
    assert again.in_words() == f"measured {first.measured} at 4,096 tokens"
    [file] = (tmp_path / "made").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_costs_near_and_between_lengths(tmp_path):
    profile = kept(tmp_path)
    assert profile.costs(PLACE, TIERS, 4500, 2).step == 4.0  # near enough
    assert profile.costs(PLACE, TIERS, 8000, 2) is None
    assert profile.costs(PLACE, TIERS, 4096, 1) is None  # a chain that nobody timed
    assert profile.costs("on another device", TIERS, 4096, 2) is None
    profile.keep_costs(PLACE, TIERS, 12288, 2, Costs(30.0, ((3, 36.0), (33, 80.0)), 3.0, 1.5))
    middle = profile.costs(PLACE, TIERS, 8192, 2)
    assert middle.plain == pytest.approx(20.0) and middle.verifying(33) == pytest.approx(60.0)
    assert middle.choose == pytest.approx(1.0)
    profile.keep_costs(PLACE, TIERS, 12300, 2, COSTS)  # the newer one stands
    assert profile.lengths() == (4096, 12300)


def test_a_pass_that_was_disturbed_is_not_dearer_than_a_wider_one(tmp_path):
    profile = Profile(None, HERE)
    profile.keep_costs(PLACE, TIERS, 100, 2, Costs(90.0, ((3, 12.0), (9, 80.0), (33, 40.0)), 4.0))
    found = profile.costs(PLACE, TIERS, 100, 2)
    assert found.plain == 12.0 and found.verify == ((3, 12.0), (9, 40.0), (33, 40.0))


@pytest.mark.parametrize("damage", [
    lambda text: text[: len(text) // 2], lambda text: "", lambda text: "[]", lambda text: text.replace("4.0", '"x"'),
    lambda text: text.replace("10.0", "-1"), lambda text: text.replace("12.0", "NaN"),
    lambda text: text.replace('"steps"', '"step"'), lambda text: text.replace('"4096"', '"many"'),
    lambda text: text.replace("10.0", "true")], ids=range(9))
def test_a_damaged_file_is_measured_again_and_said_so(tmp_path, damage):
    kept(tmp_path)
    [file] = tmp_path.iterdir()
    file.write_text(damage(file.read_text()))
    profile = Profile(tmp_path, HERE)
    assert profile.trouble == "what was measured before cannot be read" and not profile.measured
    assert profile.costs(PLACE, TIERS, 4096, 2) is None
    assert kept(tmp_path).measured and not Profile(tmp_path, HERE).trouble


def test_another_machine_version_or_model_is_not_believed(tmp_path):
    kept(tmp_path)
    moved = Profile(tmp_path, Subject({"CPU": "EPYC", "threads": "8"}, "weights", "small weights"))
    assert moved.trouble == "what was measured before is of another machine (threads)" and not moved.measured
    assert not Profile(tmp_path, Subject(HERE.machine, "other weights", "small weights")).measured
    assert not Profile(tmp_path, Subject(HERE.machine, "weights", "")).measured
    [file] = tmp_path.iterdir()
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"model": "other"}))
    assert "of another model" in Profile(tmp_path, HERE).trouble
    file.write_text(json.dumps(content | {"version": 99}))
    assert "another version" in Profile(tmp_path, HERE).trouble


def test_forgetting_takes_the_file_along_and_a_full_disk_only_costs_time(tmp_path):
    profile = kept(tmp_path)
    profile.forget()
    assert not list(tmp_path.iterdir()) and not profile.measured
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
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"] and Profile(tmp_path, HERE).measured == before
