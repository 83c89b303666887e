"""Questions from outside any conversation: about a document that does not stand in the library, counted when ended."""

from __future__ import annotations

import threading
from pathlib import Path

from little_books import make_document, wait_for, write_book

from triforce_core import Document, EngineScript, Page, SamplingParams, SpeculationConfig
from ui.state.jobs import Request, Selection
from ui.state.runs import Run
from ui.state.services import Services
from ui.state.tab_view import View


def answer(services: Services, guest: Document, question: str = "How many ships?", heard=lambda: None) -> Run:
    run = services.desk.answer(Request(Selection.of_guest(guest), question, SamplingParams(),
                                       (("", SpeculationConfig()),)), heard)
    wait_for(lambda: run.ended)
    return run


def test_a_guest_is_read_answered_and_forgotten(services: Services) -> None:
    guest, heard = make_document(4), threading.Event()
    run = answer(services, guest, heard=heard.set)
    assert run.state == "done" and len(run.fold.page_shares()) == 4 and heard.is_set()
    assert not services.library.entries() and guest.id not in services.desk.fits
    assert services.desk.open_key == (guest.id, ((1, 4),))


def test_a_guest_that_does_not_fit_says_need_and_have(services: Services, script: EngineScript) -> None:
    guest = make_document(40, words=2000)
    run = answer(services, guest)
    assert run.state == "failed" and run.fit is not None and run.fit.tokens > run.fit.max_tokens


def test_the_page_s_document_comes_back_after_a_guest(services: Services, tmp_path: Path) -> None:
    view, guest = View(), make_document(2)
    services.add(view, [(write_book(tmp_path, "a.txt"), "a.txt")])
    answer(services, guest)
    run = services.ask(view, "How many ships?")
    wait_for(lambda: run.ended)
    assert run.state == "done" and len(run.fold.page_shares()) == 6


def test_the_tally_counts_answers_and_holds_no_words(services: Services) -> None:
    guest = make_document(2)
    document = type(guest)(guest.title, guest.kind, (Page("1", "A secret of the harbour was kept."),), guest.reader)
    run = answer(services, document, "What secret?")
    tally = services.desk.tally
    assert tally.answers == {"done": 1} and tally.tokens["generated"] == len(run.fold.token_ids)
    assert tally.tested["retrieval"] >= tally.accepted["retrieval"] > 0 and "secret" not in repr(vars(tally))
