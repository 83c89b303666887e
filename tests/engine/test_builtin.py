"""The shipped pair: speculation changes no word of it, on five documents of our own (fp32)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine.tiny import document

from training.export import export
from triforce_core.assets import BUILTIN_FOLDER
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.errors import ConfigError, NotSpelledError
from triforce_core.events import QuoteEvent, QuotePlace, Script
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import load_model
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["docs/handbook/08-three-tiers.md", "training/README.md", "triforce_core/assets/builtin/MODEL_CARD.md",
         "triforce_core/engine/session.py"]
# Lengths are given: in so short a context a busy machine may find that drafting does not pay.
SETTINGS = {"budget": 256, "recent": 96, "gamma1": 2, "gamma2": 10}


def own_document(name: str) -> Document:
    if name == "facts":
        return document(sentences=120)
    text = (ROOT / name).read_text(encoding="utf-8")[:5200]
    pages = tuple(Page(str(1 + i // 1800), text[i : i + 1800]) for i in range(0, len(text), 1800))
    return Document(name, "txt", pages, "test")


@pytest.fixture(scope="module")
def engine(lengths_given):
    engine = ResearchEngine(EngineConfig(dtype="float32", mode="cpu"))
    list(engine.load())
    return engine


def tokens(engine, question, speculation: ResearchConfig, sampling: SamplingParams):
    return list(engine.ask(question, (), sampling, speculation))[-1]


def test_threads_that_openmp_does_not_give_are_not_counted_on():
    """More of them than OMP_THREAD_LIMIT, and a bfloat16 product leaves half of its output as the memory was."""
    code = """if True:
        import sys, torch
        from triforce_core.config import EngineConfig
        from triforce_core.engine.loading import choose
        from triforce_core.errors import ConfigError
        choose(EngineConfig(mode="cpu"))
        a, b = torch.ones(20, 64).bfloat16(), torch.ones(64, 64).bfloat16()
        assert (torch.mm(a, b, out=torch.full((20, 64), -1.0).bfloat16()) == 64).all(), torch.get_num_threads()
        try:
            choose(EngineConfig(mode="cpu", threads=2))
        except ConfigError as error:
            sys.exit(str(error))
        """
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True,
                         env=os.environ | {"OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "2"})
    assert ran.stderr.strip().splitlines()[-1].startswith("--threads 2 is more than OMP_THREAD_LIMIT=1 allows"), ran
    assert ran.returncode == 1


def test_greedy_with_penalties_equals_plain_decoding_token_for_token(engine):
    list(engine.open_document(own_document(TEXTS[0])))
    sampling = SamplingParams(max_new_tokens=96, frequency_penalty=0.4, presence_penalty=0.3, repeat_penalty=1.1)
    for tiers in ({"ngram": "off"}, {"ngram": "straight"}):
        fast = tokens(engine, None, ResearchConfig(**tiers, **SETTINGS), sampling)
        plain = tokens(engine, None, ResearchConfig(engine="autoregressive"), sampling)
        assert fast.token_ids == plain.token_ids and len(fast.token_ids) == 96
        assert max(count.accepted for count in fast.stats.acceptance.values()) > 20, "drafts were accepted"
    banned = ((plain.token_ids[0], -100.0),)
    other = tokens(engine, None, ResearchConfig(**SETTINGS), replace(sampling, logit_bias=banned))
    assert plain.token_ids[0] not in other.token_ids
    with pytest.raises(ConfigError, match="logit_bias"):
        tokens(engine, None, ResearchConfig(**SETTINGS), replace(sampling, logit_bias=((10**6, 1.0),)))


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 3, "frequency_penalty": 0.5}], ids=str)
def test_json_by_a_schema_is_plain_decodings(engine, sampling):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    list(engine.open_document(own_document(TEXTS[0])))
    schema = {"type": "object", "properties": {"tier": {"type": "string", "maxLength": 30}, "n": {"type": "integer"}},
              "required": ["tier", "n"], "additionalProperties": False}
    params = SamplingParams(max_new_tokens=120, schema=json.dumps(schema), **sampling)
    fast = tokens(engine, "Which tier?", ResearchConfig(verifier="coupled", **SETTINGS), params)
    plain = tokens(engine, "Which tier?", ResearchConfig(engine="autoregressive", verifier="coupled"), params)
    assert fast.token_ids == plain.token_ids and fast.reason == "stop"
    assert {*json.loads(fast.text)} == {"tier", "n"} and not fast.quotes


@pytest.mark.parametrize(("name", "length"), [(TEXTS[0], 64), *(
    pytest.param(name, 256, marks=pytest.mark.exhaustive) for name in [*TEXTS, "facts"])])
def test_greedy_equals_plain_decoding_token_for_token(engine, name, length):
    list(engine.open_document(own_document(name)))
    sampling = SamplingParams(max_new_tokens=length)
    fast = tokens(engine, None, ResearchConfig(ngram="off", **SETTINGS), sampling)
    plain = tokens(engine, None, ResearchConfig(engine="autoregressive"), sampling)
    assert fast.token_ids == plain.token_ids and len(fast.token_ids) == length
    assert fast.stats.acceptance["retrieval"].accepted > 100 / 256 * length  # speculation was really at work
    assert fast.stats.full_passes < length / 2


@pytest.mark.parametrize("tiers", [{}, *(
    pytest.param(tiers, marks=pytest.mark.exhaustive)
    for tiers in ({"small_model": "off"}, {"small_model": "off", "middle_cache": "none"}))], ids=str)
def test_copying_changes_no_word_and_copies(engine, tiers):
    """A text that repeats itself: lines of a table."""
    rows = "\n".join(f"{day:02d} March | harbour of Lisbon | {'calm' if day % 3 else 'rough'} sea | wind from the west"
                     for day in range(1, 29))
    list(engine.open_document(Document("log", "txt", (Page("1", rows),), "test")))
    sampling = SamplingParams(max_new_tokens=80)
    fast = tokens(engine, None, ResearchConfig(ngram="on", **tiers, **SETTINGS), sampling)
    plain = tokens(engine, None, ResearchConfig(engine="autoregressive"), sampling)
    assert fast.token_ids == plain.token_ids
    assert fast.stats.acceptance["n-gram"].accepted > 20 and "copied" in fast.stats.why
    assert fast.stats.tokens_per_full_pass > 3


@pytest.mark.parametrize("temperature", [pytest.param(0.6, marks=pytest.mark.exhaustive), 1.0])
def test_coupled_equals_plain_decoding_with_the_same_seed(engine, temperature):
    list(engine.open_document(own_document(TEXTS[0])))
    sampling = SamplingParams(temperature=temperature, seed=11, max_new_tokens=48)
    fast = tokens(engine, None, ResearchConfig(verifier="coupled", **SETTINGS), sampling)
    plain = tokens(engine, None, ResearchConfig(engine="autoregressive", verifier="coupled"), sampling)
    assert fast.token_ids == plain.token_ids
    other = tokens(engine, None, ResearchConfig(verifier="coupled", **SETTINGS),
                   SamplingParams(temperature=temperature, seed=12, max_new_tokens=48))
    assert other.token_ids != fast.token_ids


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.exhaustive), 1.0])
@pytest.mark.parametrize("grown", [{"tree": "sequoia", "tree_tier": "draft"}, {"tree": "specinfer"},
                                   {"tree": "sequoia", "tree_tier": "middle"}], ids=str)
def test_trees_of_the_shipped_pair_change_no_word(engine, grown, temperature):
    list(engine.open_document(own_document(TEXTS[0])))
    sampling = SamplingParams(temperature=temperature, seed=11, max_new_tokens=32)
    fast = tokens(engine, None, ResearchConfig(verifier="coupled", **grown, **SETTINGS), sampling)
    plain = tokens(engine, None, ResearchConfig(engine="autoregressive", verifier="coupled"), sampling)
    assert fast.token_ids == plain.token_ids and len(fast.token_ids) == 32
    assert sum(count.accepted for count in fast.stats.ranks) > 8 and fast.stats.full_passes < 24


def test_an_answer_is_a_quotation_of_the_document(engine):
    """Whatever is asked: what stands between the marks stands in the document."""
    doc = document(sentences=120)
    list(engine.open_document(doc))
    words = " ".join(page.text for page in doc.pages)
    for question in ("Who repaired the violin?", "What did Clara paint?", "zzz?"):
        for temperature in (0.0, 1.5):
            done = tokens(engine, question, ResearchConfig(**SETTINGS),
                          SamplingParams(temperature=temperature, max_new_tokens=200))
            said = done.text.strip()
            assert said.startswith("“") and said.endswith("”")
            for quotation in done.text.split("“")[1:]:
                assert quotation.split("”")[0].strip() in words


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_script_is_spelled_as_it_stands_however_it_is_drafted(engine, temperature):
    """Its words, then each of its stretches, found again where it was taken from; several pages are one quotation."""
    pages = (Page("i", "Nobody came. The keeper of the\n\n[1] A note."), Page("ii", "light counted ships.\nHe — left…"))
    list(engine.open_document(Document("d", "txt", pages, "test")))
    first = (QuotePlace(1, "i", 13, 30), QuotePlace(2, "ii", 0, 20))
    second = (QuotePlace(2, "ii", 24, 31),)
    script = Script("Two of them:", (first, second))
    for dials in ({"engine": "autoregressive"}, {}):
        sampling = SamplingParams(max_new_tokens=64, temperature=temperature)
        done = list(engine.ask("Who?", (), sampling, ResearchConfig(**SETTINGS | dials), "", script))[-1]
        assert done.text.split() == "Two of them: “The keeper of the light counted ships.” “-- left...”".split()
        assert done.reason == "stop" and [quote.count for quote in done.quotes] == [1, 1]
        assert [quote.occurrences[0].places for quote in done.quotes] == [first, second]


def test_what_the_tokens_do_not_say_is_not_spelled(engine, monkeypatch):
    list(engine.open_document(document(sentences=40)))
    prompt = engine._session.prompt
    tampered = replace(prompt.document.pages[0], text="Other words. " + prompt.document.pages[0].text)
    monkeypatch.setattr(engine._session, "prompt", replace(prompt, document=replace(
        prompt.document, pages=(tampered, *prompt.document.pages[1:]))))
    script = Script("", ((QuotePlace(1, "1", 0, 12),),))
    with pytest.raises(NotSpelledError, match="page 1"):
        list(engine.ask("Who?", (), SamplingParams(), SpeculationConfig(), "", script))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_quotations_stand_is_told_alike_however_they_were_drafted(engine, temperature):
    """The same events in the same order from plain decoding and from every way of drafting, forced tokens and all."""
    doc = document(sentences=120)
    list(engine.open_document(doc))
    sampling = SamplingParams(max_new_tokens=48, temperature=temperature, seed=4)

    def answer(**dials):
        *events, done = engine.ask("Who repaired the violin?", (), sampling,
                                   ResearchConfig(verifier="coupled", **dials))
        return [event for event in events if isinstance(event, QuoteEvent)], done

    plain, done = answer(engine="autoregressive")
    assert done.quotes == tuple({quote.number: quote for quote in plain}.values())
    for quote in done.quotes:
        for occurrence in quote.occurrences:
            (place,) = occurrence.places
            assert doc.pages[place.page - 1].text[place.start : place.end] == done.text[quote.start : quote.end]
    assert any(quote.closed for quote in done.quotes)
    for drafting in ({}, {"ngram": "straight"}, {"tree": "sequoia"}, {"tree": "specinfer"},
                     {"small_model": "off", "middle_cache": "none", "ngram": "on"}):
        fast, finished = answer(**drafting, **SETTINGS)
        assert fast == plain and finished.text == done.text, drafting
        assert finished.stats.full_passes < done.stats.full_passes
    assert not any(quote.occurrences for quote in answer(quotes="off")[0])


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("exported")
    export(BUILTIN_FOLDER, out)
    return out


@pytest.mark.parametrize("role", ["target", "draft"])
def test_our_decoder_gives_the_logits_of_transformers_on_the_exported_pair(exported, role):
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(11, 8192, (160,), generator=torch.Generator().manual_seed(3))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(exported / role, dtype=torch.float32)
    with torch.inference_mode():
        expected = theirs(ids[None]).logits[0]
    for folder in (BUILTIN_FOLDER / role, exported / role):
        ours = load_model(folder)
        c = ours.config
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=512, dtype=torch.float32)
        assert (ours.forward(ids, cache, logits_rows=160) - expected).abs().max() < 1e-4


def test_the_exported_pair_answers_as_the_built_in_one(engine, exported):
    other = ResearchEngine(EngineConfig(model=str(exported / "target"), draft_model=str(exported / "draft"),
                                        dtype="float32", mode="cpu"))
    list(other.load())
    answers = []
    for each in (engine, other):
        list(each.open_document(document(sentences=120)))
        done = tokens(each, "Who repaired the violin?", ResearchConfig(**SETTINGS), SamplingParams())
        answers.append(done.token_ids)
    assert answers[0] == answers[1]
