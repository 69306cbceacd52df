"""What stays as it is on a page while something else changes, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.browser.test_chat import (
    CALCULATION,
    Open,
    answer,
    asking,
    browser,
    chat_address,
    expect_end,
    last,
    open_page,
    page,
    send_message,
    signed_in,
    watched,
)
from tests.serving import ServerProcess

__all__ = ["asking", "browser", "open_page", "page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FORMULAS = r"/echo **So** $a\_b$, \(x_1 * y_1\) and \[z\] cost $5 and $6: `$HOME`."
SHOWN = r"So $a\_b$, \(x_1 * y_1\) and \[z\] cost $5 and $6: $HOME."
#: Notes each text that the last answer shows.
SEEN = """
window.seen = [];
new MutationObserver(() => {
  const said = [...document.querySelectorAll(".turn .said")].at(-1);
  if (said) seen.push(said.textContent.trim());
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
#: A WebSocket that stays open and carries nothing once `window.isMute` is set.
MUTE = """
const Real = window.WebSocket;
window.sockets = [];
window.isMute = false;
window.WebSocket = class extends Real {
  constructor(...given) {
    super(...given);
    window.sockets.push(this);
    this.isMute = () => window.isMute && window.sockets.indexOf(this) === 0;
  }
  send(data) { if (!this.isMute()) super.send(data); }
  set onmessage(act) {
    super.onmessage = (event) => { if (!this.isMute()) act(event); };
  }
  close() { if (!this.isMute()) super.close(); }
};
"""


LONG = 60  # words, at the demo's human pace: some seconds
#: Instead of KaTeX, so that formulas stay in the text.
NO_FORMULAS = {
    "content_type": "text/javascript",
    "body": "globalThis.katex = { renderToString() { throw new Error(); } };",
}


def test_formulas_stay_as_they_are_written_while_they_stream_and_after(open_page: Open):
    page = open_page("/", script=SEEN)
    page.route("**/katex*.js", lambda route: route.fulfill(**NO_FORMULAS))
    send_message(page, "/echo hello")
    expect_end(page)
    send_message(page, FORMULAS)
    expect_end(page)
    expect(answer(page)).to_have_text(SHOWN)
    seen = [text for text in page.evaluate("seen") if text.startswith("So")]
    assert seen
    for text in seen:
        assert SHOWN.startswith(text), text


def test_another_chat_is_renamed_without_leaving_this_one(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo first chat of two")
    expect_end(page)
    page.goto("/")
    send_message(page, "/echo second chat of two")
    expect_end(page)
    here = chat_address(page)
    other = page.context.new_page()
    other.goto(here)
    page.evaluate("window.isSamePage = true")
    row = page.locator(".row", has_text="/echo first chat").first
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    title = page.get_by_role("dialog").get_by_label("Title")
    title.fill(" ")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog").locator(".field-error")).to_be_visible()
    title.fill("A new name")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    for each in (page, other):
        expect(each.locator(".row-link", has_text="A new name")).to_be_visible()
    assert chat_address(page) == here
    assert page.evaluate("window.isSamePage")


def test_a_new_title_reaches_other_tabs_of_the_chat(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo to be renamed")
    expect_end(page)
    other = page.context.new_page()
    other.goto(chat_address(page))
    expect(other.locator(".turn-foot").last).to_be_visible()
    row = page.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    page.get_by_role("dialog").get_by_label("Title").fill("Seen by all tabs")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    for each in (page, other):
        heading = each.get_by_role("heading", name="Seen by all tabs", level=1)
        expect(heading).to_be_visible()
        expect(each).to_have_title(re.compile("^Seen by all tabs"))


def test_the_keyboard_stays_with_what_was_approved(
    browser: Browser, asking: ServerProcess
):
    with signed_in(browser, asking) as context:
        page = watched(context, asking.url, faults := [])
        page.goto("/")
        send_message(page, CALCULATION)
        page.locator(".question").get_by_role("button", name="Approve").press("Enter")
        expect_end(page)
        page.wait_for_function(
            "id => document.activeElement.closest('.turn')?.id === id",
            arg=last(page).get_attribute("id"),
        )
        assert faults == []


def test_a_new_chat_starts_with_the_model_chosen_last(open_page: Open):
    page = open_page("/")
    picker = page.get_by_label("Model", exact=True)
    options = picker.locator("optgroup option")
    labels = options.evaluate_all("all => all.map((o) => o.text.trim())")
    for label in (labels[-1], labels[0]):
        picker.select_option(label=label)
        send_message(page, f"/echo with {label}")
        expect_end(page)
        page.goto("/")
        # Where there are presets, it is the usual model of a chat without one.
        expect(picker.locator("option:checked")).to_contain_text(label)


def test_a_message_reaches_a_server_behind_a_connection_that_went_mute(open_page: Open):
    page = open_page("/", script=MUTE)
    send_message(page, "/echo before")
    expect_end(page)
    page.reload()
    expect(page.locator(".turn-foot")).to_be_visible()
    page.wait_for_function("window.sockets[0]?.readyState === 1")
    page.evaluate("window.isMute = true")
    send_message(page, "/echo after")
    expect(page.locator(".turn")).to_have_count(2)
    expect_end(page)
    expect(answer(page)).to_have_text("after")
    page.reload()
    expect(page.locator(".turn")).to_have_count(2)


def rename(page: Page, old: str, new: str) -> None:
    row = page.locator(".row", has_text=old).first
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    page.get_by_role("dialog").get_by_label("Title").fill(new)
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator(".row-link", has_text=new)).to_be_visible()


def test_an_open_menu_of_the_sidebar_survives_a_rename_in_another_tab(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo first of two tabs")
    expect_end(page)
    page.goto("/")
    send_message(page, "/echo second of two tabs")
    expect_end(page)
    other = page.context.new_page()
    other.goto(chat_address(page))
    row = page.locator(".row", has_text="first of two tabs").first
    row.locator("summary").click()
    row.get_by_role("link", name="Share").focus()
    page.evaluate("window.menu = document.querySelector('.row-menu[open]')")
    rename(other, "first of two tabs", "Renamed elsewhere")
    renamed = page.locator(".row", has_text="Renamed elsewhere")
    expect(renamed.locator(".row-link")).to_be_visible()
    expect(renamed.locator("summary")).to_have_accessible_name(
        "More for Renamed elsewhere"
    )
    expect(renamed.get_by_role("link", name="Share")).to_be_focused()
    assert page.evaluate("menu.open && menu.isConnected")


def test_an_open_menu_of_the_sidebar_survives_the_end_of_a_turn(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one that waits")
    expect_end(page)
    send_message(page, f"/long {LONG}")
    row = page.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Export").focus()
    page.evaluate("document.querySelector('.is-current .row-menu').dataset.mark = 1")
    page.evaluate("window.menu = document.querySelector('.is-current .row-menu')")
    with page.expect_response(lambda answered: "current=" in answered.url):
        expect_end(page)
    # The server's rendering has arrived where it removes what only this page has.
    expect(row.locator(".row-menu")).not_to_have_attribute("data-mark", "1")
    expect(row.get_by_role("link", name="Export")).to_be_focused()
    assert page.evaluate("menu.open && menu.isConnected")


def test_a_moving_row_takes_its_open_menu_and_the_focus_along(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo to be pinned")
    expect_end(page)
    other = page.context.new_page()
    other.goto(chat_address(page))
    row = page.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Export").focus()
    menu = other.locator(".row.is-current")
    menu.locator("summary").click()
    menu.get_by_role("button", name="Pin", exact=True).click()
    expect(menu).to_be_visible()
    send_message(other, "/echo two")
    expect_end(other)
    expect(row.get_by_role("button", name="Unpin")).to_be_visible()
    expect(row.get_by_role("link", name="Export")).to_be_focused()
    row.get_by_role("button", name="Unpin").click()


def test_the_list_of_chats_is_hidden_and_shown_by_its_buttons(page: Page):
    toggle = page.get_by_role("button", name="Show or hide the list of chats")
    expect(toggle).to_have_count(1)
    toggle.press("Enter")
    expect(page.locator("#sidebar")).to_be_hidden()
    expect(toggle).to_be_focused()
    toggle.press("Enter")
    expect(page.locator("#sidebar")).to_be_visible()
    expect(toggle).to_be_focused()


def test_the_list_of_shortcuts_opens_while_somebody_types(page: Page):
    page.get_by_label("Message", exact=True).press("Control+/")
    shown = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(shown).to_contain_text("Ctrl+/")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")


def test_a_row_shows_at_once_that_its_chat_waits(
    browser: Browser, asking: ServerProcess
):
    with signed_in(browser, asking) as context:
        page = watched(context, asking.url, faults := [])
        page.goto("/")
        count = page.locator(".user-menu > summary > .count")
        before = int(count.inner_text() or 0)  # other tests may leave questions
        send_message(page, CALCULATION)
        mark = page.locator(".row.is-current").get_by_label("Waiting for a decision")
        expect(mark).to_be_visible()
        expect(count).to_have_text(f"{before + 1}")
        expect(count).to_be_visible()
        page.locator(".question").get_by_role("button", name="Approve").click()
        expect_end(page)
        expect(mark).to_be_hidden()
        expect(count).to_have_text(f"{before}")
        expect(count).to_be_visible(visible=before > 0)
        assert faults == []
