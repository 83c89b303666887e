"""Branches, names, search and exports of conversations, on the database alone and through the scripted engine."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from little_books import asked, make_document, phase, wait_for, write_book

from triforce_core import Document, Page, TriForceError
from ui.app import questions as starters
from ui.app.conversations import Conversation, Conversations
from ui.app.database import Database
from ui.app.library import Library
from ui.app.questions import SAME_SEED_TITLE, WARMER, WARMER_TITLE
from ui.app.services import Services
from ui.app.settings import Settings
from ui.app.tab_view import LISTED, TabView
from ui.page import chat, export
from ui.page import conversations as talks_panel
from ui.page import figures as figures_panel
from ui.page import library as library_panel
from ui.page import strip as strip_panel
from ui.page.export import exported
from ui.page.layout import Painter

EVIL = '<img src=x onerror=alert(1)> ![a](http://evil.example/?q=1) <script>alert(1)</script>'


@pytest.fixture
def talks(tmp_path: Path) -> Conversations:
    database = Database(tmp_path / "app.sqlite")
    (tmp_path / "library").mkdir()
    library = Library(database, tmp_path / "library")
    library.add(write_book(tmp_path, "a.txt"))
    return Conversations(database)


def document_of(talks: Conversations) -> str:
    return talks._database.rows("select id from documents")[0]["id"]


def say(talks: Conversations, talk: Conversation, key: str, text: str, parent: str | None = None) -> None:
    talks.begin(key, talk.id, f"Question {key}?", parent)
    talks.save(key, text=text, token_ids=(1,), state="done", error="", result={"figures": {"tokens": 3}})


def shown(talks: Conversations, talk: Conversation) -> list[str]:
    return [answer.id for answer in talks.answers(talk.id)]


def test_a_branch_leaves_the_earlier_one_reachable(talks: Conversations) -> None:
    talk = talks.new(document_of(talks), "x")
    for key in ("a", "b", "c"):
        say(talks, talk, key, key)
    say(talks, talk, "b2", "other", parent="a")
    say(talks, talk, "d2", "on", parent=None)
    assert shown(talks, talk) == ["a", "b2", "d2"]
    assert talks.versions(talk.id) == {"b": ("b", "b2"), "b2": ("b", "b2")}
    assert [turn.question for turn in talks.history(talk.id, "c")] == ["Question a?", "Question b?", "Question c?"]
    talks.show("b")
    assert shown(talks, talk) == ["a", "b", "c"]  # down to its newest end
    say(talks, talk, "a2", "first", parent="")
    assert shown(talks, talk) == ["a2"] and len(talks.every_answer(talk.id)) == 6


@pytest.mark.parametrize("full_text", [True, False])
def test_search(talks: Conversations, full_text: bool) -> None:
    database = talks._database
    assert database.full_text, "this Python's SQLite has FTS5"
    database.full_text = full_text
    one, two = talks.new(document_of(talks), "Ships"), talks.new(document_of(talks), "100% sure_")
    say(talks, one, "a", "The harbour café was quiet; nobody counted.")
    say(talks, two, "b", "Nothing about it.")
    say(talks, two, "c", "漁船は静かな港に")

    def found(words: str) -> list[tuple[str, str]]:
        return [(hit.conversation.id, hit.answer) for hit in talks.search(words)]

    assert found("harb count") == [(one.id, "a")]  # beginnings of words, all of them
    assert found("ships") == [(one.id, "")]
    assert found("100% sure") == [(two.id, "")] and found('"x" OR * (') == [] and found("  % ( ") == []
    assert found("静かな") == [(two.id, "c")]  # a script without spaces
    assert found("question") != []
    hit = talks.search("harbour")[0]
    assert hit.excerpt[slice(*hit.found)] == "harbour"
    talks.save("a", text="Rewritten.", token_ids=(1,), state="done", error="", result={})
    assert found("harbour") == [] and found("rewritten") == [(one.id, "a")]
    talks.delete(one.id)
    assert found("rewritten") == []


def test_names(talks: Conversations) -> None:
    talk = talks.new(document_of(talks), "x")
    talks.rename(talk.id, "  The keeper's\n ships ")
    assert talks.get(talk.id).title == "The keeper's ships"
    talks.rename(talk.id, "   ")
    assert talks.get(talk.id).title == "The keeper's ships"


def live_parts(page: str) -> set[str]:
    """The names of all attributes that a browser would see, and the tags that could fetch or run something."""
    seen: set[str] = set()

    class Looker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.update(name for name, _ in attrs)
            seen.update({tag} & {"img", "script", "iframe", "link", "form", "object", "a"})

    Looker().feed(page)
    return seen


def test_exports_hold_everything_and_nothing_live(talks: Conversations) -> None:
    talk = talks.new(document_of(talks), EVIL)
    say(talks, talk, "a", f"{EVIL}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode <b>\n```")
    say(talks, talk, "b", "first version")
    say(talks, talk, "b2", "second version", parent="a")
    whole = export.Talk(talks.get(talk.id), EVIL, 9, talks.answers(talk.id), talks.every_answer(talk.id),
                        talks.versions(talk.id))
    name, page = export.export(whole, "html")
    assert re.fullmatch(r"[\w.-]+\.html", name)
    assert "<table>" in page and "code &lt;b&gt;" in page and "3 tokens" not in page
    assert live_parts(page) <= {"content", "charset", "name", "http-equiv", "class", "data-copy", "type",
                                "a", "href", "rel", "target", "title"}  # links wait for a click
    assert not re.search(r"url\(|@import", page)
    assert "&lt;img" in page and "first version" not in page and "Version 2 of 2" in page
    _, text = export.export(whole, "md")
    assert "## Question b2?" in text and "second version" in text and "3 tokens" not in text
    _, data = export.export(whole, "json")
    kept = json.loads(data)
    assert [(each["id"], each["parent"]) for each in kept["answers"]] == [("a", None), ("b", "a"), ("b2", "a")]
    assert kept["shown"] == ["a", "b2"] and kept["answers"][0]["figures"]["tokens"] == 3


def test_exports_name_every_citation(talks: Conversations) -> None:
    """Also the last of many, and every page on which one stands."""
    talk = talks.new(document_of(talks), "x")
    text, quotes = "", []
    for number in range(7):
        places = [{"page": at, "label": f"L{number}-{at}", "start": 0, "end": 9} for at in (1, 2, 3)]
        quotes.append({"number": number, "start": len(text) + 1, "end": len(text) + 15, "closed": True, "count": 2,
                       "occurrences": [{"start": 0, "end": 1, "places": places[:2]},
                                       {"start": 2, "end": 3, "places": places[2:]}]})
        text += f"“quotation no {number}” "
    for key in ("a", "b"):
        talks.begin(key, talk.id, "Where?")
        talks.save(key, text=text, token_ids=(1,), state="done", error="", result={"quotes": quotes})
    whole = export.Talk(talks.get(talk.id), "Book", 9, talks.answers(talk.id), talks.every_answer(talk.id), {})
    for kind in ("md", "html"):
        made = export.export(whole, kind)[1]
        for number in range(7):
            line = f"“quotation no {number}” p. L{number}-1 (1 of 9), p. L{number}-2 (2 of 9), p. L{number}-3 (3 of 9)"
            assert made.count(line) == 2, (kind, number)


def test_ten_thousand_conversations_cost_a_question_no_more_than_a_hundred(services: Services, view: TabView) -> None:
    """Counted in steps of SQLite's machine and in characters that are sent."""
    run = services.ask(view, "How many harbours?")
    wait_for(lambda: run.ended and services.conversations.answer(run.id).state == "done")
    connection, drawn = services.database._connection, {}
    parts = (library_panel, strip_panel, figures_panel, chat, talks_panel)
    panels = [panel for part in parts for panel in part.panels(services)]
    painter = Painter(panels, view, clock=itertools.count().__next__)

    def cost() -> int:
        steps = itertools.count()
        connection.set_progress_handler(lambda: next(steps) and None, 10)
        asked(services, view, "And how many ships?")
        services.conversations.version += 1
        drawn.update(painter.changes())
        services.open(TabView(), view.document)
        connection.set_progress_handler(None, 10)
        return 10 * next(steps)

    def add(first: int, last: int) -> None:
        with connection:
            connection.executemany(
                "insert into conversations select 'talk ' || :n, document, 'Talk ' || :n, created_at, created_at - :n,"
                " 'answer ' || :n, system, null from conversations where id = :talk", [
                    {"n": n, "talk": view.conversation} for n in range(first, last)])
            connection.executemany(
                "insert into answers (id, conversation, created_at, question, text, state, result, parent)"
                " select 'answer ' || :n, 'talk ' || :n, created_at - :n, question, text, state, result, ''"
                " from answers where id = :answer", [{"n": n, "answer": run.id} for n in range(first, last)])

    add(0, 300)
    few = cost()
    add(300, 10_000)
    many = cost()
    listed = drawn["documents"]
    assert listed.count("tf-talk-open") == LISTED == 100 and "more-conversations" in listed
    assert many < 2 * few, (few, many)
    view.listed += LISTED
    assert painter.changes()["documents"].count("tf-talk-open") == 200
    assert len(services.conversations.recent(view.document, 50)) == 50


def test_starters_ask_about_what_is_there() -> None:
    text = ("Of the harbour, Captain Ahab said little; and so Captain Ahab sailed, with Queequeg, and with Queequeg "
            "again. When Captain Ahab spoke, then Queequeg heard. ")
    pages = tuple(Page(str(i), f"Chapter {i}\n\nThe White Whale\n\n{text}") for i in range(1, 9))
    book = Document("t", "pdf", pages, "x")
    questions = starters.starters(book)
    assert len(questions) == len(set(questions)) == 5 and questions[-1] == starters.STARTER_WHOLE
    assert "Captain Ahab" in questions[0] + questions[1] and "Queequeg" in questions[0] + questions[1]
    assert "The White Whale" in questions[3]
    dull = "We saw The end, The sea, The end of it, and the end of the sea, in TriForce, by TriForce, of TriForce. "
    assert starters.names(Document("t", "txt", (Page("1", dull),), "x")) == ["TriForce"]
    assert starters.starters(make_document(1))[-1] == starters.STARTER_WHOLE


def test_ask_again_edit_and_find(services: Services, tmp_path: Path, script,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    view = TabView()
    services.add(view, [(write_book(tmp_path, "a.txt"), "a.txt")])
    wait_for(lambda: phase(services, view) == "ready")

    def ask(words: str) -> str:
        run = services.ask(view, words)
        wait_for(lambda: run.ended and services.conversations.answer(run.id).state == "done")
        return run.id

    services.keep(Settings(temperature=0.8))
    first, second = ask("How many ships?"), ask("And the storm?")
    run = services.ask_again(view, first)
    wait_for(lambda: run.ended and services.conversations.answer(run.id).state == "done")
    before, after = services.conversations.answer(first), services.conversations.answer(run.id)
    assert after.question == before.question and after.text != before.text  # another seed
    assert [answer.id for answer in services.conversations.answers(view.conversation)] == [run.id]
    assert view.notice is None
    services.find(view, view.conversation, second)
    assert [answer.id for answer in services.conversations.answers(view.conversation)] == [first, second]
    view.editing = second
    third = ask("And the calm?")
    assert [answer.id for answer in services.conversations.answers(view.conversation)] == [first, third]
    assert view.editing is None
    services.keep(Settings())
    engine, temperatures = services.queue._engine, []
    ask_engine = engine.ask
    monkeypatch.setattr(engine, "ask", lambda *given: temperatures.append(given[2].temperature) or ask_engine(*given))
    for follows, title in ((False, SAME_SEED_TITLE), (True, WARMER_TITLE)):  # one that only quotes has one answer
        told_services(services, follows)
        third = (run := services.ask_again(view, third)).id
        assert view.notice[1] == title
        wait_for(lambda: run.ended and services.conversations.answer(run.id).state == "done")
    assert temperatures == [0.0, WARMER]
    _, kind, content = exported(services, view.conversation, "json")
    assert kind == "application/json" and len(json.loads(content)["answers"]) == 6
    assert exported(services, view.conversation, "exe") is None and exported(services, "none", "md") is None


def told_services(services: Services, follows: bool) -> None:
    """As if a chat model were loaded, or one that follows nothing."""
    wait_for(lambda: services.queue.model is not None)
    made = dataclasses.replace(services.queue.model, instructions=follows)
    services.queue.model = services.queue._engine._model = made


def test_instructions_belong_to_a_conversation_and_reach_the_model(services: Services, tmp_path: Path) -> None:
    path, view = write_book(tmp_path, "a.txt"), TabView()
    services.add(view, [(path, path.name)])
    wait_for(lambda: services.queue.open_key is not None)
    told_services(services, True)
    services.questions.instruct(view, " Answer in *French*. ")
    assert view.system == "Answer in *French*."

    def ask(words: str) -> str:
        run = asked(services, view, words)
        assert run.state == "done", run.error
        wait_for(lambda: services.conversations.answer(run.id).state == "done")
        return run.accumulator.text

    assert ask("How many?").endswith("It was told: Answer in *French*.") and view.system == ""
    first = view.conversation
    assert services.conversations.get(first).system == "Answer in *French*."
    with pytest.raises(TriForceError, match=r"4,?001 characters.*4,?000 at most"):  # whatever a browser lets through
        services.questions.instruct(view, "x" * 4001)
    services.questions.instruct(view, "Be brief.")
    assert ask("And when?").endswith("It was told: Be brief.")
    view.conversation = None
    assert "told" not in ask("Another talk?"), "another conversation has none"
    view.conversation = first
    _, _, content = exported(services, first, "json")
    made = json.loads(content)
    assert made["instructions"] == "Be brief."
    assert [answer["instructions"] for answer in made["answers"]] == ["Answer in *French*.", "Be brief."]
    for kind in ("md", "html"):
        _, _, content = exported(services, first, kind)
        assert "Instructions: Be brief." in content
        assert "Written with other instructions: Answer in *French*." in content


def test_instructions_are_never_dropped_silently(services: Services, tmp_path: Path) -> None:
    """A model that follows none: writing some is refused, asking with some is refused, taking them away is not."""
    path, view = write_book(tmp_path, "a.txt"), TabView()
    services.add(view, [(path, path.name)])
    wait_for(lambda: services.queue.open_key is not None)
    told_services(services, False)
    with pytest.raises(TriForceError, match="follows no instructions"):
        services.questions.instruct(view, "Be brief.")
    told_services(services, True)
    services.questions.instruct(view, "Be brief.")
    told_services(services, False)
    with pytest.raises(TriForceError, match="Remove them"):
        services.ask(view, "How many?")
    assert view.conversation is None, "no conversation is left behind"
    services.questions.instruct(view, talks_panel.wanted(services, "Be brief."))
    run = asked(services, view, "How many?")
    assert run.state == "done"
