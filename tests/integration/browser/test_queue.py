"""Messages sent while an answer runs, in a real browser: two devices, keys, late
edits."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.integration.browser.test_chat import (
    NO_SOCKETS,
    NUMBERS,
    Open,
    browser,
    chat_address,
    last,
    open_page,
    send_message,
)

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = f"/long {10 * NUMBERS}"  # longer than a test takes


def begin(page: Page, text: str = LONG) -> None:
    """A chat whose answer runs."""
    send_message(page, "Hi")
    chat_address(page)
    expect(page.locator(".turn .turn-foot")).to_have_count(1)
    send_message(page, text)
    expect(page.locator("#stop")).to_be_visible()
    expect(last(page).locator(".said")).to_contain_text("1 2 3")


def waiting(page: Page) -> Locator:
    return page.locator(".queued[data-turn] .queued-text")


def choose(page: Page, text: str, when: str) -> None:
    page.locator("#text").fill(text)
    page.get_by_label("When to send").press("Enter")
    page.get_by_role("button", name=when).click()


@pytest.mark.parametrize("script", ["", NO_SOCKETS], ids=["WebSocket", "EventSource"])
def test_waiting_messages_are_the_same_on_two_devices(open_page: Open, script: str):
    page = open_page(script=script)
    begin(page)
    send_message(page, "Second")
    send_message(page, "Third")
    expect(waiting(page)).to_have_text(["Second", "Third"])
    expect(page.locator(".turn:visible")).to_have_count(2)
    other = open_page(page.url.partition("#")[0])
    expect(waiting(other)).to_have_text(["Second", "Third"])
    other.get_by_label("Send earlier").last.click()
    expect(waiting(other)).to_have_text(["Third", "Second"])
    other.locator(".queued summary").last.click()
    other.get_by_label("Waiting message").last.fill("Second, better")
    other.get_by_role("button", name="Save").last.click()
    expect(waiting(other)).to_have_text(["Third", "Second, better"])
    expect(waiting(page)).to_have_text(["Third", "Second, better"])
    choose(page, "Now", "Interrupt")
    said = page.locator(".turn:visible .asked-text")
    expect(said.nth(2)).to_have_text("Now")
    expect(page.locator(".turn:visible .turn-foot")).to_have_count(5)
    expect(said).to_have_text(["Hi", LONG, "Now", "Third", "Second, better"])
    expect(page.locator("#queue")).to_be_hidden()
    page.reload()
    expect(said).to_have_text(["Hi", LONG, "Now", "Third", "Second, better"])


def test_a_steering_message_appears_inside_the_answer(open_page: Open):
    page = open_page()
    begin(page, f"/long {3 * NUMBERS}")
    choose(page, "And /long 3", "Steer")
    expect(page.locator("#text")).to_be_focused()
    expect(page.locator(".queued-state")).to_have_text("Joins at the next step")
    turn = page.locator(".turn:visible").nth(1)
    expect(turn.locator(".answer .is-steering .asked-text")).to_have_text("And /long 3")
    expect(turn.locator(".turn-foot")).to_be_visible()
    expect(page.locator(".turn:visible")).to_have_count(2)
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator("#queue")).to_be_hidden()


def test_text_typed_for_a_message_that_was_sent_goes_to_the_box(open_page: Open):
    page = open_page()
    begin(page, f"/long {3 * NUMBERS}")
    send_message(page, "Second")
    page.locator(".queued[data-turn] summary").click()
    page.get_by_label("Waiting message").fill("Second, but better")
    expect(page.locator(".turn:visible")).to_have_count(3)
    expect(page.locator("#text")).to_have_value("Second, but better")
    expect(page.locator("#composer-errors")).to_contain_text("It has been sent already")


def test_escape_closes_what_is_open_before_it_stops_the_answer(open_page: Open):
    page = open_page()
    begin(page)
    send_message(page, "Second")
    page.get_by_label("When to send").press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#send-menu")).not_to_have_attribute("open", "")
    page.locator(".queued[data-turn] summary").click()
    page.get_by_label("Waiting message").press("Escape")
    expect(page.get_by_label("Waiting message")).to_be_hidden()
    expect(page.locator(".queued summary")).to_be_focused()
    expect(page.locator(".turn .ending")).to_have_count(0)
    page.locator("#text").press("Escape")
    expect(page.locator(".turn .ending").first).to_contain_text("Stopped")


def test_a_reader_who_scrolled_up_is_not_moved_and_sees_how_much_is_new(
    open_page: Open,
):
    page = open_page(viewport={"width": 800, "height": 500})
    begin(page, f"/long {4 * NUMBERS}")
    send_message(page, "Second")
    expect(waiting(page)).to_have_text(["Second"])
    page.evaluate("scrollTo(0, 40)")
    expect(page.locator("#jump")).to_be_visible()
    expect(page.locator(".turn:visible")).to_have_count(3)
    expect(page.locator("#jump [data-slot=new]")).to_have_text("1")
    expect(page.locator(".turn .turn-foot")).to_have_count(3)  # rendered anew, too
    assert page.evaluate("scrollY") == 40
    page.locator("#jump").click()
    expect(page.locator("#jump")).to_be_hidden()
