"""Who wrote each token: recorded, stored, drawn; every text from outside is escaped."""

import json
import re
from html import unescape

from triforce_core import Document, Page, RoundEvent
from triforce_core.events import AttendedChunk, TierCount, TokenChance
from ui.app.accumulator import Trace
from ui.app.conversations import Answer
from ui.app.runs import Run
from ui.app.services import Services
from ui.page import chat, figures, provenance

EVIL = '<img src=x onerror=alert(1)>"'
ROUNDS = (
    RoundEvent(0, (1, 2, 3), ("draft", "n-gram", "bonus"), (TierCount("retrieval", 2, 2),),
               {"draft": 2.0, "verify": 8.0}, (0.1, 0.7, 0.2), 0.5, texts=(" The", " keeper", EVIL),
               chances=(TokenChance(0.9, ((" The", 0.9), (EVIL, 0.05))),) * 3,
               chunks=(AttendedChunk(2, "2", 8, 16, 0.25, "eeper counted fo"),
                       AttendedChunk(2, "2", 16, 24, 0.125, "rty ships."),
                       AttendedChunk(1, EVIL, 0, 8, 0.5, "Once he slep"))),
    RoundEvent(1, (4, 5), ("odd", "recovered"), (TierCount("retrieval", 3, 1),), {"verify": 8.0}, None, 0.6,
               texts=("", ".")),
)


BOOK = Document("t", "txt", (Page(EVIL, f"Some day. Once he slept {EVIL}. And so on."),
                             Page("2", "So it. The keeper counted forty ships. Then.")), "test")


def recorded() -> Trace:
    made = Trace()
    for event in ROUNDS:
        made.add(event)
    return made


def test_what_is_recorded_survives_storing() -> None:
    made = recorded()
    again = Trace(**json.loads(json.dumps(vars(made))))
    assert again == made and again.known and not Trace().known
    assert again.tokens[0] == [" The", "draft", 0, 0.9, [[" The", 0.9], [EVIL, 0.05]]]
    assert again.tokens[3] == ["", "odd", 1, None, []]
    assert again.rounds[0][3] == [[1, 0.7], [2, 0.2], [0, 0.1]] and again.rounds[1][3] == []


def test_every_token_has_its_colour_and_nothing_is_live() -> None:
    html = provenance.drawn(recorded(), f" The keeper{EVIL}.!", 2, BOOK)
    assert "<img" not in html
    spans = re.findall(r'<span class="tf-t (tf-o-[a-z-]+)">(.*?)</span>', html.split("tf-tokens")[1])
    assert [(css, unescape(text)) for css, text in spans] == [
        ("tf-o-draft", " The"), ("tf-o-n-gram", " keeper"), ("tf-o-bonus", EVIL), ("tf-o-recovered", ".")]
    assert "</span>!</div>" in html  # what no token accounts for
    data = json.loads(unescape(re.search(r'data-trace="([^"]*)"', html)[1]))
    assert len(data["tokens"]) == len(spans) and data["first"] == 2
    assert data["labels"] == [f"p. {EVIL} (1 of 2)", "p. 2"]
    assert data["passages"] == [[1, f"p. {EVIL} (1 of 2)", f"Once he slept {EVIL}.", f"1:10-{25 + len(EVIL)}"],
                                [2, "p. 2", "The keeper counted forty ships.", "2:7-38"]]
    assert data["seen"] == [[[0, 0.5], [1, 0.375]], []], "chunks of one sentence add up, round by round"
    for words in (figures.TIER_WORDS["n-gram"][0], "2/2", "1/3", "2 full passes", "8.0 ms"):
        assert words in html


def test_what_older_versions_stored_is_drawn_without_passages() -> None:
    old = recorded()
    old.rounds = [round_[:5] for round_ in old.rounds]
    html = provenance.drawn(old, " The keeper", 1, BOOK)
    data = json.loads(unescape(re.search(r'data-trace="([^"]*)"', html)[1]))
    assert data["passages"] == [] and data["seen"] == [[], []]
    assert figures.answer_charts(old) == figures.answer_charts(recorded())


def test_an_engine_that_does_not_tell_is_said_to() -> None:
    made = Trace()
    made.add(RoundEvent(0, (1,), ("bonus",), ()))
    html = unescape(provenance.drawn(made, "its words", 1, None))
    assert provenance.TRACE_UNKNOWN in html and "its words" in html


def test_live_tokens() -> None:
    run = Run("d", "Q?")
    run.accumulator.add(ROUNDS[0])
    run.accumulator.text = "The keeper"
    assert 'class="tf-t tf-o-draft"' in chat.writing(run, str, by_token=True)
    assert "tf-t" not in chat.writing(run, str) and provenance.TRACE in chat.writing(run, str)


def test_only_the_traced_answer_is_drawn_so() -> None:
    answers = [Answer(key, "c", 0.0, "Q", "Text", (1,), "done", "", {"figures": {"tokens": 1}}) for key in "ab"]
    html = chat.transcript(answers, lambda item: f"[{item.id}]", "b")
    assert html.count('aria-pressed="true"') == 1
    assert html.index("[a]") < html.index("[b]") < html.index(provenance.TRACE_OFF)


def test_traces_go_with_their_answers(services: Services) -> None:
    entry = services.database.write(
        "insert into documents (id, name, extension, bytes, added_at, state) values ('d','n','.txt',1,0,'ready')")
    assert entry == 1
    talk = services.conversations.new("d", "t")
    services.conversations.begin("a", talk.id, "Q?")
    services.conversations.save_trace("a", recorded())
    assert services.conversations.trace("a") == recorded() and services.conversations.trace("b") is None
    services.conversations.delete(talk.id)
    assert services.conversations.trace("a") is None
