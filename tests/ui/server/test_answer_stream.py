"""What is sent of an answer that is being written: what has changed, in JavaScript's characters."""

from __future__ import annotations

import random

from ui.server.routes import change


def applied(before: str, sent: tuple[int, str, int]) -> str:
    """As writing.js does it."""
    start, words, end = sent
    units = before.encode("utf-16-le")
    return (units[: 2 * start] + words.encode("utf-16-le") + units[len(units) - 2 * end :]).decode("utf-16-le")


def test_a_change_gives_what_comes_after() -> None:
    draw = random.Random(3)
    texts = ["", "a", "aa", "ab😀b", "😀😀", "<p>word</p><i>3</i>"]
    texts += ["".join(draw.choices("ab😀é<", k=draw.randrange(12))) for _ in range(60)]
    for before in texts:
        for after in texts:
            assert applied(before, change(before, after)) == after


def test_more_words_are_sent_without_those_before_them() -> None:
    before = f"<p>{'word ' * 500}</p><i>500 tokens</i>"
    start, words, end = change(before, f"<p>{'word ' * 500}more</p><i>501 tokens</i>")
    assert len(words) < 40 and start > 2000 and end
