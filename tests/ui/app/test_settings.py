"""Settings: clear refusals, and a kept file that can never stop the app."""

from dataclasses import asdict
from pathlib import Path

import pytest

from triforce_core import ConfigError
from ui.app import settings
from ui.app.settings import PRESETS, Settings
from ui.page import settings as preset_words
from ui.page.settings import ORDER


def form(**changes):
    return {name: getattr(Settings(), name) for name in ORDER} | changes


def test_the_form_is_every_setting() -> None:
    assert set(ORDER) == set(asdict(Settings()))
    assert settings.from_form(form()) == Settings()


@pytest.mark.parametrize(("name", "value", "words"), [
    ("gamma1", "lots", "whole number"), ("gamma1", "99", "0 to 64"), ("gamma2", "0", "1 to 256"), ("budget", "5", "64"),
    ("max_new_tokens", None, "empty"), ("max_new_tokens", 0, "1 to"), ("seed", -1, "seed"),
    ("seed", 1.5, "whole number"),
    ("temperature", 11, "0 to 10"), ("top_p", 0, "top_p"), ("chunk_size", "x", "whole number"),
    ("engine", "warp", "auto"),
    ("dtype", "int4", "float32"), ("mode", "gpu", "on-chip"), ("gamma1", "1e999", "whole number"),
])
def test_refusals_name_the_setting_and_what_is_allowed(name: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings.from_form(form(**{name: value}))


@pytest.mark.parametrize(("value", "kept"), [("auto", "auto"), (" AUTO ", "auto"), ("", "auto"), ("4", 4), (4.0, 4)])
def test_auto_or_a_number(value: object, kept: object) -> None:
    assert settings.from_form(form(gamma1=value)).gamma1 == kept


def test_round_trip(tmp_path: Path) -> None:
    chosen = Settings(temperature=0.6, gamma2=12, seed=7, mode="cpu", dtype="float32")
    settings.save(tmp_path / "s.json", chosen)
    assert settings.load(tmp_path / "s.json") == chosen


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gamma1": "lots"}', '{"unknown": 1, "temperature": -3}'])
def test_a_damaged_file_means_defaults(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    assert settings.load(tmp_path / "s.json") == Settings()


def test_one_bad_value_does_not_cost_the_others(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"gamma1": "lots", "seed": 5}')
    assert settings.load(tmp_path / "s.json") == Settings(seed=5)


def test_auto_means_triforce_and_the_race_chooses_its_own() -> None:
    assert Settings().speculation().engine == "triforce"
    assert Settings(engine="autoregressive").speculation().engine == "autoregressive"
    speculation = Settings(engine="autoregressive").speculation(engine="triforce", verifier="coupled")
    assert (speculation.engine, speculation.verifier) == ("triforce", "coupled")


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_leaves_what_it_does_not_speak_of(name: str) -> None:
    own = Settings(temperature=1.5, seed=7, max_new_tokens=64, mode="cpu", dtype="float32", gamma1=3)
    chosen = own.preset(name)
    assert (chosen.seed, chosen.max_new_tokens, chosen.mode, chosen.dtype) == (7, 64, "cpu", "float32")
    assert {key: getattr(chosen, key) for key in PRESETS[name]} == PRESETS[name]
    assert chosen.gamma1 == ("auto" if name == "fast" else 3) and name in preset_words.PRESETS
