"""Pure functions: values -> HTML. Every text from outside is escaped, every figure is where it belongs."""

import re
from dataclasses import replace

import pytest
from hostile_words import ENTRY, EVIL
from little_books import make_document

from triforce_core import (
    Document,
    DocumentFit,
    DocumentOpened,
    EngineFacts,
    LoadProgress,
    ModelInfo,
    Page,
    PrefillProgress,
)
from triforce_core.worker.protocol import EngineStatus
from ui.app import library as library_words
from ui.app import runs
from ui.app.accumulator import Accumulator, Figures, above
from ui.app.conversations import Answer
from ui.app.jobs import Fate, Job
from ui.app.runs import DIFFERS_EXACT, Run
from ui.page import chat, document_head, markdown, page_choice, settings, strip
from ui.page import figures as charts
from ui.page import formatting as figures
from ui.page import html as page_words
from ui.page import library as library_view
from ui.page import race as race_view
from ui.page.html import esc
from ui.page.strip import LONGEST, PASSAGES, Passage, bars, passages, shown

FIGURES = Figures(120, 52.3, 0.84, 29, 4.14, {"draft": (67, 55), "retrieval": (55, 44)},
                  {"draft": 80, "retrieval": 20, "bonus": 10, "recovered": 10}, "triforce", "long document",
                  "rejection")


@pytest.mark.parametrize(("value", "text"), [(0.84, "0.8 s"), (41.3, "41 s"), (130, "2 min 10 s"), (120, "2 min"),
                                             (7300, "2 h 1 min")])
def test_seconds(value: float, text: str) -> None:
    assert figures.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(999, "999 B"), (1_400_000, "1.4 MB"), (2_100_000_000, "2.1 GB")])
def test_size(value: int, text: str) -> None:
    assert figures.size(value) == text


def test_nothing_from_outside_is_live() -> None:
    document = make_document()
    evil = replace(document, title=EVIL, pages=(replace(document.pages[0], label=EVIL, text=EVIL), *document.pages[1:]))
    passage = Passage(1, 0.5, EVIL)
    answer = Answer("1", "c", 0.0, EVIL, EVIL, (1,), "failed", EVIL, {"figures": {"tokens": 1, "why": EVIL}})
    run = Run("d", EVIL)
    run.accumulator.text = EVIL
    screens = [
        chat.answer(answer, markdown.render(answer.text)), chat.live(run, False, chat.writing(
            run, lambda: markdown.render(run.accumulator.text))),
        document_head.head(ENTRY, "ready"), document_head.head(ENTRY, "failed"),
        library_view.listing([(ENTRY, "ready")], ENTRY.id, [], None),
        strip.strip_section(evil, (1.0,), [passage], first_page=1, selected=1, read=((1, 6),)),
        race_view.recording(run), charts.figures_card(replace(FIGURES, why=EVIL), "x"),
    ]
    for html in screens:
        assert "<img" not in html
        assert "&lt;img" in html


def test_figures_line_has_every_figure() -> None:
    line = charts.figures_line(FIGURES)
    for text in ("52", "0.8 s", "4.14", "120", "82 %", "55/67", "80 %", "44/55", charts.SPECULATION_ON,
                 "long document"):
        assert text in line


def test_the_line_under_an_answer_is_quiet() -> None:
    def quiet(line: str) -> str:
        return re.sub(r"<[^>]+>", "", line[line.index("<summary>") : line.index("</summary>")])

    assert quiet(charts.figures_line(FIGURES)) == "52 tok/s, first token 0.8 sDetails"
    assert quiet(charts.figures_line(FIGURES, 17.0)) == "52 tok/s, 3.1× plain, first token 0.8 sDetails"
    assert "<img" not in charts.figures_line(FIGURES, 0.0, {"model": EVIL})


def test_the_line_under_an_answer_says_what_a_person_waited_for() -> None:
    long = charts.figures_line(FIGURES, 17.0, {"waited": {"line": 3.0, "first": 45.0, "last": 52.0}, "spelled": True})
    words = re.sub(r"<[^>]+>", "", long)
    assert words.startswith("first word 45 s, last 52 s (3.0 s in line, 42 s reading, 7.0 s writing), "
                            "spelling: 52 tok/s, 3.1× plain")
    short = charts.waits({"line": 0.1, "first": 0.4, "last": 1.0})
    assert short == "first word 0.4 s, last 1.0 s"
    at_once = charts.waits({"line": 0.0, "first": 2.6, "last": 2.7})
    assert at_once == "first word 2.6 s, last 2.7 s (2.6 s reading, 0.1 s writing)"
    assert "nowrap" not in long[: long.index("first word 45 s")], "it is longer than a line of the chat"


def test_times_plain_is_said_only_where_it_was_measured() -> None:
    result = {"model": "m", "ranges": [[1, 36]]}
    kept = {"question": "How many?", "model": "m", "ranges": [[1, 36]],
            "lanes": [{"figures": {"tokens_per_second": 17.0}}]}
    assert runs.plain_rate(kept, "How many?", result) == 17.0
    assert runs.plain_rate(kept, "How few?", result) == runs.plain_rate(None, "How many?", result) == 0.0
    assert runs.plain_rate(kept | {"model": "n"}, "How many?", result) == 0.0
    assert runs.plain_rate(kept | {"ranges": [[1, 57]]}, "How many?", result) == 0.0
    del kept["ranges"]  # an older version kept it
    assert runs.plain_rate(kept, "How many?", result) == 0.0


def test_a_page_is_called_by_its_label_and_its_place_wherever_they_differ() -> None:
    document = Document("t", "pdf", tuple(Page(label, "") for label in ("i", "2", "A, B, 85")), "test")
    assert [figures.cited_page(document, page) for page in (1, 2, 3)] == [
        "p. i (1 of 3)", "p. 2", "A, B, p. 85 (3 of 3)"]
    assert [figures.page_title(document, page) for page in (1, 2, 3)] == [
        "Page i (1 of 3)", "Page 2", "A, B, page 85 (3 of 3)"]
    places = [{"page": page, "label": label} for page, label in ((31, "29"), (32, "30"))]
    assert figures.cited(places, 60) == "p. 29–30 (31–32 of 60)" and figures.cited(places[:1], 60) == "p. 29 (31 of 60)"
    assert figures.cited([{"page": page, "label": str(page)} for page in (5, 6)], 9) == "p. 5–6"


def test_the_link_is_shown_while_something_streams() -> None:
    assert "PCIe" not in charts.figures_card(FIGURES, "x")
    assert "PCIe: 54.2 GB/s" in charts.figures_card(replace(FIGURES, streamed_bytes_per_second=54.2e9), "x")


def test_speculation_is_never_blank() -> None:
    assert charts.SPECULATION_PENDING in charts.speculation_badge(Figures())
    off = charts.speculation_badge(Figures(engine="autoregressive", why="no draft model"))
    assert charts.SPECULATION_OFF in off and "no draft model" in off


def test_an_unknown_tier_is_shown_too() -> None:
    bar = charts.tier_bar({"ngram": 3, "draft": 1})
    assert "ngram" in bar and "tf-tier-other" in bar


def test_strip_maps_shares_to_pages() -> None:
    html = bars([f"Page {i}" for i in range(1, 9)], (0.1, 0.4), first_page=3, selected=4, read=((3, 4),))
    cells = re.findall(r'<button[^>]*data-page="(\d+)"[^>]*--i:([\d.]+)', html)
    assert [cell for cell in cells if float(cell[1])] == [("3", "0.500"), ("4", "1.000")]
    assert html.count("tf-out") == 6 and html.count('tabindex="0"') == 1
    assert re.search(r'tf-selected" data-action="page" data-page="4"', html)


def test_bars_show_what_is_above_the_usual() -> None:
    def result(*shares: float, **more: object) -> dict:
        return {"page_shares": list(shares), "first_page": 1, "ranges": [[1, 3]], "model": "m"} | more

    shown, others = result(0.1, 0.3, 0.6), [result(0.2, 0.1, 0.7), result(0.2, 0.1, 0.7)]
    usual = strip.usual_shares(shown["page_shares"], shown, others)
    assert usual == pytest.approx((0.2, 0.1, 0.7))
    html = bars(["Page 1", "Page 2", "Page 3"], shown["page_shares"],
                heights=above(shown["page_shares"], usual), cited={2})
    assert re.findall(r"--i:([\d.]+)", html) == ["0.000", "1.000", "0.000"]  # not the last page, which is always tall
    assert "Page 3 · 60.0 %" in html and re.findall(r'tf-cited" data-action="page" data-page="(\d)"', html) == ["2"]
    for few in (others[:1], [*others[:1], result(0.2, 0.1, 0.7, model="n")], [result(0.5, 0.5), result(0.5, 0.5)]):
        assert strip.usual_shares(shown["page_shares"], shown, few) == ()
    first = shown | {"usual_shares": [0.1, 0.1, 0.8]}  # the engine's own: no other answer is needed
    assert strip.usual_shares(shown["page_shares"], first, others) == (0.1, 0.1, 0.8)
    alike = bars(["1", "2", "3"], shown["page_shares"],
                 heights=above(shown["page_shares"], (0.1, 0.29, 0.61)))
    assert max(map(float, re.findall(r"--i:([\d.]+)", alike))) < 0.5  # next to nothing is above it: no page is tall
    assert bars(["1", "2", "3"], (), heights=()).count("--i:0.000") == 3  # before the first round
    level = above((0.1,) * 7 + (0.3, 0.0), (0.05,) * 8 + (0.6,))  # the last page has less, so all others more
    assert level == pytest.approx([0.0] * 7 + [0.2, 0.0])
    quote = {"closed": True, "occurrences": [{"places": [{"page": 2}, {"page": 3}]}]}
    assert strip.cited_pages({"quotes": [quote, quote | {"closed": False}]}) == {2, 3}


def test_what_every_question_draws_is_not_called_most_attended() -> None:
    passage = Passage(2, 0.5, "The keeper slept well.", 0)
    document = Document("t", "txt", (Page("1", "One."), Page("2", passage.text)), "test")

    def drawn(usual: tuple[float, ...]) -> str:
        return strip.strip_section(document, (0.2, 0.8), [passage], first_page=1, selected=None,
                                   read=((1, 2),), usual=usual)

    assert passage.text in drawn((0.5, 0.5)) and strip.STRIP_ABOVE in drawn((0.5, 0.5))
    assert passage.text not in drawn((0.1, 0.9)), "its page has no bar"
    assert passage.text in drawn((0.2, 0.8)), "no page has one"
    bare = drawn(())
    assert passage.text not in bare and PASSAGES not in bare and esc(strip.STRIP_ALL) in bare


def test_a_fragment_is_no_passage() -> None:
    document = Document("t", "txt", (Page("1", "See line 1,234,567. 1,234,567,890. The keeper slept well."),), "test")
    chunks = [{"page": 1, "share": 0.9, "text": "1,234,567,890."}, {"page": 1, "share": 0.1, "text": "keeper slept"}]
    assert [passage.text for passage in passages(chunks, document)] == ["The keeper slept well."]


def test_a_page_without_attention_is_empty_not_missing() -> None:
    assert bars(["i", "ii"], ()).count("<button") == 2


def test_chunks_become_sentences() -> None:
    document = Document("t", "txt", (Page("i", "One day.  The keeper\ncounted forty ships. Then he slept."),
                                     Page("ii", "Nothing here.")), "test")
    chunks = [{"page": 1, "share": 0.2, "text": "eeper counted fo"}, {"page": 1, "share": 0.3, "text": "ty ships"},
              {"page": 2, "share": 0.9, "text": "counted forty"}, {"page": 9, "share": 0.9, "text": "counted"},
              {"page": 1, "share": 0.1, "text": "n he slept."}, {"page": 1, "share": 0.9, "text": " a"}]
    found = passages(chunks, document)
    assert [(p.number, round(p.share, 3), p.text) for p in found] == [
        (1, 0.5, "The keeper\ncounted forty ships."), (1, 0.1, "Then he slept.")]


def test_a_long_sentence_is_shown_whole_and_a_longer_one_to_a_word() -> None:
    sentence = "The keeper " + "counted the ships of the northern harbour and " * 7 + "slept."
    document = Document("t", "txt", (Page("1", f"One day. {sentence} Then he woke."),), "test")
    (found,) = passages([{"page": 1, "share": 0.5, "text": "and slept."}], document)
    assert found.text == shown(found.text) == sentence and len(sentence) > 300
    endless = Document("t", "txt", (Page("1", "unendingly " * 200 + "unique words " + "unendingly " * 200),), "test")
    (found,) = passages([{"page": 1, "share": 0.5, "text": "unique words"}], endless)
    assert set(found.text.split()) == {"unendingly", "unique", "words"}, "cut between words"
    cut = shown("unendingly " * 60)
    assert len(cut) <= LONGEST and set(cut.split()) == {"unendingly", "…"}


def test_pages_of_one_label_are_told_apart_by_their_place() -> None:
    document = Document("t", "txt", (Page("1", "The keeper counted forty ships."), Page("2", "Nothing here."),
                                     Page("1", "The captain drank his tea.")), "test")
    chunks = [{"page": 1, "label": "1", "share": 0.5, "text": "keeper counted"},
              {"page": 3, "label": "1", "share": 0.3, "text": "captain drank"},
              {"page": 3, "label": "1", "share": 0.2, "text": "keeper counted"},  # of another page than it says
              {"page": 4, "label": "1", "share": 0.2, "text": "keeper counted"}]
    assert [(p.number, p.share) for p in passages(chunks, document)] == [(1, 0.5), (3, 0.3)]
    assert passages([{"page": "1", "share": 0.5, "text": "keeper counted"}], document) == []  # a label is no place
    on_one_page = replace(document, pages=(Page("1", "The keeper counted ships. The other keeper counted none."),))
    assert passages(chunks[:1], on_one_page) == []


def test_reading_says_tokens_rate_and_time_left() -> None:
    prefill = Job("prefill", "d", stage="read", progress=PrefillProgress(12_000, 31_204, 740.2, 26.0))
    html = document_head.head(ENTRY, "read", prefill=prefill)
    for text in ("12,000", "31,204", "740 tokens/s", "26 s left", page_words.CANCEL):
        assert text in html
    prefill.fate = Fate.STOP
    assert document_head.CANCELLING in document_head.head(ENTRY, "read", prefill=prefill)
    before = Job("prefill", "d", stage="loading")
    said = document_head.head(ENTRY, "read", prefill=before, takes=90.0)
    assert f"reading it takes about {figures.seconds(90.0)} here" in said
    served = Job("prefill", "d", stage="served", progress=PrefillProgress(0, 31_204, 0.0, None, "served", 130.0))
    html = document_head.head(ENTRY, "served", prefill=served, takes=200.0)
    assert "2 min 10 s so far · reading it takes about" in html and "tf-meter" not in html
    for takes in (None, 1.5):
        assert "reading it takes" not in document_head.head(ENTRY, "read", prefill=before, takes=takes)


@pytest.mark.parametrize(("stage", "progress", "said"), [
    ("tokenize", PrefillProgress(8_000, 32_000, 230_000.0, 1.5, "tokenize"),
     ("Turning the text into tokens: 8,000 of about 32,000", 0.25, "230,000 tokens/s · 1.5 s left")),
    ("tokenize", None, (library_words.PHASES["tokenize"], 0.0, "")),  # the engine has started, and has reported nothing
    ("warm-up", PrefillProgress(7_801, 31_204, 5_000.0, 4.0, "warm-up"),
     (document_head.READING_WARM, 0.25, "4.0 s left")),
    ("warm-up", PrefillProgress(0, 31_204, 0.0, None, "warm-up"), (document_head.READING_WARM, 0.0, "")),
    ("served", PrefillProgress(0, 31_204, 0.0, None, "served", 12.4),
     (document_head.READING_SERVED.format(tokens="31,204"), None, "12 s so far")),
    ("tune", PrefillProgress(40, 100, 10.0, 6.0, "tune"), (document_head.READING_TUNE, 0.4, "6.0 s left"))])
def test_each_stage_says_how_far_and_how_long(stage: str, progress: PrefillProgress | None, said: tuple) -> None:
    prefill = Job("prefill", "d", stage=stage, progress=progress)
    assert document_head.prefill_line(prefill, LoadProgress("Ready", 1.0)) == said and library_words.PHASES[stage]


def test_the_engine_panel_says_how_it_drafts() -> None:
    model = ModelInfo("m", "d", "cpu", "why", "CPU", "bfloat16", 4096, 1, 1, drafting="measured long ago")
    status = EngineStatus("idle", model, 1, 1, None, facts=EngineFacts("cpu", "why", 1, 2, drafting="10 at a time"))
    section = settings.engine_section
    assert "<dt>Drafting</dt><dd>10 at a time</dd>" in section("ready", model, None, status, 0, False)
    assert "<dt>Drafting</dt><dd>measured long ago</dd>" in section("ready", model, None, None, 0, False)
    silent = ModelInfo("m", "d", "cpu", "why", "CPU", "bfloat16", 4096, 1, 1)
    bare = settings.engine_section("ready", silent, None, None, 2, False)
    assert "Drafting" not in bare and "2 waiting" in bare and "4,096" in bare and "bfloat16" in bare


def test_reopened_says_both_times() -> None:
    opened = DocumentOpened("d", 4213, (), 0.8, 41.0, True, 32_768)
    assert "read in 41 s, reopened in 0.8 s" in document_head.in_context(ENTRY, opened)
    assert "pages 2–4 of 6" in document_head.in_context(replace(ENTRY, chosen="2-4"), opened)
    assert "pages 1, 3–4 of 6" in document_head.in_context(replace(ENTRY, chosen="1, 3-4"), opened)


def test_too_long_says_how_long_and_how_much_fits() -> None:
    fit = DocumentFit(600, 350, (100,) * 6)
    words = page_choice.what_fits(ENTRY, fit)
    assert "600 tokens" in words and "can read 350" in words and "About 2 of your 6 pages fit" in words
    assert "other chapters" not in words and "other chapters" in page_choice.what_fits(ENTRY, fit, True)
    assert 'data-tab="models"' in words and "data-tab" not in page_choice.what_fits(ENTRY, replace(fit, tokens=300))
    assert "Pages 1–2, 4 of 6: 300 tokens. Fits (86 %)." in page_choice.range_words(ENTRY, fit, "4,1-2")
    assert "50 too many" in page_choice.range_words(ENTRY, fit, "1-4")
    short = page_choice.what_fits(ENTRY, replace(fit, limited_by="memory"))
    assert "the memory that is free holds 350" in short and "can read" not in short
    for bad in ("0-3", "3-2", "1-7", "1.5", "", "x", "<img>"):
        assert "tf-bad" in page_choice.range_words(ENTRY, fit, bad)


def test_a_part_is_never_called_the_whole() -> None:
    assert page_choice.scope(ENTRY) == page_choice.WHOLE
    assert page_choice.scope(replace(ENTRY, chosen="2-4")) == "pages 2–4 of 6"
    many = replace(ENTRY, pages=20, chosen="1-2, 4, 6, 8-11")
    assert page_choice.scope(many) == "8 of 20 pages"
    begun = chat.begin(page_choice.scope(many))
    assert "8 of 20 pages" in begun and "whole" not in begun
    assert "8 of 20 pages" in library_view.document_item(many, "ready", True)
    assert "20 pages" in library_view.document_item(replace(many, chosen=""), "ready", True)


def test_only_what_fits_can_be_read() -> None:
    fit = DocumentFit(600, 350, (100,) * 6)
    fits = {typed: page_choice.readable(ENTRY, fit, typed) for typed in ("1-3", "1-4", "x", "", "1-7")}
    assert fits == {"1-3": True, "1-4": False, "x": False, "": False, "1-7": False}
    assert page_choice.readable(ENTRY, replace(fit, estimated=True), "1-4")  # nobody knows yet
    assert page_choice.readable(ENTRY, None, "1-4")


def lane(tokens: list[int], text: str) -> Accumulator:
    accumulator = Accumulator()
    accumulator.text, accumulator.token_ids, accumulator.marks = text, tokens, [(0.1 * i, i)
                                                                                for i in range(len(text) + 1)]
    return accumulator


def test_race_verdicts() -> None:
    model = ModelInfo("m", "d", "cpu", "", "cpu", "bfloat16", 1024, 1, 1)
    same = runs.compare_lanes([lane([1, 2], "ab"), lane([1, 2], "ab")], model)
    assert same["same"] and race_view.SAME in race_view.verdict(same)
    parted = runs.compare_lanes([lane([1, 2, 3], "a b c"), lane([1, 9], "a x")], model)
    assert not parted["same"] and parted["difference"]["token"] == 2
    html = race_view.verdict(parted)
    assert "bfloat16" in html and "<mark>b c</mark>" in html and "<mark>x</mark>" in html
    exact = runs.compare_lanes([lane([1], "a"), lane([2], "b")], replace(model, dtype="float32"))
    assert exact["difference"]["why"] == DIFFERS_EXACT
    for speedup, words in ((2.0, "2.00 times as fast"), (0.7, "Speculation lost"), (1.01, "No real difference"),
                           (None, "Too short")):
        assert words in race_view.verdict(same | {"speedup": speedup})


def test_replay_marks_are_thinned_but_complete() -> None:
    marks = [(i * 0.01, i) for i in range(5000)]
    kept = runs.thin(marks)
    assert len(kept) <= 601 and kept[-1][1] == 4999


def test_engine_panel_shows_memory() -> None:
    model = ModelInfo("Llama", "", "on-chip", "a GPU is present", "H200", "bfloat16", 131_072, 13_476_298_752, 1)
    facts = EngineFacts("offload", "61.0 GiB do not fit", 70 * 2**30, 30 * 2**30, 18 * 2**30, 6 * 2**30)
    status = EngineStatus("busy", model, 1, 0, None, facts=facts)
    html = settings.engine_section("ready", model, None, status, 0, True)
    for text in ("offload (H200)", "61.0 GiB do not fit", "18.0 GiB used, 6.0 GiB free", "70.0 GiB used, 30.0 GiB free",
                 'aria-label="GPU"', 'aria-valuenow="75"', 'aria-label="Memory"', 'aria-valuenow="70"'):
        assert text in html
    assert "a GPU is present" not in html  # the document's reason, not the model's
    on_cpu = replace(status, facts=replace(facts, device_used=None, device_free=None))
    assert 'aria-label="GPU"' not in settings.engine_section("ready", model, None, on_cpu, 0, True)


def test_what_the_question_line_asks_for_fits_a_phone() -> None:
    """One line of 300 pixels: a second one is cut off."""
    assert len(chat.ASK_PARTS) <= 36
