"""An engine that hangs is told from one that is slow, by what it has shown."""

from __future__ import annotations

import pytest

from ui.app.engine_holder import FIRST_LIMIT, HUNG_AFTER, LEAST_LIMIT, LIMIT, STEPS, UNASKED, Watchdog

POLL = 2.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def after(watchdog: Watchdog, clock: Clock, cores: float, most: float = 2000.0) -> float:
    """Seconds from a stop until it is taken for hung (``most``: never), while its process uses so many cores."""
    asked, used = clock.now, 50.0
    while clock.now - asked < most:
        clock.now += POLL
        used += cores * POLL
        if watchdog.hung(asked, used):
            return clock.now - asked
    return most


def shown(steps: tuple[float, ...], doing: str = "read") -> tuple[Watchdog, Clock]:
    """One that took so long for its steps, and is in the next."""
    clock = Clock()
    watchdog = Watchdog(clock)
    watchdog.began(doing)
    for seconds in steps:
        clock.now += seconds
        watchdog.heard()
    return watchdog, clock


@pytest.mark.parametrize(("steps", "cores", "least", "most"), [
    ((), 0.0, HUNG_AFTER, HUNG_AFTER + 2 * POLL),  # nothing was ever seen of it: a deadlock
    ((0.1, 0.2), 0.0, HUNG_AFTER, HUNG_AFTER + 2 * POLL),
    ((40.0,), 0.0, 40.0 * STEPS, 40.0 * STEPS + 2 * POLL),  # waits for a GPU or a disk, but its steps do take so long
    ((0.1,), 1.0, LEAST_LIMIT, LEAST_LIMIT + 2 * POLL),  # it turns in a circle
    ((40.0,), 8.0, 40.0 * LIMIT, 40.0 * LIMIT + 2 * POLL),
    ((), 8.0, FIRST_LIMIT, FIRST_LIMIT + 2 * POLL)])
def test_how_long_it_is_waited_for(steps: tuple[float, ...], cores: float, least: float, most: float) -> None:
    assert least <= after(*shown(steps), cores) <= most


def test_a_step_of_another_kind_says_nothing() -> None:
    watchdog, clock = shown((300.0,), "load")
    watchdog.began("read")
    assert after(watchdog, clock, 0.0) <= HUNG_AFTER + 2 * POLL


def test_it_is_heard_while_it_is_asked_to_stop() -> None:
    """Weights are loaded to their end: each part is a sign of life."""
    watchdog, clock = shown((1.0,), "load")
    asked = clock.now
    for _ in range(20):
        clock.now += HUNG_AFTER * 0.9
        assert not watchdog.hung(asked, 0.0)
        watchdog.heard()


def test_one_that_stops_computing_is_hung_from_then_on() -> None:
    watchdog, clock = shown((0.1,))
    asked = clock.now
    for used in range(20):
        clock.now += POLL
        assert not watchdog.hung(asked, float(used))
    assert after(watchdog, clock, 0.0) <= HUNG_AFTER + 2 * POLL


@pytest.mark.parametrize(("steps", "cores", "limit"), [
    ((0.1,), 0.0, HUNG_AFTER), ((40.0,), 0.0, 40.0 * STEPS), ((0.1,), 1.0, LEAST_LIMIT), ((40.0,), 8.0, 40.0 * LIMIT)])
def test_where_nobody_asked_for_a_stop_it_is_waited_for_far_longer(steps: tuple[float, ...], cores: float,
                                                                   limit: float) -> None:
    """A driver that never returns but lets the heart beat."""
    watchdog, clock = shown(steps)
    began = clock.now
    used, hung = 50.0, False
    while not hung and clock.now - began < 10**5:
        clock.now += POLL
        used += cores * POLL
        hung = watchdog.hung(None, used)
    assert UNASKED * limit <= clock.now - began <= UNASKED * limit + 2 * POLL
