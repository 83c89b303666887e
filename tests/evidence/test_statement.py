"""Facts of statements: however they are written they are the same, and what differs is counted by its kind."""

from __future__ import annotations

import pytest

from triforce_core.evidence.statement import KINDS, conflicts, facts

BOARD = "The Board appoints the Secretary for a term of four years, at least thirty days after 5 March 2021."


def differing(claim: str, passage: str, around: str = "") -> set[str]:
    counted = conflicts(facts(claim), facts(passage), set(around.lower().split()))
    return {kind for kind, count in zip(KINDS, counted, strict=True) if count}


@pytest.mark.parametrize(("text", "value"), [
    ("thirty days", 30), ("30 days", 30), ("twenty-five ships", 25), ("two hundred and six bones", 206),
    ("1,250,000 pounds", 1_250_000), ("1.25 million pounds", 1_250_000), ("a dozen eggs", 12), ("the third time", 3),
    ("Part IV", 4), ("twice a year", 2), ("in the 1990s", 1990)])
def test_numbers_have_one_form(text: str, value: float) -> None:
    assert value in facts(text).numbers


@pytest.mark.parametrize("text", ["on 5 March 2021", "on March 5, 2021", "on 2021-03-05", "on 5.3.2021"])
def test_dates_have_one_form(text: str) -> None:
    found = facts(text)
    assert {5.0, 2021.0} <= found.numbers.keys() and 3 in found.months
    assert differing("It was signed on 5 March 2021.", f"It was signed {text}.") == set()
    assert differing("It was signed on 5 April 2021.", f"It was signed {text}.") == {"number"}


@pytest.mark.parametrize("claim", [
    BOARD, "A Secretary is appointed by the Board for 4 years.", "30 days after March 5, 2021 the Board may meet.",
    "The Secretary's term has four years."])
def test_what_the_passage_says_in_other_words_differs_in_nothing_that_is_counted(claim: str) -> None:
    assert differing(claim, BOARD) <= {"opposed"}


@pytest.mark.parametrize(("claim", "kind"), [
    ("The Board appoints the Secretary for a term of six years.", "number"),
    ("The Board appoints the Secretary for a term of five years.", "unit"),
    ("The Board appoints the Secretary for a term of four months.", "unit"),
    ("The Board appoints the Treasurer for four years.", "name"),
    ("The Board does not appoint the Secretary for four years.", "negation"),
    ("The Board appoints the Secretary at most thirty days after 5 March 2021.", "opposed"),
    ("Only the Board appoints the Secretary.", "widened")])
def test_what_is_exchanged_is_counted(claim: str, kind: str) -> None:
    assert kind in differing(claim, BOARD)


def test_a_negation_of_the_passage_is_missed_in_the_claim() -> None:
    assert differing("Members receive a salary.", "Members receive no salary.") == {"negation", "polarity"}
    assert differing("Members don't receive a salary.", "Members receive no salary.") == set()


def test_names_may_stand_around_and_in_short() -> None:
    assert differing("In France the EPA decides.", "The Environmental Protection Agency decides.") == {"name"}
    assert differing("In France the EPA decides.", "The Environmental Protection Agency decides.", "France") == set()
    assert differing("The German court decides.", "A court of Germany decides.") == set()
    assert facts("Berlin decides.").names == () and facts("Then Berlin and NASA decide.").names == ("berlin", "nasa")
