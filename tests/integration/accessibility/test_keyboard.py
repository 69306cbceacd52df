"""The chat with the keys Tab, Enter, Space, Escape and the arrows only."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.integration.browser.test_chat import (
    answer,
    browser,
    chat_address,
    expect_end,
    open_page,
    page,
)

__all__ = ["browser", "open_page", "page"]

pytestmark = pytest.mark.browser

MOST_STOPS = 150  # of the Tab key, until something counts as out of its reach
#: Whether a person sees where the focus is: an outline of it or of what it stands in.
IS_MARKED = """
(node) => {
  for (let depth = 0; node && depth < 3; depth++, node = node.parentElement) {
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(node);
    if (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1) return true;
    if (node.matches(".composer") && boxShadow !== "none") return true;
  }
  return false;
}
"""


def go(page: Page, target: Locator, key: str = "Tab") -> None:
    """Press the key until the focus is there, and see that it is marked."""
    for _ in range(MOST_STOPS):
        if target.evaluate("node => node === document.activeElement"):
            assert target.evaluate(IS_MARKED)
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} does not reach {target}")


def back(page: Page, target: Locator) -> None:
    go(page, target, "Shift+Tab")


def press(page: Page, target: Locator) -> None:
    """Go there backwards, as most is above the message box, and press it."""
    back(page, target)
    page.keyboard.press("Enter")


def send(page: Page, text: str) -> None:
    go(page, page.get_by_role("textbox", name="Message"))
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def begin(page: Page, text: str = "/echo one") -> str:
    """A chat with an answer. Returns its address."""
    send(page, text)
    expect_end(page)
    return chat_address(page)


def test_messages_are_sent_edited_answered_again_and_stopped(page: Page):
    begin(page)
    press(page, page.get_by_role("link", name="Edit the message"))
    expect(page.locator(".edit-message textarea")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("/echo two")
    go(page, page.get_by_role("button", name="Save and send"))
    page.keyboard.press("Enter")
    expect_end(page)
    expect(answer(page)).to_have_text("two")

    press(page, page.get_by_role("button", name="Previous version"))
    expect(answer(page)).to_have_text("one")
    expect(page.get_by_role("button", name="Next version")).to_be_focused()
    go(page, page.locator("summary[aria-label='More for this answer']"))
    page.keyboard.press("Enter")
    again = page.get_by_role("button", name="Answer again", exact=True)
    go(page, again)
    page.keyboard.press("Enter")
    expect(page.locator(".branch-switch")).to_contain_text("3/3")
    expect_end(page)

    send(page, "/long 400")
    expect(page.locator(".turn").last).to_contain_text("3 4 5")
    page.keyboard.press("Escape")
    expect(page.locator(".turn .ending").last).to_contain_text("Stopped")


@pytest.mark.slow
def test_a_chat_is_renamed_and_deleted_and_the_deletion_undone(page: Page):
    begin(page, "/echo to be renamed")
    menu = page.locator(".row.is-current .row-menu summary")
    dialog = page.locator("#dialog")

    def choose(name: str) -> None:
        back(page, menu)
        page.keyboard.press("Enter")
        go(page, page.locator(".row.is-current .row-actions").get_by_text(name))
        page.keyboard.press("Enter")
        expect(dialog).to_be_visible()

    choose("Rename")
    expect(dialog.get_by_label("Title")).to_be_focused()
    for _ in range(8):  # the focus stays inside, or goes to the browser's own bars
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body ||"
            " document.activeElement.closest('dialog') !== null"
        )
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(menu).to_be_focused()

    choose("Rename")
    page.keyboard.type("Named by keys")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator(".row.is-current .row-link")).to_have_text("Named by keys")
    expect(page.locator(".row.is-current :focus")).to_have_count(1)

    choose("Delete")
    go(page, dialog.get_by_role("button", name="Delete"))
    page.keyboard.press("Enter")
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    go(page, undo)
    page.keyboard.press("Enter")
    expect(page.locator(".bar-title")).to_have_text("Named by keys")


def test_chats_are_searched_and_shortcuts_listed(page: Page):
    begin(page, "/echo about quinces")
    press(page, page.locator(".user-menu summary"))
    expect(page.locator(".user-menu")).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(page.locator(".user-menu")).not_to_have_attribute("open", "")
    expect(page.locator(".user-menu summary")).to_be_focused()
    page.keyboard.press("?")
    shortcuts = page.get_by_role("dialog")
    expect(shortcuts).to_contain_text("Show this list")
    page.keyboard.press("Escape")
    expect(shortcuts).to_be_hidden()
    expect(page.locator(".user-menu summary")).to_be_focused()
    page.keyboard.press("s")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("quinces")
    found = page.locator(".row-link.is-found").first
    expect(found).to_contain_text("quinces")
    go(page, found)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/chat/"))
    expect(answer(page)).to_have_text("about quinces")


def test_chats_are_selected_and_archived(page: Page):
    begin(page, "/echo for the archive")
    page.goto("/library/")
    row = page.locator(".found-list li", has_text="for the archive").first
    go(page, row.get_by_role("checkbox"))
    page.keyboard.press("Space")
    go(page, page.get_by_role("button", name="Archive", exact=True))
    page.keyboard.press("Enter")
    expect(page.locator(".found-list li", has_text="for the archive")).to_have_count(0)


@pytest.mark.slow
def test_a_chat_is_shared(page: Page):
    begin(page, "/echo to be shared")
    press(page, page.get_by_role("banner").get_by_role("link", name="Share"))
    dialog = page.locator("#dialog")
    expect(dialog).to_be_visible()
    go(page, dialog.get_by_role("radio", name="what is there now"))
    page.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("radio", name="also what follows")).to_be_checked()
    go(page, dialog.get_by_role("button", name="Create the link"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Also what follows")).to_be_visible()
