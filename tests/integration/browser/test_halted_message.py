"""A message at its limit, in a real browser: the strip reports it, and continues it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.integration.browser.test_chat import (
    Open,
    browser,
    chat_address,
    expect_end,
    last,
    open_page,
    send_message,
)
from tests.serving import ServerProcess

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: A result waits, and the message may cause no more turns.
HALT = """
from conversations.models import ToolCall, Turn
turn = Turn.objects.filter(conversation={id!r}).latest("created_at")
Turn.objects.filter(pk=turn.pk).update(halted_by="max_turns")
ToolCall.objects.create(
    turn=turn, call_id="c1", name="dig", blocking=False, state="completed",
    output="gold",
)
"""


def halt(page: Page, server: ServerProcess) -> None:
    id = chat_address(page).rstrip("/").rpartition("/")[2]
    server.manage("shell", "-v0", "-c", HALT.format(id=id))
    page.reload()


@pytest.mark.parametrize("scripted", [True, False])
def test_one_click_goes_on_past_the_bound(
    open_page: Open, shared_server: ServerProcess, scripted: bool
):
    page = open_page("/")
    send_message(page, "/echo dig")
    expect_end(page)
    halt(page, shared_server)
    if not scripted:
        page = open_page(chat_address(page), java_script_enabled=False)
    strip = page.locator(".halt")
    expect(strip).to_contain_text("reached its limit of turns")
    expect(strip).to_contain_text("dig")
    strip.get_by_role("button", name="Continue").click()
    expect(page.locator(".turn")).to_have_count(2)
    if scripted:
        expect_end(page)
    while not scripted and not page.locator(".turn-foot").nth(1).count():
        page.reload()
    expect(strip).to_have_count(0)
    expect(last(page)).to_contain_text("Result of dig")
    expect(page.locator(".turn-error")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_strip_fits_a_small_screen(
    open_page: Open, shared_server: ServerProcess, scheme: str
):
    narrow = {"width": 390, "height": 800}
    page = open_page("/", viewport=narrow, color_scheme=scheme)
    send_message(page, "/echo dig")
    expect_end(page)
    halt(page, shared_server)
    button = page.locator(".halt").get_by_role("button", name="Continue")
    expect(button).to_be_in_viewport()
    box = button.bounding_box()
    assert box
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert box["height"] < 50  # its words stand in one line
