"""Where things stand on the chat page."""

from __future__ import annotations

from itertools import combinations

import pytest
from playwright.sync_api import FloatRect, Locator, expect

from tests.integration.browser.test_chat import (
    NUMBERS,
    Open,
    browser,
    chat_address,
    expect_end,
    last,
    open_page,
    send_message,
)

__all__ = ["browser", "open_page"]

pytestmark = pytest.mark.browser


def box_of(found: Locator) -> FloatRect:
    box = found.bounding_box()
    assert box
    return box


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_a_message_has_its_pencil_beside_it(open_page: Open, width: int):
    page = open_page(viewport={"width": width, "height": 844})
    send_message(page, "/echo Keeping bread fresh, for many days and in summer too")
    expect_end(page)
    asked = last(page).locator(".asked")
    asked.hover()
    pencil, message = box_of(asked.locator(".turn-edit")), box_of(asked)
    assert message["y"] <= pencil["y"]
    assert pencil["y"] + pencil["height"] <= message["y"] + message["height"]
    assert pencil["x"] >= 0
    assert pencil["x"] + pencil["width"] <= message["x"] + 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 720, 1440])
def test_the_tools_of_the_message_box_stand_in_one_row(open_page: Open, width: int):
    page = open_page(viewport={"width": width, "height": 844})
    for text in ("/echo Hello", f"/long {NUMBERS}"):
        send_message(page, text)
        if text.startswith("/long"):
            expect(page.locator("#stop")).to_be_visible()
        else:
            expect_end(page)
        tools = page.locator(".composer-tools")
        shown = [box_of(each) for each in tools.locator("> *:visible").all()]
        assert len(shown) >= 4
        assert box_of(tools)["height"] < 50
        assert all(box["x"] + box["width"] <= width for box in shown)
        if not text.startswith("/long"):  # Stop takes some of the room
            assert box_of(page.locator(".picker"))["width"] > 95
    page.keyboard.press("Escape")
    expect(page.locator("#stop")).to_be_hidden()


@pytest.mark.slow
def test_a_phone_dictates_the_next_message_while_an_answer_runs(open_page: Open):
    script = "window.webkitSpeechRecognition = class extends EventTarget {}"
    phone = {"viewport": {"width": 360, "height": 700}, "has_touch": True}
    page = open_page(script=script, is_mobile=True, **phone)
    box = page.get_by_label("Message", exact=True)
    box.fill("/long 5000")
    page.get_by_role("button", name="Send", exact=True).click()
    stop = page.get_by_role("button", name="Stop the answer")
    expect(stop).to_be_visible()
    box.fill("And then? " * 20)
    targets = [
        stop,
        page.get_by_role("button", name="Dictate"),
        page.get_by_role("button", name="Send", exact=True),
        page.locator("#send-menu > summary"),
        page.get_by_label("Model", exact=True),
        page.locator("#tools > summary"),
        page.locator(".attach"),
    ]
    boxes = [box_of(each) for each in targets]
    for each in boxes:
        assert min(each["width"], each["height"]) >= 44
        assert each["x"] >= 0
        assert each["x"] + each["width"] <= 360
    for one, other in combinations(boxes, 2):
        beside = max(one["x"], other["x"]) >= min(
            one["x"] + one["width"], other["x"] + other["width"]
        )
        assert beside or abs(one["y"] - other["y"]) >= 44
    assert box_of(page.locator(".composer-tools"))["height"] < 50
    stop.click()
    expect(stop).to_be_hidden()


#: Whether a sidebar that is hidden now was drawn at any moment since the page began.
DRAWN = """
window.drawn = false;
(function look() {
  if (document.querySelector("#sidebar")?.checkVisibility()) drawn = true;
  requestAnimationFrame(look);
})();
"""


@pytest.mark.slow
def test_a_hidden_sidebar_stays_hidden_after_a_reload(open_page: Open):
    page = open_page(script=DRAWN)
    sidebar = page.locator("#sidebar")
    page.locator("#sidebar [data-sidebar]").click()
    expect(sidebar).to_be_hidden()
    page.reload()
    expect(page.locator(".bar [data-sidebar]")).to_be_visible()
    expect(page.locator("#text")).to_be_focused()  # the modules have run
    expect(sidebar).to_be_hidden()
    assert page.evaluate("drawn") is False
    page.locator(".bar [data-sidebar]").click()
    expect(sidebar).to_be_visible()
    page.reload()
    expect(sidebar).to_be_visible()


@pytest.mark.slow
def test_a_hidden_sidebar_shows_on_pages_without_a_script(open_page: Open):
    page = open_page(java_script_enabled=False)
    expect(page.locator("#sidebar")).to_be_visible()
    expect(page.locator("[data-sidebar]").first).to_be_hidden()


#: Whether an element of this class in the list is told from the page by its colour.
IS_SEEN = """(name) => {
  const sign = document.createElement("span");
  sign.className = name;
  sign.append(document.createElement("i"));
  const page = document.createElement("span");
  page.style.background = "Canvas";
  document.querySelector("#list").append(sign, page);
  const dot = name === "dots" ? sign.firstElementChild : sign;
  const colour = (element) => getComputedStyle(element).backgroundColor;
  const [shown, behind] = [dot, page].map(colour);
  return shown !== behind && shown !== "rgba(0, 0, 0, 0)";
}"""


@pytest.mark.parametrize("name", ["unread", "dots"])
def test_signs_are_seen_where_the_system_sets_the_colours(open_page: Open, name: str):
    page = open_page("/", forced_colors="active")
    assert page.evaluate(IS_SEEN, name)


@pytest.mark.slow
def test_foreign_text_is_not_kerned(open_page: Open):
    """With kerning, Chromium takes 30 seconds for a word of 50,000 letters."""
    page = open_page()
    send_message(page, "/echo WWW")
    expect_end(page)
    for place in (".asked-text", ".said p", "#text", ".bar-title", ".row-link"):
        expect(page.locator(place).first).to_have_css("font-kerning", "none")


@pytest.mark.slow
def test_a_title_without_blanks_leaves_pages_as_narrow_as_a_phone(open_page: Open):
    page = open_page(viewport={"width": 390, "height": 844})
    send_message(page, f"/echo {'x' * 300}")
    expect_end(page)
    address = chat_address(page)
    for part in ("delete", "organise", "options", "share", "people"):
        page.goto(f"{address}{part}/")
        expect(page.get_by_text("xxx").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, part


@pytest.mark.slow
def test_lists_deep_in_one_another_leave_room_for_words_on_a_phone(open_page: Open):
    page = open_page(viewport={"width": 390, "height": 844})
    levels = "\n".join(f"{'  ' * level}- level {level}" for level in range(12))
    send_message(page, f"/echo {levels}")
    expect_end(page)
    box = box_of(page.locator(".answer li").last)
    assert box["width"] > 80
