"""A third lane, what is said of a race that was lost, and the race as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from triforce_core import ConfigError, ModelInfo, RoundEvent
from ui.app import runs
from ui.app.accumulator import Accumulator
from ui.app.runs import LANES, THIRD, Run
from ui.app.settings import Settings
from ui.page import race as race_view

MODEL = ModelInfo("m", "d", "cpu", "", "cpu", "float32", 1024, 1, 1)


def lane(text: str, seconds: float, tokens_a_round: int = 1, verify: float = 20.0, rest: float = 0.0) -> Accumulator:
    """An answer of one token a word, at a steady rate."""
    accumulator, words = Accumulator(), text.split()
    for n in range(0, len(words), tokens_a_round):
        part = tuple(range(n, min(n + tokens_a_round, len(words))))
        at = seconds * (part[-1] + 1) / len(words)
        accumulator.add(RoundEvent(n, part, ("bonus",) * len(part), (), {"verify": verify, "draft": rest}, None, at))
    accumulator.text = text
    accumulator.marks = [(seconds * (n + 1) / len(words), len(" ".join(words[: n + 1]))) for n in range(len(words))]
    return accumulator


def test_lanes() -> None:
    settings = Settings(budget=512)
    assert [name for name, _ in runs.race_lanes(settings)] == list(LANES)
    (_, plain), (_, fast), (name, third) = runs.race_lanes(settings, " gamma2=6 ,ngram = off")
    assert plain.engine == "autoregressive" and plain.verifier == fast.verifier == third.verifier == "coupled"
    assert (third.gamma2, third.ngram, third.budget, third.engine) == (6, "off", 512, "triforce")
    assert name == "gamma2=6 ,ngram = off" and fast.ngram == "auto"
    for label, text in THIRD[1:]:
        assert runs.race_lanes(settings, text)[2][0] == label


@pytest.mark.parametrize("bad", ["nonsense", "gamma2=", "gamma9=3", "verifier=rejection", "gamma2=9000", "=3"])
def test_a_third_lane_that_cannot_be_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError):
        runs.race_lanes(Settings(), bad)


def three() -> dict:
    text = "the keeper counted forty ships " * 8
    answers = [lane(text, 4.0), lane(text, 2.0, 4), lane(text, 8.0, 2)]
    return runs.compare_lanes(answers, MODEL, ["Plain decoding", "TriForce", "Odd <lane>"])


def test_every_lane_is_compared_with_the_first() -> None:
    outcome = three()
    assert [round(lane["speedup"], 1) for lane in outcome["lanes"]] == [1.0, 2.0, 0.5]
    assert all(lane["same"] for lane in outcome["lanes"]) and outcome["same"]
    lines = race_view.summary(outcome)
    assert "2.0" in lines[0] and race_view.SAME in lines[0] and "4.00 tokens per full pass" in lines[0]
    html = race_view.replay(outcome, "Q?", key="k", fresh=False)
    assert html.count("<section") == 3 and "Odd &lt;lane&gt;" in html and "<lane>" not in html


def test_a_lost_race_says_where_the_time_went() -> None:
    text = "one two three four " * 5
    outcome = runs.compare_lanes([lane(text, 1.0), lane(text, 2.0, 2, verify=25.0, rest=60.0)], MODEL)
    why = race_view.costs(outcome)
    assert "60 ms of drafting" in why and "25 ms of full pass" in why and "50 ms a token" in why and "1.7 tokens" in why
    assert why in race_view.verdict(outcome)


def test_races_that_were_kept_before_there_were_three_are_still_shown() -> None:
    outcome = three()
    kept = [{key: lane[key] for key in ("text", "marks", "figures")} for lane in outcome["lanes"][:2]]
    old = outcome | {"lanes": kept}
    html = race_view.replay(old, "Q?", key="k", fresh=False)
    assert all(name in html for name in LANES) and html.count("<section") == 2


def test_the_lanes_show_what_was_written_as_the_chat_does() -> None:
    text = "1. **Forty** ships of `oak` <img src=x onerror=alert(1)>\n2. and *one* more"
    outcome = runs.compare_lanes([lane(text, 2.0), lane(text, 1.0)], MODEL)
    run = Run("d", "Q?", race=True, lanes=runs.race_lanes(Settings()))
    run.accumulators = [lane(text, 2.0)]
    for html in (race_view.replay(outcome, "Q?", key="k", fresh=False), race_view.recording(run)):
        assert "<strong>Forty</strong>" in html and "<code>oak</code>" in html and "<ol>" in html and "**" not in html
        assert "<img" not in html and "&lt;img src=x" in html
    for animated in (False, True):
        root = ElementTree.fromstring(race_view.svg(outcome, "Q?", animated=animated))
        words = " ".join(root.itertext())
        assert words.count("1. Forty ships of oak <img") == 2 and "2. and one more" in words


@pytest.mark.parametrize("animated", [False, True])
def test_the_picture_is_one_file_with_everything_in_it(animated: bool) -> None:
    drawn = race_view.svg(three(), "How <many> & why?\x07", animated=animated)
    root = ElementTree.fromstring(drawn)
    words = " ".join(root.itertext())
    for expected in ("How <many> & why?", "Plain decoding", "Odd <lane>", race_view.SAME, "forty ships"):
        assert expected in words
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "") and "<script" not in drawn
    bars = root.findall(".//{http://www.w3.org/2000/svg}animate")
    assert len(bars) == (3 if animated else 0)
    for bar in bars:
        times = [float(at) for at in bar.attrib["keyTimes"].split(";")]
        assert times[0] == 0 and times[-1] == 1 and times == sorted(times)
        assert len(times) == len(bar.attrib["values"].split(";"))
    assert ('visibility="hidden"' in drawn) is animated


def test_a_race_under_way_names_its_lanes() -> None:
    html = race_view.recording(Run("d", "Q?", race=True, lanes=runs.race_lanes(Settings(), "gamma2=3")))
    assert html.count("<section") == 3 and "gamma2=3" in html


def test_a_text_that_loops_or_was_spelled_is_no_race_result() -> None:
    def said(forced: int, period: int) -> str:
        answers = [lane("the keeper counted forty ships " * 8, seconds, each) for seconds, each in ((4.0, 1), (2.0, 4))]
        for answer in answers:
            answer.token_ids = [token % period for token in answer.token_ids]
        written = answers[1].figures().tokens - forced
        figures = replace(answers[1].figures(), origins={"quote": forced, "bonus": written})
        answers[1].figures = lambda: figures  # type: ignore[method-assign]
        outcome = runs.compare_lanes(answers, MODEL)
        assert ("no race result" in race_view.summary(outcome)[0]) is bool(race_view.disqualified(outcome))
        return race_view.verdict(outcome)

    assert "tf-win" in said(forced=3, period=1000) and "no race result" not in said(forced=3, period=1000)
    cases = ((said(forced=30, period=1000), "spelled from the document"), (said(forced=0, period=3), "(only 8%"))
    for html, words in cases:
        assert "no race result" in html and words in html and "2.00 times" in html and "tf-win" not in html
