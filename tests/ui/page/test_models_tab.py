"""The models tab: what it says of each model, its errands, and loading one without losing anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest
from errands import Errands
from little_books import wait_for, write_book

from triforce_core import (
    ClassFit,
    CuratedModel,
    DraftChoice,
    EngineConfig,
    Fit,
    LoadProgress,
    MemoryPlan,
    ModelFound,
    ModelInfo,
    ModelOffer,
)
from triforce_core.errors import ModelNotFoundError
from triforce_core.events import DraftPromise, GGUFDownload
from ui.app.models import FETCH, LOOK, OFFER, TRY, Models, remembered
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import models as models_view

GIB = 2**30
EVIL = '<img src=x onerror=alert(1)>"'
PLAN = MemoryPlan("on-chip", "", 32_768, 15 * GIB, GIB // 8, 0, 131_072, 4 * GIB, 0, 0, GIB, 0, GIB, 32, 32, 80 * GIB,
                  0, 0, 131_072)
INFO = ModelInfo("big", "small", "on-chip", "", "H200", "bfloat16", 131_072, 15 * GIB, 131_072, PLAN)
BIG = ModelFound("some/big", "some/big", "cache", 15 * GIB, "LlamaForCausalLM", 8_030_000_000, 131_072,
                 (DraftChoice("small", "/m/small", 160_000_000),
                  DraftChoice("odd", "/m/odd", 90_000_000, "another vocabulary")),
                 "/m/small", INFO, "", 131_072)
BUILTIN = ModelFound("builtin", "builtin", "built-in", 30_000_000, "LlamaForCausalLM", 29_900_000, 32_768, (),
                     "builtin", replace(INFO, name="built-in"), "", 32_768)
HUGE = replace(BIG, name="huge", model="/m/huge", info=None, longest=9_000,
               problem="131,072 tokens of context need 99.0 GiB")
HOSTILE = replace(HUGE, name=EVIL, model=EVIL, problem=EVIL, drafts=(DraftChoice(EVIL, EVIL, 1),))
THE_OFFER = ModelOffer("some/big", "abc", "llama3", 16_000_000_000, 4_000_000_000, ("config.json", "model.safetensors"),
                       "/home/me/hub", 50_000_000_000)
LISTED = CuratedModel("Some 4B", "some/four", "Apache-2.0", False, "2026-11-22", 4_020_000_000, 262_144, "Whole books.",
                      (("bf16", 8_000_000_000),), False, "some/tiny", "Some 0.6B", 2_000_000_000, recommended=True,
                      plan=PLAN, tokens_per_second=5.7, rate_tokens=16_384, read_per_second=300.0,
                      classes=(ClassFit("8 GB laptop", 0, 0.0), ClassFit("24 GB card", 262_144, 80.0, "int4")),
                      folder="/home/me/hub", disk_free=50_000_000_000)
TOO_LARGE = CuratedModel("Some 70B", "some/seventy", "Llama 3.1 Community License", True, "2026-11-22", 70_000_000_000,
                         131_072, "Everything.", (("bf16", 141_000_000_000),), problem="It needs 99 GiB",
                         classes=(ClassFit("8 GB laptop", 0, 0.0), ClassFit("24 GB card", 8192, 1.0)),
                         folder="/home/me/hub", disk_free=50_000_000_000)


@pytest.fixture
def errands() -> Errands:
    return Errands({LOOK: [BUILTIN, BIG, HUGE], OFFER: [THE_OFFER],
                    FETCH: [THE_OFFER, LoadProgress("Fetching model.safetensors: 1.0 GB", 0.25)]})


@pytest.fixture
def models(tmp_path: Path, errands: Errands) -> Models:
    return Models(tmp_path / "model.json", lambda: EngineConfig(max_context=32_768), errands)


def idle(models: Models) -> Callable[[], bool]:
    return lambda: not models.errand


def test_nothing_is_sent_before_a_button_is_pressed(models: Models, errands: Errands) -> None:
    models.fetch()
    assert errands.sent == [] and models.stale
    models.look(" /m ")
    wait_for(idle(models))
    errand, config = errands.sent[-1]
    assert errand == LOOK and config.model_folders == ("/m",) and config.max_context == 32_768
    assert not config.allow_download, "looking around on this machine needs no network"
    assert [model.name for model in models.found] == ["builtin", "some/big", "huge"]


def test_a_search_shows_that_it_runs_where_it_was_pressed(models: Models, errands: Errands) -> None:
    made = models_view.panels(SimpleNamespace(models=models, queue=None))  # type: ignore[arg-type]
    look, ask = (next(panel for panel in made if panel.name == name) for name in ("models_look", "models_ask"))
    rest = look.draw(TabView()), ask.draw(TabView())
    assert [(one["value"], one["interactive"]) for one in rest] == [("Look for models", True), ("Look it up", True)]
    errands.hold.clear()
    before = look.key(TabView())
    models.look()
    assert look.key(TabView()) != before
    assert (look.draw(TabView())["value"], look.draw(TabView())["interactive"]) == ("Looking…", False)
    assert (ask.draw(TabView())["value"], ask.draw(TabView())["interactive"]) == ("Look it up", False)
    errands.hold.set()
    wait_for(idle(models))
    assert look.draw(TabView())["value"] == "Look for models"


def test_offer_then_fetch_then_a_new_look(models: Models, errands: Errands) -> None:
    models.ask_hub(" some/big ")
    wait_for(idle(models))
    assert models.offer == THE_OFFER and [errand for errand, _ in errands.sent] == [OFFER]
    assert errands.sent[0][1].allow_download and errands.sent[0][1].model == "some/big"
    html = models_view.board(models, EngineConfig(), None)
    assert "16.0 GB" in html and "4.0 GB" in html and "llama3" in html and 'data-action="fetch-model"' in html
    errands.hold.clear()
    models.fetch()
    wait_for(lambda: models.progress is not None)
    html = models_view.board(models, EngineConfig(), None)
    assert "model.safetensors: 1.0 GB" in html and 'data-action="cancel-models"' in html
    models.cancel()
    assert not models.errand and models.offer == THE_OFFER and errands.closed >= 1
    errands.hold.set()
    models.fetch()
    wait_for(lambda: models.offer is None and not models.stale and not models.errand)
    assert [errand for errand, _ in errands.sent] == [OFFER, FETCH, FETCH, LOOK]


def test_a_repository_of_gguf_files_shows_them(models: Models, errands: Errands) -> None:
    """The one that would be fetched, and a button for each other one."""
    errands.says[OFFER] = [replace(THE_OFFER, names=("b-Q4_K_M.gguf",), file="b-Q4_K_M.gguf", ggufs=(
        ("b-Q4_K_M.gguf", 2_500_000_000), ("b-Q8_0.gguf", 4_280_000_000)))]
    models.ask_hub("some/big:Q4_K_M")
    wait_for(idle(models))
    html = models_view.board(models, EngineConfig(), None)
    assert "b-Q4_K_M.gguf: 1 file, 16.0 GB" in html and 'data-repo="some/big:b-Q8_0.gguf"' in html
    assert html.count('data-action="ask-file"') == 1 and "b-Q8_0.gguf, 4.3 GB" in html
    models.fetch()
    wait_for(lambda: errands.sent[-1][0] == LOOK and not models.errand)
    assert [config.model for errand, config in errands.sent if errand == FETCH] == ["some/big:b-Q4_K_M.gguf"]


def test_what_went_wrong_is_said(models: Models, errands: Errands) -> None:
    errands.says[OFFER] = [ModelNotFoundError("no/such could not be looked up", remedy="Check the name.")]
    models.ask_hub("no/such")
    wait_for(idle(models))
    html = models_view.board(models, EngineConfig(), None)
    assert "no/such could not be looked up. Check the name." in html and 'role="alert"' in html


def test_trying_a_draft_model_shows_how_it_goes_where_it_was_pressed(models: Models, errands: Errands) -> None:
    models.look()
    wait_for(idle(models))
    errands.says[TRY] = [LoadProgress("Trying small as draft model of big", 0.5)]
    errands.hold.clear()
    models.try_draft(BIG.model, "/m/small")
    wait_for(lambda: models.progress is not None)
    top, rest = models_view.board(models, EngineConfig(), None).split("some/big", 1)
    assert "cancel-models" not in top and "tf-meter-big" not in top
    own, others = rest.split('data-model="/m/huge"')[0].split(f"<details open><summary>{models_view.DRAFTS}")
    assert "Trying small as draft model of big" in others and 'data-action="cancel-models"' in others
    assert "cancel-models" not in own and others.count("tf-meter-big") == 1
    errands.hold.set()
    wait_for(lambda: errands.sent[-1][0] == LOOK and not models.errand)
    assert f"<details open><summary>{models_view.DRAFTS}" in models_view.board(models, EngineConfig(), None)
    errands.says[TRY] = [ModelNotFoundError("small is gone", remedy="Look again.")]
    models.try_draft(BIG.model, "/m/small")
    wait_for(idle(models))
    top, rest = models_view.board(models, EngineConfig(), None).split("some/big", 1)
    assert "small is gone" in rest and "small is gone" not in top


def test_one_errand_at_a_time(models: Models, errands: Errands) -> None:
    errands.hold.clear()
    models.look()
    models.look()
    models.ask_hub("some/big")
    assert len(errands.sent) == 1
    errands.hold.set()
    wait_for(idle(models))


def test_each_model_says_what_it_takes_and_what_drafts() -> None:
    html = models_view.entry(BIG, loaded=False)
    for words in ("8.0 billion weights", "131,072 tokens", "weights 15.0 GiB", "keys and values 4.0 GiB",
                  "of 80.0 GiB free",
                  'data-draft="/m/small"', 'data-draft="none"', "another vocabulary"):
        assert words in html, words
    assert 'data-draft="/m/odd"' not in html
    refused = models_view.entry(HUGE, loaded=False)
    assert "need 99.0 GiB" in refused and "9,000 tokens of context would fit" in refused
    assert 'data-action="use-model"' not in refused, "what cannot run cannot be loaded"
    alone = replace(BIG, drafts=())
    assert [models_view.LOADED in models_view.entry(alone, loaded=loaded) for loaded in (False, True)] == [False, True]
    builtin = models_view.entry(BUILTIN, loaded=True)
    assert models_view.NOW in builtin and models_view.ABOUT_BUILTIN in builtin and 'data-draft="auto"' in builtin


def test_a_pair_is_tried_before_it_is_loaded(models: Models, errands: Errands, services: Services) -> None:
    """What it promises stands there; what does not pay, or is of another family, is no button of the first row."""
    tried = DraftChoice("tried", "/m/tried", 9, foreign=True, promise=DraftPromise(0.61, 25.0, 4.0, 1.31, "2026-11-27"))
    slow = DraftChoice("slow", "/m/slow", 9, promise=DraftPromise(0.2, 25.0, 20.0, 0.7, "2026-11-27"))
    odd = DraftChoice("odd", "/m/odd", 9, foreign=True, cost=0.36)
    found = replace(BIG, drafts=(tried, slow, odd))
    first, rest = models_view.entry(found, loaded=False).split("<details")
    assert "Load with tried" in first and "Load with slow" not in first and "Load with odd" not in first
    for words in ("61% of its tokens", "4.0 ms, the model&#x27;s 25.0 ms; 1.31 times", "does not pay, and is left out",
                  "take 36% of the model", "Load with odd", "Load with slow", models_view.TRY_AGAIN,
                  models_view.TRY_DRAFT):
        assert words in rest, words
    errands.says[TRY] = [LoadProgress("Trying odd as draft model of big", 0.5)]
    models.try_draft("some/big", "/m/odd")
    assert "try-draft" in models_view.actions(services)
    wait_for(lambda: len(errands.sent) == 2 and not models.errand)
    assert [errand for errand, _ in errands.sent] == [TRY, LOOK], "what was measured is shown"
    assert (errands.sent[0][1].model, errands.sent[0][1].draft_model) == ("some/big", "/m/odd")


def test_the_recommended_way_is_one_press() -> None:
    """And each way says how fast it would be; where a model is as well as it is, no button more."""
    ways = (Fit("same", 8192, "on-chip", 17 * GIB, tokens_per_second=61.4), Fit("same", 131_072),
            Fit("int4", 8192, "on-chip", 6 * GIB, tokens_per_second=160.0),
            Fit("int4", 131_072, "on-chip", 21 * GIB, "int8", 95.2))
    html = models_view.entry(replace(BIG, fits=ways, best=ways[-1]), loaded=False)
    assert "8,192 tokens 17.0 GiB (on-chip), about 61 tokens/s; 131,072 tokens do not fit" in html
    assert "131,072 tokens 21.0 GiB (on-chip, keys and values in int8), about 95 tokens/s" in html
    assert models_view.FITS_HELP in html
    best = re.search(r"<button[^>]*tf-primary[^>]*>[^<]*", html)
    assert best and 'data-weights="int4"' in best[0] and 'data-kv="int8"' in best[0] and '"/m/small"' in best[0]
    assert "weights in int4, keys and values in int8, small as draft model" in best[0]
    assert "tf-primary" not in models_view.entry(replace(BIG, fits=ways, best=ways[0]), loaded=False)
    refused = models_view.entry(replace(HUGE, fits=ways, best=ways[-1]), loaded=False)
    assert refused.count('data-action="use-model"') == 1, "what does not run as it is may still run as recommended"


def test_a_model_is_called_loaded_once_it_is() -> None:
    half = LoadProgress("Reading the weights", 0.5)
    told = {state: models_view.entry(BIG, True, state, half) for state in ("starting", "ready", "failed")}
    marks = {state: re.search(r'tf-model-on">([^<]*)', html) for state, html in told.items()}
    assert {state: mark[1] for state, mark in marks.items() if mark} == {
        "starting": models_view.LOADING, "ready": models_view.NOW, "failed": models_view.STOPPED}
    assert ["Reading the weights" in html for html in told.values()] == [True, False, False]
    assert "Reading the weights" not in models_view.entry(BIG, False, "starting", half)


def test_the_form_that_was_chosen_is_remembered(services: Services) -> None:
    """The command line's word counts more, and what is pressed next counts anew."""
    services.use_model("/m/other", "none", "int4", "int8")
    wait_for(lambda: services.queue.config.model == "/m/other" and services.queue.state == "ready")
    assert (services.queue.config.weights, services.queue.config.kv) == ("int4", "int8")
    kept = remembered(services.folders.model, EngineConfig())
    assert (kept.model, kept.weights, kept.kv) == ("/m/other", "int4", "int8")
    given = remembered(services.folders.model, EngineConfig(weights="int8"))
    assert (given.weights, given.kv) == ("int8", "int8")
    services.use_model("builtin", "auto")
    wait_for(lambda: services.queue.config.model == "builtin" and services.queue.state == "ready")
    assert (services.queue.config.weights, services.queue.config.kv) == ("same", "auto")
    services.folders.model.write_text('{"model": "m", "draft": "none", "weights": "int3", "kv": 7}')
    assert remembered(services.folders.model, EngineConfig()) == EngineConfig(model="m", draft_model="none")


def test_the_tab_looks_anew_after_a_while(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models.stale
    models.look()
    wait_for(idle(models))
    assert not models.stale
    later = monotonic() + 31
    monkeypatch.setattr("ui.app.models.monotonic", lambda: later)
    assert models.stale, "files may have come since"


def test_names_from_disk_are_not_live(models: Models) -> None:
    models.found = (HOSTILE, replace(BIG, name=EVIL, model=EVIL, drafts=HOSTILE.drafts))
    models.offer = replace(THE_OFFER, repo=EVIL, licence=EVIL)
    html = models_view.board(models, EngineConfig(model=EVIL), None)
    assert "<img" not in html and html.count("&lt;img") > 8


def test_a_chosen_model_is_loaded_and_remembered(services: Services, tmp_path: Path) -> None:
    """Conversations and library stay; each answer keeps the name of the model that wrote it."""
    view = TabView()
    services.add(view, [(write_book(tmp_path, "book.txt"), "book.txt")])
    wait_for(lambda: services.queue.open_key is not None)
    first = services.ask(view, "How many ships?")
    wait_for(lambda: first.ended)
    services.use_model("/m/other", "none")
    wait_for(lambda: services.queue.config.model == "/m/other" and services.queue.state == "ready")
    assert services.queue.config.draft_model == "none"
    second = services.ask(view, "And then?")
    wait_for(lambda: second.ended)
    wait_for(lambda: all(answer.state == "done" for answer in services.conversations.answers(view.conversation)))
    answers = services.conversations.answers(view.conversation)
    assert len(answers) == 2
    assert {answer.result["model"] for answer in answers} == {"Scripted target"}
    kept = remembered(services.folders.model, EngineConfig())
    assert (kept.model, kept.draft_model) == ("/m/other", "none")
    services.folders.model.write_text("{")
    assert remembered(services.folders.model, EngineConfig()) == EngineConfig()


def test_a_listed_model_is_offered_as_a_gguf_file_where_that_is_better(models: Models, errands: Errands) -> None:
    small = GGUFDownload("a/four-GGUF:Q4_K_M", "Q4_K_M", 2_500_000_000, 32_768, 9.0, "a/tiny-GGUF:Q4_K_M", 400_000_000,
                         PLAN, 16_384, preferred=True)
    listed = replace(LISTED, gguf=small, plan=None, problem="It needs 99 GiB")
    errands.says[LOOK] = [BUILTIN, listed]
    models.look()
    wait_for(lambda: models.listed and not models.errand)
    html = models_view.board(models, EngineConfig(), None)
    assert "2.5 GB in Q4_K_M · 8.0 GB in bf16" in html and "It needs 99 GiB" not in html
    assert "In Q4_K_M, a GGUF file, it fits here with 32,768 tokens" in html and "9.0 tokens/s" in html
    assert html.count('data-action="want-model"') == 1, "bf16 does not fit"
    both = models_view.suggestion(replace(listed, plan=PLAN), models)
    assert [*re.findall('data-repo="([^"]*)"', both)] == [small.repo, LISTED.repo]
    models.want(small.repo)
    html = models_view.board(models, EngineConfig(), None)
    assert "2.9 GB come from" in html and small.repo in html and small.drafter in html
    errands.says[FETCH] = [replace(THE_OFFER, nbytes=2_600_000_000), LoadProgress("Fetching", 0.25)]
    errands.hold.clear()
    models.fetch()
    wait_for(lambda: models.progress is not None)
    assert (errands.sent[-1][1].model, errands.sent[-1][1].draft_model) == (small.repo, small.drafter)
    html = models_view.board(models, EngineConfig(), None)
    assert html.count("tf-meter-big") == 1 and html.index("tf-meter-big") > html.index("Some 4B")
    errands.hold.set()


def test_a_listed_model_is_downloaded_only_after_a_yes(models: Models, errands: Errands) -> None:
    """The question says size, licence and place; before the yes nothing is sent."""
    errands.says[LOOK] = [BUILTIN, LISTED, TOO_LARGE]
    models.look()
    wait_for(lambda: models.listed and not models.errand)
    html = models_view.board(models, EngineConfig(), None)
    assert html.index(models_view.RECOMMENDED) < html.index("Some 4B") < html.index("do not fit here (1)")
    assert "4.0 billion weights" in html and "terms to accept" in html
    assert re.search(r"Fits here with [\d,]+ tokens of context: .* Writes at most about [\d.]+ tokens/s", html)
    assert "reads 30,000 tokens in 1 min 40 s at least, modelled" in html and "262K in int4" in html
    rounded = models_view.suggestion(replace(LISTED, weights="int8"), models)
    assert "Rounded to int8 when it is loaded, it fits here with" in rounded
    models.want("some/four")
    assert [errand for errand, _ in errands.sent] == [LOOK]
    html = models_view.board(models, EngineConfig(), None)
    for words in ("Download Some 4B?", "10.0 GB come from", "some/four", "some/tiny", "Apache-2.0", "/home/me/hub",
                  "Yes, download 10.0 GB"):
        assert words in html, words
    models.want(None)
    assert "Yes, download" not in models_view.board(models, EngineConfig(), None)
    models.want("some/four")
    errands.says[FETCH] = [replace(THE_OFFER, repo="some/four", nbytes=8_100_000_000),
                           replace(THE_OFFER, repo="some/tiny", nbytes=2_000_000_000), LoadProgress("Fetching", 0.25)]
    errands.hold.clear()
    models.fetch()
    wait_for(lambda: models.progress is not None)
    errand, config = errands.sent[-1]
    assert errand == FETCH and (config.model, config.draft_model) == ("some/four", "some/tiny")
    assert config.allow_download
    html = models_view.board(models, EngineConfig(), None)
    assert html.count("tf-meter-big") == 1
    assert html.index("tf-meter-big") > html.index("Some 4B"), "where it was pressed"
    errands.hold.set()
    wait_for(lambda: [errand for errand, _ in errands.sent][-2:] == [FETCH, LOOK] and not models.errand)
    assert models.wanted is None


def test_what_has_grown_since_is_not_fetched(models: Models, errands: Errands) -> None:
    models.listed = (LISTED,)
    models.want("some/four")
    errands.says[FETCH] = [replace(THE_OFFER, repo="some/four", nbytes=12_000_000_000), LoadProgress("Fetching", 0.1)]
    models.fetch()
    wait_for(idle(models))
    assert "larger on the hub than you agreed to" in models.problem and models.progress is None
    assert [errand for errand, _ in errands.sent] == [FETCH], "no look as after a good download"


def test_a_full_disk_leaves_no_yes(models: Models) -> None:
    models.listed = (replace(LISTED, disk_free=3_000_000_000),)
    models.want("some/four")
    html = models_view.board(models, EngineConfig(), None)
    assert "not enough room" in html and "3.0 GB free" in html and "fetch-model" not in html
    models.want(None)
    models.offer = replace(THE_OFFER, folder="/hub", disk_free=1_000_000_000)
    html = models_view.board(models, EngineConfig(), None)
    assert "4.0 GB are needed" in html and "fetch-model" not in html


def test_where_nothing_is_recommended_the_list_says_so(models: Models) -> None:
    models.listed = (TOO_LARGE,)
    html = models_view.board(models, EngineConfig(), None)
    assert models_view.NONE_RECOMMENDED in html and "needs 99 GiB" in html
    assert '<th scope="row">Some 70B</th><td>–</td><td>8K</td>' in html


@pytest.mark.parametrize("given", ["gibberish", "https://example.org/some/model", ""])
def test_a_bad_name_is_refused_at_once_also_while_busy(given: str, models: Models, errands: Errands) -> None:
    errands.hold.clear()
    models.look()
    models.ask_hub(given)
    html = models_view.board(models, EngineConfig(), None)
    assert f"“{given}” is no repository" in html and "OWNER/NAME" in html and 'role="alert"' in html
    errands.hold.set()
    wait_for(idle(models))
    assert models.refused, "the end of the other errand does not wipe it"
    models.ask_hub(given)
    assert [errand for errand, _ in errands.sent] == [LOOK] and given in models.refused


def test_a_good_name_while_busy_is_told_to_wait(models: Models, errands: Errands) -> None:
    errands.hold.clear()
    models.look()
    models.ask_hub("some/big")
    assert models.refused == "some/big has to wait: Looking for models. Press the button again when that is done, or " \
        "cancel it."
    errands.hold.set()
    wait_for(idle(models))
    models.ask_hub("some/big")
    wait_for(idle(models))
    assert not models.refused and models.offer == THE_OFFER


def test_a_folder_that_is_not_there_is_named(models: Models, tmp_path: Path) -> None:
    models.look(str(tmp_path / "nowhere"))
    wait_for(idle(models))
    assert f"There is no folder {tmp_path / 'nowhere'}" in models_view.board(models, EngineConfig(), None)
    models.look(str(tmp_path))
    wait_for(idle(models))
    assert not models.refused


@pytest.mark.browser
def test_the_tab_in_a_browser(tab, served) -> None:
    """Opening the tab looks by itself; Download asks, no is no, yes fetches; a bad name is answered where it stands;
    and a model that was found is loaded."""
    models, queue = served.services.models, served.services.queue
    errands = Errands({LOOK: [BUILTIN, BIG, HUGE, LISTED, TOO_LARGE],
                       FETCH: [replace(THE_OFFER, nbytes=8_000_000_000), LoadProgress("Fetching", 0.2)]})
    models._send, models._looked, models.listed = errands, None, ()
    tab.get_by_role("tab", name=models_view.TAB).click()
    tab.wait_for_selector(".tf-listed .tf-model:has-text('Some 4B')")
    assert tab.locator(".tf-model.tf-current").count() == 1
    get = ".tf-listed [data-action=want-model][data-repo='some/four']"
    tab.click(get)
    tab.wait_for_selector(".tf-listed .tf-card:has-text('Apache-2.0'):has-text('/home/me/hub')")
    tab.click("[data-action=leave-model]")
    tab.wait_for_selector(get)
    assert [errand for errand, _ in errands.sent] == [LOOK], "nothing is sent before the yes"
    tab.click(get)
    errands.hold.clear()
    tab.click("[data-action=fetch-model]")
    tab.wait_for_selector(".tf-listed .tf-meter-big")
    tab.fill("#models-repo :is(input, textarea)", "gibberish")
    tab.press("#models-repo :is(input, textarea)", "Enter")
    tab.wait_for_selector("#models-board [role=alert]:has-text('“gibberish” is no repository')")
    assert tab.locator(".tf-listed .tf-meter-big").is_visible(), "the download goes on"
    errands.hold.set()
    wait_for(lambda: [errand for errand, _ in errands.sent] == [LOOK, FETCH, LOOK] and not models.errand)
    tab.fill("#models-folder :is(input, textarea)", "/m")
    tab.click("#models-look")
    wait_for(lambda: errands.sent[-1][1].model_folders == ("/m",) and not models.errand)
    tab.click(".tf-model [data-draft='/m/small']")
    tab.wait_for_selector(".tf-model.tf-current:has-text('some/big')")
    assert queue.config.draft_model == "/m/small"
    served.services.use_model("builtin", "auto")
    wait_for(lambda: queue.config.model == "builtin" and queue.state == "ready")
    models.refused, models.listed, models._looked = "", (), monotonic()
