"""Quotations looked up in a document: found whatever the typography, never found where they do not stand."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event

import pytest

from triforce_core import Document, Page, Word
from ui.app.quotes import LEAST, Found, Normal, Place, QuoteFinder, QuoteFinders, normal, places, quotations, spot
from ui.page import markdown
from ui.page.markdown import Citations, live, named_page

KEEPER = "The lighthouse keeper counted forty ships before the storm reached the harbour."


def document(*pages: str) -> Document:
    return Document("t", "txt", tuple(Page(str(n), text) for n, text in enumerate(pages, 1)), "test")


def find(quotation: str, *pages: str) -> Found | None:
    return QuoteFinder(document(*pages)).find(quotation)


def words(found: Found | None, *pages: str) -> list[str]:
    """What is highlighted, occurrence by occurrence."""
    assert found is not None
    return ["|".join(pages[place.page - 1][place.start : place.end] for place in occurrence)
            for occurrence in found.occurrences]


@pytest.mark.parametrize(("page", "quotation", "shown"), [
    ("He said: The keeper counted forty ships.", "the keeper counted forty ships", "The keeper counted forty ships"),
    ("a light-\nhouse stood on the rock", "lighthouse stood on the rock", "light-\nhouse stood on the rock"),
    ("a well-known place by the sea", "well-known place by the sea", "well-known place by the sea"),
    ("a well-\nknown place by the sea", "well-known place by the sea", "well-\nknown place by the sea"),
    ("an oﬃce ﬁlled with ﬂowers", "office filled with flowers", "oﬃce ﬁlled with ﬂowers"),
    ("an office filled with flowers", "oﬃce ﬁlled with ﬂowers", "office filled with flowers"),
    ("He didn’t “know” the keeper’s name.", 'didn\'t "know" the keeper\'s name', "didn’t “know” the keeper’s name"),
    ("The keeper\ncounted\n\nforty   ships.", "Keeper counted forty ships.", "keeper\ncounted\n\nforty   ships"),
    ("the storm—it was autumn—reached", "the storm — it was autumn -- reached", "the storm—it was autumn—reached"),
    ("between 1914–1918 and later", "between 1914-1918 and later", "between 1914–1918 and later"),
    ("soft\u00adly spoken words here", "softly spoken words here", "soft\u00adly spoken words here"),
    ("and then… nothing more came", "and then... nothing more came", "and then… nothing more came"),
    ("Ein STRAßENBAHNHOF in İzmir steht", "straßenbahnhof in İzmir steht", "STRAßENBAHNHOF in İzmir steht"),
    ("灯塔建于一九〇五年，\n船只", "灯塔建于一九〇五年，船只", "灯塔建于一九〇五年，\n船只"),
    ("North | | 12.5 | Aldo the keeper", "North 12.5 Aldo", "North | | 12.5 | Aldo"),
    ("forty ships, he counted,", "“forty ships, he counted.”", "forty ships, he counted"),
])
def test_typography_does_not_count(page: str, quotation: str, shown: str) -> None:
    found = find(quotation, "Another page.", page)
    assert words(found, "Another page.", page) == [shown]
    assert found is not None and found.share == 1 and found.occurrences[0][0].page == 2


def test_across_a_page_break() -> None:
    pages = ("It is said that the light-", "house keeper counted forty ships.")
    found = find("the lighthouse keeper counted forty ships", *pages)
    assert words(found, *pages) == ["the light-|house keeper counted forty ships"]


def test_repeated_sentences_are_all_named_and_none_is_chosen() -> None:
    found = find(KEEPER, KEEPER, "Nothing.", f"And again: {KEEPER} {KEEPER}")
    assert found is not None and [o[0].page for o in found.occurrences] == [1, 3, 3]
    assert len({o[0].start for o in found.occurrences[1:]}) == 2


def test_most_of_it_in_one_piece_is_enough() -> None:
    found = find(KEEPER.replace("harbour", "shore"), "Before. " + KEEPER + " After.")
    assert found is not None and 0.85 <= found.share < 1
    assert words(found, "Before. " + KEEPER + " After.") == [KEEPER[: KEEPER.index("harbour")].rstrip()]


@pytest.mark.parametrize("quotation", [
    KEEPER.replace("counted", "sank"),  # the longest piece is too short
    "The lighthouse keeper counted", "forty ships before the storm came in from the sea",
    "counted forty lighthouse keepers", "short one", "", "ab" * 40])
def test_what_does_not_stand_there_is_not_found(quotation: str) -> None:
    page = "The lighthouse keepers, it is said, sank " + KEEPER.replace("keeper counted", "cat counted")
    assert find(quotation, page) is None


def test_eleven_characters_prove_nothing() -> None:
    assert find("abcdefghijk", "abcdefghijklmn") is None and LEAST == 12
    assert find("abcdefghijkl", "abcdefghijklmn") is not None


@pytest.mark.parametrize(("quotation", "page"), [
    ("灯是绿色的。", "守灯人说灯是绿色的。"), ("灯りは消えた", "夜には灯りは消えた。"),
    ("등불은 꺼졌다", "밤에 등불은 꺼졌다.")])
def test_four_signs_of_syllables_are_enough(quotation: str, page: str) -> None:
    found = find(quotation, "另一页。", page)
    assert words(found, "另一页。", page) == [quotation.strip("。")]
    assert find("灯是", page) is None and find("灯是红色的。", page) is None


def test_quotations_from_right_to_left() -> None:
    pages = ("השומר הדליק את המנורה בערב.", "أضاء الحارس المصباح الأحمر؟")
    assert words(find("הדליק את המנורה", *pages), *pages) == ["הדליק את המנורה"]
    assert words(find("أضاء الحارس المصباح الأحمر؟", *pages), *pages) == ["أضاء الحارس المصباح الأحمر"]
    marked = rendered("הוא אמר “הדליק את המנורה”.", *pages)
    assert 'data-spot="1:6-21"' in marked
    assert QuoteFinder(document(*pages)).search("المصباح", 5)[1] == 1


@pytest.mark.parametrize(("kept", "share"), [(84, None), (85, 0.85)])
def test_where_the_share_is_too_small(kept: int, share: float | None) -> None:
    letters = "".join(chr(ord("a") + n * n % 23) for n in range(100))
    found = find(letters, f"1 {letters[:kept]} 2")
    assert found is None if share is None else found is not None and found.share == share


def test_the_better_place_wins_and_equal_ones_are_both_shown() -> None:
    almost = KEEPER.replace("harbour", "shore")
    near, nearer = KEEPER.replace("storm reached the harbour", "storm reached us"), KEEPER
    found = find(almost, near, nearer)
    assert found is not None and [o[0].page for o in found.occurrences] == [2]
    found = find(almost, KEEPER, KEEPER)
    assert found is not None and [o[0].page for o in found.occurrences] == [1, 2]


def test_words_left_out() -> None:
    pages = ("The keeper counted forty ships, all of them grey, before the storm reached the harbour.", "End.")
    found = find("The keeper counted forty ships [...] before the storm reached the harbour", *pages)
    assert words(found, *pages) == ["The keeper counted forty ships|before the storm reached the harbour"]
    assert find("before the storm reached ... The keeper counted forty ships", *pages) is None  # the wrong way round
    assert find("The keeper counted forty ships ... and then everyone went home", *pages) is None
    far = (pages[0][:40], "Nothing.", "Nothing.", pages[0][40:])
    assert find("The keeper counted forty ships ... before the storm reached the harbour", *far) is None


def test_every_character_finds_its_way_back() -> None:
    text = "A  ﬁne “light-\nhouse” — ﬂ… \u200bof\u00ad 1914–18.\n\nEnd"
    form = Normal(text)
    spans = [form.origin(at, at + 1) for at in range(len(form.text))]
    assert spans[0] == (0, 1) and spans[-1] == (len(text) - 1, len(text))
    assert all(low[0] <= high[0] and low[1] <= high[1] for low, high in pairwise(spans))
    assert normal(text) == "a fine 'lighthouse'-fl... of 1914-18. end"


@pytest.mark.parametrize(("text", "found"), [
    ('He said "the keeper counted" and left.', ["the keeper counted"]),
    ("“the keeper counted” and „vierzig Schiffe zählte“ «quarante navires»",
     ["the keeper counted", "vierzig Schiffe zählte", "quarante navires"]),
    ("他说「灯是绿色的」，书名是『灯塔』。", ["灯是绿色的", "灯塔"]),
    ('5\'10" tall and 6\'2" tall, no quotation', []), ('"short" here', ["short"]),
    ('an "unclosed quotation of many words', []), ('"first quotation here" and "second quotation here"',
                                                   ["first quotation here", "second quotation here"])])
def test_what_counts_as_a_quotation(text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in quotations(text)] == found


def rendered(answer: str, *pages: str) -> str:
    return Citations(QuoteFinders()).render(answer, document(*pages), "key")


def test_chips_and_marks() -> None:
    good = rendered('It says "the keeper counted forty ships".', "Nothing here.", KEEPER.replace("lighthouse ", ""))
    assert 'data-page="2" data-spot="2:0-30"' in good and ">p. 2</button>" in good and "not in" not in good
    assert good.index("tf-quoted") < good.index("tf-cite")
    bad = rendered('It says "the keeper counted fifty ships".', KEEPER)
    assert "not found in the document" in bad and "tf-cite" not in bad


@pytest.mark.parametrize(("after", "label"), [
    ("” [p. 85].", "85"), ('" (page iv)', "iv"), (", p. T-1, and", "T-1"), ("” Page 3: more", "3"),
    ("” on the page", None),
    ("” and later", None), ("", None), ("” (pp. 3-5)", "3-5")])
def test_the_page_that_the_answer_names(after: str, label: str | None) -> None:
    assert named_page(after) == label


def test_the_named_page_comes_first_and_a_wrong_one_is_said_to_be() -> None:
    pages = (KEEPER, "Nothing.", KEEPER, "Nothing.")
    html = rendered(f'“{KEEPER}” [p. 3]', *pages)
    assert html.index("p. 3</button>") < html.index("p. 1</button>")
    assert html.count("the answer says") == 2  # of the other one: title and label
    assert "the answer says p. 2" in rendered(f'“{KEEPER}” [p. 2]', *pages)
    assert "the answer says" not in rendered(f'“{KEEPER}”', *pages)


def test_a_quotation_across_two_pages_opens_the_first() -> None:
    pages = ("Nothing.", "The lighthouse keeper counted", "forty ships before the storm")
    answer = "“The lighthouse keeper counted forty ships before the storm”"
    places = [{"page": 2, "label": "2", "start": 0, "end": 29}, {"page": 3, "label": "3", "start": 0, "end": 28}]
    told = {"number": 0, "start": 1, "end": len(answer) - 1, "closed": True, "count": 1,
            "occurrences": [{"start": 0, "end": 1, "places": places}]}
    looked_up, decoded = rendered(answer, *pages), live(answer, document(*pages), [told])
    for drawn in (looked_up, decoded):
        assert 'data-page="2" data-spot="2:0-29;3:0-28"' in drawn and ">p. 2</button>" in drawn


def test_a_slow_answer_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of another document nor of its own."""
    slow, let = Event(), Event()
    find_quickly = QuoteFinder.find

    def find_slowly(finder: QuoteFinder, quotation: str) -> Found | None:
        if "slow" in quotation:
            slow.set()
            assert let.wait(30)
        return find_quickly(finder, quotation)

    monkeypatch.setattr(QuoteFinder, "find", find_slowly)
    citations, book = Citations(QuoteFinders()), document(KEEPER)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(citations.render, "“a slow quotation of it”", book, "a")
        try:
            assert slow.wait(10)
            others = [pool.submit(citations.render, f"“{KEEPER}”", book, "a"),
                      pool.submit(citations.render, f"“{KEEPER}”", document(KEEPER), "b")]
            assert all("tf-cite" in other.result(timeout=10) for other in others)
        finally:
            let.set()
        assert "tf-uncited" in first.result(timeout=10)


def test_one_long_document_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, let = Event(), Event()
    make_quickly = Normal.__init__

    def make_slowly(form: Normal, text: str) -> None:
        if text == "long":
            slow.set()
            assert let.wait(30)
        make_quickly(form, text)

    monkeypatch.setattr(Normal, "__init__", make_slowly)
    finders = QuoteFinders()
    with ThreadPoolExecutor(2) as pool:
        pool.submit(finders.of, document("long"))
        try:
            assert slow.wait(10)
            assert pool.submit(finders.of, document(KEEPER)).result(timeout=10).find(KEEPER)
        finally:
            let.set()


def test_emphasis_inside_a_quotation_stays_nested() -> None:
    html = rendered('So "the lighthouse *keeper counted* forty ships" it is.', KEEPER)
    assert html.count("<em>") == html.count("</em>") == 1
    assert html.count('class="tf-cite"') == 1 and html.count("tf-quoted") == 3
    assert "<em><span" in html and "</span></em>" in html


def test_block_quotations_count_and_code_does_not() -> None:
    assert rendered("> the keeper sank forty ships of the fleet", KEEPER).count("not found in the document") == 1
    assert 'class="tf-cite"' in rendered("> the lighthouse keeper counted forty ships", KEEPER)
    code = '`"the keeper sank forty ships"`\n\n```\n"the keeper sank forty ships"\n```'
    assert rendered(code, KEEPER) == markdown.render(code)


def test_an_answer_stays_harmless() -> None:
    evil = '<img src=x onerror=alert(1)> and more words'
    html = rendered(f'He wrote "{evil}".', f"page {evil}")
    assert "<img" not in html and 'class="tf-cite"' in html
    label = Document("t", "txt", (Page("<b>", KEEPER),), "test")
    assert "<b>" not in Citations(QuoteFinders()).render(f'"{KEEPER}"', label, "key")


def told(answer: str, *spots: tuple[int, int, int], of: str = "", closed: bool = True, count: int = 0) -> dict:
    """A quotation as decoding tells of it: of: its words (as they stand between the answer's first marks)."""
    of = of or answer[answer.index("“") + 1 : answer.index("”")]
    start = answer.index(of)
    return {"number": 0, "start": start, "end": start + len(of), "closed": closed, "count": count or len(spots),
            "occurrences": [{"start": 0, "end": 1, "places": [
                {"page": page, "label": str(page), "start": low, "end": high}]} for page, low, high in spots]}


def test_a_page_has_one_chip_however_often_the_words_stand_there() -> None:
    html = rendered(f'“{KEEPER}”', f"{KEEPER} {KEEPER}", KEEPER)
    assert [part.split("<")[0] for part in html.split('">')[1:] if part.startswith("p. ")] == ["p. 1", "p. 2"]
    assert "and 1 more place" in html


def test_places_that_decoding_told_are_taken_and_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sentence that stands on three pages, those that were told; also of one too short to be looked up."""
    pages, answer = document(KEEPER, KEEPER, KEEPER + " Yes."), f"“{KEEPER}” “Yes.”"
    monkeypatch.setattr(QuoteFinder, "find", lambda *_: pytest.fail("looked up"))
    quotes = [told(answer, (2, 0, len(KEEPER)), (3, 0, len(KEEPER)), count=9),
              told(answer, (3, len(KEEPER) + 1, len(KEEPER) + 5), of="Yes.")]
    html = Citations(QuoteFinders()).render(answer, pages, "key", quotes)
    assert [part.split("<")[0] for part in html.split('">')[1:] if part.startswith("p. ")] == ["p. 2", "p. 3", "p. 3"]
    assert "and 7 more places" in html and f'data-spot="3:{len(KEEPER) + 1}-{len(KEEPER) + 5}"' in html
    assert live(answer, pages, quotes) == html  # while it is written as well
    quotes[0] = told(answer, (2, 0, len(KEEPER)), (3, 0, len(KEEPER)), count=3)
    assert "and 1 more place<" in live(answer, pages, quotes)


def test_what_decoding_did_not_tell_is_looked_up() -> None:
    pages, answer = document("Nothing.", KEEPER), f"“{KEEPER}” and “no keeper counted any ship”"
    assert Citations(QuoteFinders()).render(answer, pages, "key",
                                            [told(answer, (2, 0, len(KEEPER)))]).count("not found in the doc") == 1
    looked_up = Citations(QuoteFinders()).render(answer, pages, "key")
    assert 'data-spot="2:0-' in looked_up
    for stale in ((1, 0, 8), (2, 1, len(KEEPER)), (3, 0, 5), (2, 4, 4)):  # the page says something else there
        assert Citations(QuoteFinders()).render(answer, pages, "key", [told(answer, stale)]) == looked_up
    assert Citations(QuoteFinders()).render(answer, pages, "key", [told(answer, (2, 0, 77), closed=False)]) == looked_up
    assert "tf-cite" not in live(answer, pages, [told(answer, (1, 0, 8))])


def test_markdown_in_quoted_words_does_not_hide_where_they_stand() -> None:
    page = "He wrote *never* on a_wall_of stone."
    answer = f"“{page}”"
    assert 'data-spot="1:0-36"' in Citations(QuoteFinders()).render(answer, document(page), "k",
                                                                    [told(answer, (1, 0, len(page)))])


def test_words_that_stand_for_two_quotations_are_looked_up() -> None:
    """"Go!" and "Go." are told apart by their marks alone, which Markdown and typography may change."""
    pages, answer = document("Go now, keeper! Go now, keeper."), "“Go now, keeper!” “Go now, keeper.”"
    quotes = [told(answer, (1, 0, 15), of="Go now, keeper!"), told(answer, (1, 16, 31), of="Go now, keeper.")]
    assert Citations(QuoteFinders()).render(answer, pages, "key",
                                            quotes) == Citations(QuoteFinders()).render(answer, pages, "key")


def test_a_spot_travels_with_the_click_and_nothing_else_does() -> None:
    there = (Place(3, 10, 20), Place(4, 0, 7))
    assert places(spot(there)) == there
    for other in ("", "3", "3:1-2;x", "<b>", "3:1-2;" * 100 + "4", "٣:1-2000000000000"):
        assert places(other) == ()


def test_a_long_book_is_quick_enough_to_look_in() -> None:
    pages = [" ".join(f"word{(i * 7919 + j * 104729) % 99991}" for j in range(300)) for i in range(300)]
    finder = QuoteFinder(document(*pages))
    began = time.perf_counter()
    for i in range(20):
        assert finder.find(pages[i * 10][5:300]) and not finder.find(pages[i][5:99] + " no " + pages[i][105:190])
    assert time.perf_counter() - began < 5  # not a timing: quadratic search would take minutes


def test_a_quotation_from_a_scan_says_so() -> None:
    words = "The harbour of Tromso froze in January."
    pages = (Page("1", words, (Word("The", 0.1, 0.1, 0.2, 0.12),)), Page("2", "The ships left the town in May."))
    log = Document("Log", "pdf", pages, "test")
    drawn = [Citations(QuoteFinders()).render(f"It says “{quoted}”.", log, "log")
             for quoted in (words, pages[1].text)]
    assert ["read by OCR" in html for html in drawn] == [True, False]
