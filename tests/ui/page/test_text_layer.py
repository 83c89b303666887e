"""A page's picture: its text layer, and what is marked on it."""

from triforce_core import PageLayout
from ui.page.reader import marks, pieces


def layout(*lines: str, columns: dict[int, float] | None = None) -> PageLayout:
    """Lines of characters 0.02 wide and 0.04 high. columns: which character of a line is how far to the right."""
    text, boxes = "", []
    for row, line in enumerate(lines):
        left = 0.1
        for at, c in enumerate(line):
            left += (columns or {}).get(at, 0.0)
            boxes.append(None if c.isspace() else (left, 0.1 + 0.05 * row, left + 0.02, 0.14 + 0.05 * row))
            left += 0.02
        text += line + "\r\n"
        boxes += [None, None]
    return PageLayout(200.0, 300.0, text, tuple(boxes))


def test_a_piece_per_line_and_per_column() -> None:
    assert [text for text, _ in pieces(layout("one two", "three"))] == ["one two", "three"]
    assert [text for text, _ in pieces(layout("ab cd", columns={3: 0.3}))] == ["ab", "cd"]
    (_, box), _ = pieces(layout("one", "two"))
    assert box == (0.1, 0.1, 0.06, 0.04)


def test_marks_cover_the_words_line_by_line() -> None:
    page = "the keeper counted forty ships"
    found = marks(page, [(4, 18)], layout("the kee\x02", "per counted", "forty ships"))
    assert [box[:2] for box in found] == [(0.18, 0.1), (0.1, 0.15)]
    assert round(found[1][2], 3) == 0.22  # "per counted"


def test_which_of_several_is_decided_by_their_order() -> None:
    page = "ships here, ships there"
    sheet = layout("ships here,", "ships there")
    assert marks(page, [(12, 17)], sheet)[0][1] == 0.15
    assert marks(page, [(0, 5)], sheet)[0][1] == 0.1


def test_what_stands_around_the_words_tells_too() -> None:
    sheet = layout("all ships here", "all ships there", "all ships at sea")
    assert marks("all ships there all ships at sea", [(21, 26)], sheet)[0][1] == 0.2
    assert marks("all ships there all ships at sea", [(4, 9)], sheet)[0][1] == 0.15


def test_nothing_is_marked_where_it_is_not_sure() -> None:
    assert marks("ships", [(0, 5)], layout("ships: a running head", "ships")) == []
    assert marks("ships here", [(0, 5)], layout("boats here")) == []
    assert marks("ships here", [(5, 6), (3, 3), (90, 99)], layout("ships here")) == []
