"""Where quotations stand, as decoding knows it: the words at the places told are the words quoted."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from engine.tiny import BUILTIN_FOLDER, document, write_model

from tests import tokenizer_folders
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.engine.engine import Engine
from triforce_core.events import Finished, QuoteEvent
from triforce_core.prompt.builder import DocumentPrompt, PromptBuilder, QuoteFormat, ascii_typography
from triforce_core.prompt.quotations import QuoteReport, Quoting
from triforce_core.sampling.quote_matcher import Mark, QuoteConstraint
from triforce_core.tokenizer import Tokenizer

SENTENCES = ["No.", "He — at last — came…", "“Is it so?” she asked.", "Ölände grüßen 😀 heute.", "He came.",
             "No. 5 lay\tthere.", "漢字 は難しい。", "The keeper of the light counted forty ships.",
             "The keeper of the light counted fifty.",
             "So did the others, [page 3] they said, and nobody wrote anything down for the rest of that long year."]


@pytest.fixture(scope="module", params=["marks that are named", "typographic marks"])
def builder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PromptBuilder:
    """Of the shipped pair, and of a model that names no marks but has them among its tokens, as Llama 3 and Qwen do."""
    if request.param == "marks that are named":
        return PromptBuilder(Tokenizer(BUILTIN_FOLDER))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_folders, "TEXT", ["He said “Yes, I came” and “no”.", "“So?”", *SENTENCES[:6]] * 60)
        folder = tokenizer_folders.hugging_face_folder(tmp_path_factory.mktemp("other"), "bytes")
    return PromptBuilder(Tokenizer(folder))


def small_document(chance: random.Random) -> Document:
    """Sentences that come again and again, lines, empty pages, and pages that end in the middle of a sentence."""
    text = "".join(chance.choice(SENTENCES) + chance.choice((" ", " ", "\n", "\n\n")) for _ in range(24))
    cuts = sorted(chance.sample([at for at, c in enumerate(text) if c == " "], 3))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    parts.insert(chance.randrange(4), chance.choice(("", " \n")))
    return Document("d", "txt", tuple(Page(chance.choice(("No.", str(n))), part) for n, part in enumerate(parts)), "t")


def some_answer(rules: QuoteConstraint, chance: random.Random) -> list[int]:
    """Up to 90 tokens that the rules allow, mostly quotations."""
    state, answer = rules.initial(), []
    while len(answer) < 90:
        choices = state.allowed()
        token = rules.open_id if choices is None else int(chance.choice(choices.tolist()))
        if choices is not None and rules.close_id in choices and chance.random() < 0.3:
            token = rules.close_id
        answer.append(token)
        state = state.advance(token)
    return answer


def standing(prompt: DocumentPrompt, quotation_marks: list[int], words: list[int], unit: str,
             whole: bool) -> list[tuple[int, int]]:
    """By definition: context tokens [start, end) of every passage of these words. whole: that may also end there."""
    marked = np.isin(prompt.token_ids, quotation_marks)
    text = np.flatnonzero((prompt.marks & Mark.TEXT != 0) & ~marked)
    tokens, marks = prompt.token_ids[text], prompt.marks[text].astype(int)
    ends_line = [bool(mark & Mark.LINE_END) or bool(marked[at + 1]) for at, mark in zip(text, marks, strict=True)]
    found = []
    for at in range(len(text) - len(words) + 1):
        after = at + len(words)
        first = Mark.SENTENCE_START if unit == "sentence" else Mark.WORD_START
        begins = marks[at] & first or (unit == "word" and (at == 0 or ends_line[at - 1]))
        ends = ends_line[after - 1] or (marks[after - 1] & Mark.SENTENCE_END if unit == "sentence" else
                                        after < len(text) and marks[after] & Mark.WORD_START)
        if begins and (ends or not whole) and tokens[at:after].tolist() == words and not any(ends_line[at : after - 1]):
            found.append((int(text[at]), int(text[after - 1]) + 1))
    return found


def letters(text: str) -> str:
    return "".join(ascii_typography(text).split())


@pytest.mark.parametrize("unit", ["sentence", "word"])
@pytest.mark.parametrize("seed", range(12))
def test_the_words_at_the_places_are_the_words_quoted(builder: PromptBuilder, seed: int, unit: str) -> None:
    chance = random.Random(f"{seed} {unit}")
    prompt = builder.document(small_document(chance))
    rules = Quoting(builder).rules(prompt, typographic=True)
    assert rules is not None and rules.must_open == (builder.quote_format is not None)
    rules = replace(rules, unit=unit)
    own_marks = [token for token in set(prompt.token_ids.tolist()) if {*"“”"} & {*builder.tokenizer.decode([token])}]
    answer = some_answer(rules, chance)
    decoder = builder.tokenizer.stream_decoder()
    texts = [decoder.feed(token) for token in answer]
    told, shown = [], []
    places = partial(builder.quote_places, prompt)
    report, in_rounds = QuoteReport(rules, places), QuoteReport(rules, places)
    for at in range(len(answer)):
        new = list(report.feed(answer[at : at + 1], texts[at : at + 1]))
        told += new
        shown += [at] * len(new)
    told += report.end()
    again, at = [], 0
    while at < len(answer):  # as rounds of several tokens come: the same is told
        step = chance.randint(1, 9)
        again += in_rounds.feed(answer[at : at + step], texts[at : at + step])
        at += step
    assert [*again, *in_rounds.end()] == told and in_rounds.quotes == report.quotes
    assert [quote.number for quote in report.quotes] == list(range(len(report.quotes)))
    assert sum(quote.closed for quote in told) == answer.count(rules.close_id) >= 1

    text = "".join(texts)
    for quote, end in zip(told, shown, strict=False):
        opened = max(at for at in range(end) if answer[at] == rules.open_id)
        words = answer[opened + 1 : end if quote.closed else end + 1]
        places = standing(prompt, own_marks, words, unit, whole=quote.closed)
        assert quote.count == len(places) and text[quote.start - 1] == "“"
        assert [(o.start, o.end) for o in quote.occurrences] == places[: len(quote.occurrences)]
        assert len(quote.occurrences) == min(quote.count, 8)
        if quote.closed:
            assert text[quote.end] == "”"
        else:  # told as soon as one place was left
            assert quote.count == 1
            assert len(words) == 1 or len(standing(prompt, own_marks, words[:-1], unit, whole=False)) > 1
        check_letters(quote, text, prompt)


def check_letters(quote: QuoteEvent, text: str, prompt: DocumentPrompt) -> None:
    pages = prompt.document.pages
    wanted = letters(text[quote.start : quote.end])
    stand = [[(place.page, place.start) for place in occurrence.places] for occurrence in quote.occurrences]
    assert stand == sorted(stand) and (not wanted or len(set(map(tuple, stand))) == len(stand))
    for occurrence in quote.occurrences:
        assert occurrence.places or not wanted
        found = "".join(pages[place.page - 1].text[place.start : place.end] for place in occurrence.places)
        # A character that is spelt with several letters may be cut while a quotation is being written.
        assert letters(found) == wanted if quote.closed else letters(found).startswith(wanted)
        assert all(pages[place.page - 1].label == place.label for place in occurrence.places)
        covered = [prompt.page_index(token) + 1 for token in (occurrence.start, occurrence.end - 1)]
        assert not wanted or {place.page for place in occurrence.places} <= set(range(covered[0], covered[1] + 1))


def test_an_answer_cut_inside_a_quotation_is_told_as_far_as_it_goes(builder: PromptBuilder) -> None:
    prompt = builder.document(Document("d", "txt", (Page("1", "So it was. One day came. One day went."),), "t"))
    quoting = Quoting(builder)
    rules = quoting.rules(prompt, typographic=True)
    assert rules is not None and (builder.quote_format or quoting.rules(prompt) is None)
    words = builder.tokenizer.encode(" One day")
    report = QuoteReport(rules, partial(builder.quote_places, prompt))
    decode = builder.tokenizer.stream_decoder()
    answer = [rules.open_id, *words]
    assert list(report.feed(answer, [decode.feed(token) for token in answer])) == []  # two places are left
    (cut,) = report.end()
    assert (cut.closed, cut.count) == (False, 2) and report.quotes == (cut,)
    assert [(o.places[0].start, o.places[0].end) for o in cut.occurrences] == [(11, 18), (25, 32)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_asked_for_other_models_quote_word_for_word_too(tmp_path: Path, temperature: float) -> None:
    """Random weights write no quotation marks, so two of the tokens that they do write stand for them."""
    torch.set_num_threads(1)
    folders = [str(write_model(tmp_path / name, layers=layers, heads=2, seed=layers))
               for name, layers in (("target", 2), ("draft", 1))]
    engine = Engine(EngineConfig(*folders, dtype="float32", threads=1, mode="cpu"))
    list(engine.load())
    list(engine.open_document(document()))
    quoting = engine._session.quoting
    quoting.builder.quote_format = None

    def answer(quotes: str, **settings) -> Finished:
        sampling = SamplingParams(temperature=temperature, seed=2, max_new_tokens=24, stop_token_ids=())
        return list(engine.ask("Who found the lamp?", (), sampling, SpeculationConfig(
            quotes=quotes, verifier="coupled", **settings)))[-1]

    free = answer("auto", engine="autoregressive")
    quoting.__dict__["_marks"] = QuoteFormat(free.token_ids[1], free.token_ids[0], "word", False)
    assert answer("auto", engine="autoregressive").token_ids == free.token_ids and not free.quotes
    plain = answer("on", engine="autoregressive")
    assert plain.token_ids[:2] == free.token_ids[:2] and plain.token_ids != free.token_ids
    (quote, *_) = plain.quotes
    pages = engine._session.prompt.document.pages
    for occurrence in quote.occurrences:
        assert "".join(pages[place.page - 1].text[place.start : place.end] for place in occurrence.places).split() == (
            plain.text[quote.start : quote.end].split())
    fast = answer("on", budget=128, recent=48, window=32, gamma1=2, gamma2=6)
    assert fast.token_ids == plain.token_ids and fast.quotes == plain.quotes
