"""A first chat model: what is offered on the first screen, one press, and that it answers when it is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from errands import Errands
from little_books import wait_for

from triforce_core import CuratedModel, LoadProgress, ModelFound, ModelInfo, ModelOffer, ServedModel
from triforce_core.events import GGUFDownload
from ui.app.models import FETCH, LOOK, Models
from ui.app.services import Services
from ui.page import first_model as view
from ui.page.chat import welcome

REPO = "unsloth/Some-4B-GGUF"
FOUR = CuratedModel("Some 4B", "some/four", "Apache-2.0", False, "2026-11-22", 4_020_000_000, 262_144, "Whole books.",
                    (("bf16", 8_000_000_000),), read_per_second=50.0, first=True, folder="/home/me/hub",
                    gguf=GGUFDownload(f"{REPO}:Q4_K_M", "Q4_K_M", 2_500_000_000, 40_960, 5.0),
                    disk_free=50_000_000_000)
TWO = replace(FOUR, name="Some 2B", gguf=replace(FOUR.gguf, repo="a/two:Q8_0"), disk_free=1_000_000_000)
LARGE = replace(FOUR, name="Some 8B", gguf=None, first=False)
FILE = "Some-4B-Q4_K_M.gguf"
OFFER = ModelOffer(REPO, "abc", "apache-2.0", 2_500_000_000, 2_500_000_000, (FILE,), ggufs=((FILE, 2_500_000_000),),
                   file=FILE)
HERE = ModelFound(f"{REPO}/{FILE}", f"/hub/{FILE}", "cache", 2_500_000_000,
                  info=ModelInfo("four", "", "cpu", "", "CPU", "bfloat16", 40_960, 0, 1))


TINY = "a/tiny-GGUF:Q4_K_M"


@pytest.fixture
def errands() -> Errands:
    return Errands({LOOK: [FOUR, TWO, LARGE], FETCH: [OFFER, LoadProgress(f"Fetching {FILE}: 1.0 GB of 2.5 GB", 0.4)]})


@pytest.fixture
def models(services: Services, errands: Errands) -> Models:
    services.models._send = errands
    return services.models


def idle(models: Models) -> Callable[[], bool]:
    return lambda: not models.errand and models.served is not None


def test_it_is_offered_where_none_is_there(services: Services) -> None:
    wait_for(lambda: services.queue.state == "ready")
    assert services.quotes_only
    assert 'data-action="first-models"' in welcome(None, "", view.first_model(services.models))


def test_at_most_what_was_chosen_with_size_licence_and_times(models: Models, errands: Errands) -> None:
    models.choose_first()
    wait_for(idle(models))
    html = view.first_model(models)
    for words in ("Some 4B", "2.5 GB from unsloth/Some-4B-GGUF:Q4_K_M · Apache-2.0", "Reads 60 pages in 7 min 30 s",
                  "writes an answer in 40 s", "40,960 tokens", "Download 2.5 GB and use it"):
        assert words in html, words
    assert "Some 8B" not in html and html.count('data-action="get-model"') == 1
    assert "1.0 GB free" in html, "the other one does not fit on the disk"
    assert [errand for errand, _ in errands.sent] == [LOOK], "nothing is sent before a press"
    models.served = (ServedModel("Ollama", "http://127.0.0.1:11434/v1", "qwen3:8b"),
                     ServedModel("Ollama", "http://127.0.0.1:11434/v1", "cloud", problem="sent on"))
    assert view.first_model(models).count('data-action="use-server"') == 1
    models.listed = (LARGE,)
    assert view.NONE in view.first_model(models)
    models.choose_first(False)
    assert "Some 4B" not in view.first_model(models)


def begin_to_fetch(models: Models, errands: Errands) -> None:
    models.choose_first()
    wait_for(idle(models))
    errands.hold.clear()
    models.get(FOUR.gguf.repo)
    wait_for(lambda: models.progress is not None)


def test_one_press_fetches_it_and_uses_it(services: Services, models: Models, errands: Errands) -> None:
    begin_to_fetch(models, errands)
    html = view.first_model(models)
    assert "1.0 GB of 2.5 GB" in html and 'data-action="cancel-models"' in html and "get-model" not in html
    errand, config = errands.sent[-1]
    assert (errand, config.model, config.draft_model) == (FETCH, f"{REPO}:Q4_K_M", "none") and config.allow_download
    errands.says[LOOK] = [HERE, FOUR]
    errands.hold.set()
    wait_for(lambda: services.queue.config.model == HERE.model and services.queue.state == "ready")
    assert [errand for errand, _ in errands.sent] == [LOOK, FETCH, LOOK] and not models.choosing


def test_cancel_stops_it_and_nothing_is_used(services: Services, models: Models, errands: Errands) -> None:
    begin_to_fetch(models, errands)
    models.cancel()
    assert errands.closed and not models.fetching and 'data-action="get-model"' in view.first_model(models)
    errands.hold.set()
    errands.says[LOOK] = [HERE, FOUR]
    models.look()
    wait_for(idle(models))
    assert services.queue.config.model == "builtin"


def test_only_what_is_offered_is_fetched_and_what_does_not_run_says_why(models: Models, errands: Errands) -> None:
    models.choose_first()
    wait_for(idle(models))
    models.get("evil/model:Q4_K_M")
    assert [errand for errand, _ in errands.sent] == [LOOK]
    errands.says[LOOK] = [replace(HERE, info=None, problem="needs 99 GiB"), FOUR]
    models.get(FOUR.gguf.repo)
    wait_for(lambda: models.problem == "needs 99 GiB")
    assert "needs 99 GiB" in view.first_model(models)


@pytest.mark.browser
def test_the_first_screen_in_a_browser(tab, served, errands: Errands, monkeypatch: pytest.MonkeyPatch) -> None:
    models = served.services.models
    wait_for(lambda: not models.errand)  # what a test before it has begun
    monkeypatch.setattr(models, "_send", errands)
    models._looked, models.listed = None, ()
    models.choose_first(False)
    try:
        tab.click(".tf-first [data-action=first-models]")
        errands.hold.clear()
        tab.click(".tf-choosing .tf-model:has-text('Some 4B') [data-action=get-model]", timeout=20_000)
        tab.wait_for_selector(".tf-choosing .tf-model:has-text('Some 4B') .tf-meter-big")
        tab.click(".tf-choosing [data-action=cancel-models]")
        tab.wait_for_selector(".tf-choosing [data-action=get-model]")
        tab.click(".tf-choosing [data-action=leave-first]")
        tab.wait_for_selector(".tf-first [data-action=first-models]")
    finally:
        errands.hold.set()
        wait_for(lambda: not models.errand)
        models.listed, models.problem, models.refused = (), "", ""
        models.choose_first(False)


def test_a_known_draft_model_comes_with_it(models: Models, errands: Errands) -> None:
    """It is counted in the size that a person agrees to, and is not the model that is used then."""
    with_draft = replace(FOUR, gguf=replace(FOUR.gguf, drafter=TINY, drafter_nbytes=400_000_000))
    small = replace(OFFER, repo="a/tiny-GGUF", nbytes=400_000_000, file="tiny-Q4_K_M.gguf")
    errands.says |= {LOOK: [with_draft], FETCH: [OFFER, small, LoadProgress("Fetching", 0.4)]}
    models.choose_first()
    wait_for(idle(models))
    html = view.first_model(models)
    assert f"with its draft model, 400 MB from {TINY}" in html and "Download 2.9 GB and use it" in html
    errands.says[LOOK] = [HERE, with_draft]
    used: list[ModelFound] = []
    models.on_here = used.append
    models.get(f"{REPO}:Q4_K_M")
    wait_for(lambda: bool(used) or bool(models.problem))
    assert used == [HERE] and errands.sent[1][1].draft_model == TINY
