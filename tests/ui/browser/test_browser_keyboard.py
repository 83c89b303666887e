"""The keyboard alone, in headless Chromium: Tab goes through the whole page and out of it, and what has the focus shows
it, on a desktop and on a phone."""

from __future__ import annotations

import pytest
from page_steps import answered, ask, more_by_keyboard, upload

pytestmark = pytest.mark.browser

# What has the focus: its name, whether it is on the screen, and whether it or what it stands in has a ring, of a colour
# that is not the ground's and not cut off by what it stands in.
FOCUSED = r"""() => {
  const here = document.activeElement;
  if (!here || here === document.body) return null;
  const box = here.getBoundingClientRect();
  const light = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number);
    return (0.3 * r + 0.6 * g + 0.1 * b) * (colour.startsWith('color') ? 255 : 1);
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const whole = (part, style) => {
    const box = part.getBoundingClientRect(), out = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
    for (let up = part.parentElement; up !== document.body; up = up.parentElement) {
      if (getComputedStyle(up).overflow === 'visible') continue;
      const edge = up.getBoundingClientRect();
      const over = [edge.top - box.top, edge.left - box.left, box.right - edge.right];
      if (Math.max(...over) + out > 1) return false;
    }
    return true;
  };
  let ring = false;
  for (let part = here, up = 0; part && up < 5 && !ring; part = part.parentElement, up += 1) {
    const style = getComputedStyle(part);
    ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 1
      && Math.abs(light(style.outlineColor) - ground) > 60 && whole(part, style);
    ring ||= here.matches('input, textarea') && style.boxShadow !== 'none';  // theirs is the frame around them
  }
  const name = here.dataset.action || here.dataset.pane || here.closest('#question, #upload, #search')?.id || here.id
    || here.className;
  return {name, ring, seen: box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth};
}"""
# Whatever could be a stop, seen or not: how many there are follows the library, which tests share.
FOCUSABLE = "a[href], button, input, textarea, select, summary, iframe, video, audio, [tabindex], [contenteditable]"


def lap(tab) -> list[dict]:
    """Every stop until the focus leaves the page. More of them than could be stops: it is caught."""
    stops: list[dict] = []
    while len(stops) <= tab.locator(FOCUSABLE).count():
        tab.keyboard.press("Tab")
        stop = tab.evaluate(FOCUSED)
        if stop is None:
            return stops
        stops.append(stop)
    pytest.fail(f"the focus is caught: {[stop['name'] for stop in stops[-6:]]}")


@pytest.mark.parametrize("width", [1280, 360])
def test_tab_goes_through_the_page_and_out_of_it(served, tab, scripted, width: int) -> None:
    upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    tab.set_viewport_size({"width": width, "height": 760})
    lap(tab)  # the rest of the one that the question has begun
    stops = lap(tab)
    assert [stop["name"] for stop in stops if not stop["seen"]] == []
    assert [stop["name"] for stop in stops if not stop["ring"]] == []
    names = {stop["name"] for stop in stops}
    wanted = {"tab-chat-button", "tab-settings-button", "again", "trace", "question", "send"}
    wanted |= {"library", "center", "side"} if width < 760 else {"upload", "search", "open", "new-conversation", "page"}
    assert wanted <= names, wanted - names


def test_the_menu_opens_closes_and_gives_the_focus_back(served, tab, scripted) -> None:
    upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    tab.focus("#talk-bar .tf-more > summary")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#talk-bar .tf-more[open]")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#talk-bar .tf-more:not([open]) > summary:focus")


def test_escape_closes_what_is_open_before_it_stops_the_answer(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.triforce_tokens_per_second = 8.0
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-prose")
    for opener, box in (("", "#instructing"), (".tf-keys-button", "#key-table")):
        if opener:
            tab.focus(opener)
            tab.keyboard.press("Enter")
        else:
            more_by_keyboard(tab, "#talk-bar", "instruct")
        tab.wait_for_selector(box)
        tab.keyboard.press("Escape")
        tab.wait_for_selector(box, state="hidden")
        tab.wait_for_timeout(300)
        assert tab.is_visible("#stop") and not any(run.stopping for run in served.services.runs.active())
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#stop", state="hidden")
