"""Pages behind a proxy that lets no WebSocket through: they show what others do."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.browser.test_chat import (
    NO_SOCKETS,
    NUMBERS,
    Open,
    answer,
    asking,
    browser,
    chat_address,
    expect_end,
    open_page,
    send_message,
    signed_in,
    watched,
)
from tests.integration.browser.test_queue import waiting
from tests.integration.browser.thinking_host import ROWS, ThinkingHost
from tests.serving import ServerProcess

__all__ = ["asking", "browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Sockets work until `window.isBlocked`; then each is closed, and none opens.
BLOCKED_LATER = """
const Real = window.WebSocket;
window.isBlocked = false;
window.sockets = [];
window.WebSocket = new Proxy(Real, {
  construct(Socket, given) {
    if (window.isBlocked) {
      const refused = { readyState: 3, close() {} };
      setTimeout(() => refused.onclose?.({ code: 1006 }), 0);
      return refused;
    }
    const socket = new Socket(...given);
    window.sockets.push(socket);
    return socket;
  },
});
"""


def blocked(open_page: Open) -> Page:
    """A chat with one answer, whose page gets no WebSocket."""
    page = open_page("/", NO_SOCKETS)
    send_message(page, "/echo one")
    expect_end(page)
    return page


def test_messages_and_titles_of_another_device_arrive(open_page: Open):
    page = blocked(open_page)
    other = open_page(chat_address(page))
    send_message(other, f"/long {NUMBERS}")
    expect(answer(page)).to_contain_text("5 6")
    expect_end(page)
    expect(page.locator(".turn")).to_have_count(2)
    row = other.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    other.get_by_role("dialog").get_by_label("Title").fill("Named elsewhere")
    other.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page).to_have_title(re.compile("^Named elsewhere"))
    expect(page.locator(".row.is-current .row-link")).to_contain_text("Named elsewhere")


def test_another_chat_gets_its_new_title(open_page: Open):
    first = blocked(open_page)
    page = open_page("/", NO_SOCKETS)
    send_message(page, "/echo second")
    expect_end(page)
    expect(page.locator(".row", has_text="/echo one").first).to_be_visible()
    row = first.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    first.get_by_role("dialog").get_by_label("Title").fill("First, renamed")
    first.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator(".row-link", has_text="First, renamed")).to_be_visible()


def test_waiting_messages_change_as_another_device_changes_them(open_page: Open):
    page = blocked(open_page)
    send_message(page, f"/long {10 * NUMBERS}")
    expect(answer(page)).to_contain_text("1 2 3")
    send_message(page, "Second")
    send_message(page, "Third")
    expect(waiting(page)).to_have_text(["Second", "Third"])
    other = open_page(chat_address(page))
    expect(waiting(other)).to_have_text(["Second", "Third"])
    other.get_by_label("Send earlier").last.click()
    expect(waiting(page)).to_have_text(["Third", "Second"])
    other.locator(".queued summary").last.click()
    other.get_by_label("Waiting message").last.fill("Second, better")
    other.get_by_role("button", name="Save").last.click()
    expect(waiting(page)).to_have_text(["Third", "Second, better"])
    other.get_by_label("Remove from the queue").first.click()
    expect(waiting(page)).to_have_text(["Second, better"])
    send_message(other, "Fourth")
    expect(waiting(page)).to_have_text(["Second, better", "Fourth"])


def test_a_decision_made_elsewhere_shows_while_another_is_open(
    browser: Browser, asking: ServerProcess
):
    with ThinkingHost() as host, signed_in(browser, asking) as context:
        asking.manage("shell", "-c", ROWS.replace("{url}", host.url))
        page = watched(context, asking.url, faults := [])
        page.add_init_script(NO_SOCKETS)
        page.goto("/")
        send_message(page, "calculate 6 * 7; 6 * 8")
        expect(page.locator(".question")).to_have_count(2)
        other = watched(context, asking.url, faults)
        other.goto(chat_address(page))
        other.locator(".question").first.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("button", name="Approve")).to_have_count(1)
        other.locator(".question").last.get_by_role("button", name="Approve").click()
        expect_end(page)
        assert faults == []


def test_a_page_goes_on_when_its_network_begins_to_refuse_sockets(open_page: Open):
    page = open_page("/", BLOCKED_LATER)
    send_message(page, "/echo one")
    expect_end(page)
    page.reload()
    page.wait_for_function("sockets[0]?.readyState === 1")
    page.evaluate("isBlocked = true; sockets[0].close()")
    other = open_page(chat_address(page))
    send_message(other, "/echo from elsewhere")
    expect(answer(page)).to_have_text("from elsewhere")
    expect(page.locator("#banner")).to_be_hidden()
    send_message(page, "/echo from here")
    expect(answer(page)).to_have_text("from here")
