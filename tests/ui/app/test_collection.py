"""Documents that are read together: one entry of the library, weighed, asked about, each page from its own file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from little_books import asked, make_document, phase, wait_for, write_book, write_pdf
from page_client import client

from triforce_core import EngineConfig, TriForceError
from ui.app.context_budget import Part, Weighing
from ui.app.services import NEW_TALK, Services
from ui.app.tab_view import TabView
from ui.page import document_head, markdown, page_choice
from ui.page.export import exported
from ui.page.page_choice import DROP_MORE, ROOM_UNKNOWN


@pytest.fixture
def two(services: Services, tmp_path: Path) -> tuple[str, str]:
    """A text and a PDF, both taken in."""
    paths = write_book(tmp_path, "Harbour letters.txt", 5), write_pdf(tmp_path, "Lighthouse.pdf", 4)
    for path in paths:
        services.extractor.extract(services.library.add(path).id)
    wait_for(lambda: all(entry.state == "ready" for entry in services.library.entries()))
    names = {entry.name: entry.id for entry in services.library.entries()}
    return names["Harbour letters.txt"], names["Lighthouse.pdf"]


def read_together(services: Services, keys: tuple[str, ...]) -> TabView:
    view = TabView(picking=keys)
    services.read_together(view)
    wait_for(lambda: phase(services, view) == "ready")
    return view


def test_one_entry_for_the_same_documents_in_the_same_order(services: Services, two) -> None:
    first = services.library.combine(two)
    assert first.parts == two and first.pages == 9 and first.state == "ready"
    assert first.title == "Harbour letters + Lighthouse" and services.library.combine(two).id == first.id
    assert services.library.combine(two[::-1]).id != first.id
    assert services.library.combine([first.id, two[0]]).id == first.id  # what it is made of, each once
    assert {entry.id for entry in services.library.holding(two[0])} == {
        entry.id for entry in services.library.entries() if entry.parts}
    services.library._read.clear()
    document = services.library.document(first.id)
    assert [page.label for page in document.pages[4:6]] == ["Harbour letters, 5", "Lighthouse, 1"]
    for bad in ((), (two[0],), (two[0], two[0]), (two[0], "nothing")):
        with pytest.raises(TriForceError, match="at least two"):
            services.library.combine(bad)


def test_pages_come_from_their_own_files(services: Services, two) -> None:
    whole = services.library.combine(two)
    letters, lights = map(services.library.get, two)
    assert [services.library.place(whole, page) for page in (1, 5, 6, 9)] == [
        (letters, 1), (letters, 5), (lights, 1), (lights, 4)]
    assert services.library.place(lights, 3) == (lights, 3)

    get = client(services).get
    assert get(f"/pages/{whole.id}/6/picture?width=90").content == get(f"/pages/{two[1]}/1/picture?width=90").content
    assert get(f"/pages/{whole.id}/5/picture").status_code == 404  # a text has none
    assert get(f"/pages/{whole.id}/10/text").status_code == get(f"/pages/{whole.id}/0/picture").status_code == 404
    page = get(f"/pages/{whole.id}/7/text", params={"spot": "7:0-30"}).json()
    assert page["title"] == "Lighthouse, page 2 (7 of 9)" and page["pieces"] and page["marks"]
    assert get(f"/pages/{whole.id}/5/text").json()["text"] == services.library.document(two[0]).pages[4].text
    hits = get(f"/pages/{whole.id}/find", params={"words": "counted 301 ships"}).json()["hits"]
    assert [hit["page"] for hit in hits] == [3, 8]


def test_they_are_read_and_asked_about(services: Services, two, script) -> None:
    view = TabView()
    services.open(view, two[0])
    wait_for(lambda: services.phase(services.library.get(two[0])) == "ready")
    asked(services, view, "First?")
    alone = services.queue.opened[two[0]].tokens
    page_choice.actions(services)["together"](view, {})
    assert view.picking == (two[0],)
    page_choice.actions(services)["pick"](view, {"document": two[1]})
    services.read_together(view)
    assert view.conversation is None and view.notice[1] == NEW_TALK and "2 documents" in view.notice[2]
    assert len(services.conversations.of(two[0])) == 1
    wait_for(lambda: phase(services, view) == "ready")
    assert services.queue.opened[view.document].tokens > alone
    script.answer = 'It was "counted 201 ships before" [p. Lighthouse, 2].'
    run = services.ask(view, "How many?")
    wait_for(lambda: services.conversations.answer(run.id).state == "done")  # kept a moment after it ended
    shares = services.conversations.answers(view.conversation)[0].result["page_shares"]
    assert len(shares) == 9
    html = markdown.Citations(services.finders).render(script.answer, services.library.document(view.document),
                                                        view.document)
    chips = [part.split(">")[1].split("<")[0] for part in html.split('class="tf-cite"')[1:]]
    assert chips == ["Lighthouse, p. 2 (7 of 9)", "Harbour letters, p. 2 (2 of 9)"] and 'data-page="7"' in html
    *_, content = exported(services, view.conversation, "md")
    assert "Harbour letters + Lighthouse" in content
    page_choice.actions(services)["together"](view, {})
    assert view.picking == two  # what it is made of


def test_weighing_says_what_to_leave_out(services: Services, two) -> None:
    weighing = services.collection.weigh(two)
    assert all(part.estimated for part in weighing.parts) and weighing.room == 0
    view = read_together(services, two)
    entry = services.library.get(view.document)
    counted = services.collection.of(entry)
    fit = services.queue.fits[entry.id]
    assert sum(part.tokens for part in counted.parts) == fit.tokens and counted.most == fit.max_tokens
    assert counted.most + counted.room == services.queue.model.max_context
    parts = tuple(Part(name, tokens) for name, tokens in (("A", 500), ("B", 300), ("C", 100)))
    over = Weighing(parts, 650, 50)
    assert over.over == 250 and [part.title for part in over.enough] == ["B", "A"]
    assert "Without “B” it would fit." in page_choice.verdict(over)
    assert DROP_MORE in page_choice.verdict(Weighing(parts, 300, 0))
    assert "tf-good" in page_choice.verdict(Weighing(parts, 900, 0)) and not Weighing(parts, 900, 0).enough


def test_what_fits_is_what_was_counted_last(services: Services, two, tmp_path) -> None:
    """Also where it is a document that was counted before."""
    fits, queue = {}, services.queue
    for key in two:
        services.open(TabView(), key)
        wait_for(lambda key=key: key in queue.fits and queue.open_key and queue.open_key[0] == key)
        fits[key] = queue.fits[key]
    queue.fits[two[0]] = dataclasses.replace(fits[two[0]], limited_by="memory", max_tokens=1)  # it is counted anew
    services.open(TabView(), two[0])
    wait_for(lambda: queue.open_key is not None and queue.open_key[0] == two[0])
    queue.fits[two[0]] = dataclasses.replace(fits[two[0]], max_tokens=777)
    assert services.collection.weigh(two).most == 777


def test_nothing_is_too_much_before_a_model_is_loaded(services: Services, two, monkeypatch) -> None:
    monkeypatch.setattr(services.queue, "model", None)
    drawn = page_choice.picked_budget(services.collection.weigh(two))
    assert ROOM_UNKNOWN in drawn and "tf-bad" not in drawn and "tf-budget" not in drawn


def test_too_much_together_offers_those_that_fit_whole(services: Services, two) -> None:
    services.library.combine(two)
    services.open(view := TabView(), two[0])
    wait_for(lambda: services.phase(services.library.get(two[0])) == "ready")
    services.queue.reconfigure(EngineConfig(max_context=1024 + services.queue.fits[two[0]].tokens + 40))
    view.picking = two
    services.read_together(view)
    wait_for(lambda: phase(services, view) == "too_long")
    entry = services.library.get(view.document)
    page_choice.actions(services)["choose-pages"](view, {})
    assert services.choosing(view) == entry
    view.notice = ("info", NEW_TALK, "")
    (card,) = [panel for panel in document_head.panels(services) if panel.name == "notice"]
    assert card.key(view) == (None, "", "", 0) and card.draw(view) == ""  # nothing is read together yet
    page_choice.actions(services)["together"](view, {})
    assert services.choosing(view) is None  # one box at a time: Escape closes what was opened last
    view.picking = None
    assert services.collection.suggestion(entry) == ((1, 5),)  # the first one whole, not a part of the second
    services.choose_pages(view, "1-5")
    wait_for(lambda: phase(services, view) == "ready")
    assert [part.tokens > 0 for part in services.collection.of(services.library.get(entry.id)).parts] == [True, False]
    assert NEW_TALK in card.draw(view)


def test_a_part_is_not_deleted_from_under_them(services: Services, two) -> None:
    view = read_together(services, two)
    with pytest.raises(TriForceError, match="part of"):
        services.delete(TabView(), two[0])
    services.delete(view, view.document)
    assert view.document is None and len(services.library.entries()) == 2
    services.delete(TabView(), two[0])
    assert len(services.library.entries()) == 1


def test_a_part_that_reads_otherwise_changes_them_too(services: Services, two) -> None:
    whole = services.library.get(read_together(services, two).document)
    services.library.update(whole.id, chosen="7-9")
    services.library.store(two[0], make_document(2, "Harbour letters"))
    now = services.library.get(whole.id)
    assert now.pages == 6 and now.chosen == "" and len(services.library.document(whole.id).pages) == 6
    # what was counted is of other pages
    assert services.collection.of(now) is None and services.collection.fit(now) is None
    services.read(whole.id)
    wait_for(lambda: services.collection.fit(now) is not None)
    (services.folders.library / two[0] / "document.json").unlink()
    services.library._read.clear()
    with pytest.raises(TriForceError, match="Open it alone"):
        services.read(whole.id)


def test_an_answer_names_pages_of_several_words() -> None:
    labels = ["Moby Dick, 8", "Moby Dick, 85", "Moby"]
    named = markdown.named_page
    assert named(" [p. Moby Dick, 85].", labels) == "Moby Dick, 85"
    assert named(" (page Moby Dick, 8)", labels) == "Moby Dick, 8"
    assert named(" [p. 85].", labels) == "85" and named(" [p. Moby].", labels) == "Moby"
    assert named(" [p. Moby Dick, 851]", labels) == "Moby"
