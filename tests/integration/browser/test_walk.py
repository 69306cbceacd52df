"""What a fresh user meets with a model unlike the demo, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import (
    browser,
    expect_end,
    last,
    send_message,
    signed_in,
    watched,
)
from tests.integration.browser.thinking_host import ROWS, ThinkingHost
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def host() -> Iterator[ThinkingHost]:
    with ThinkingHost() as host:
        yield host


@pytest.fixture
def server(start_server: StartServer, host: ThinkingHost) -> ServerProcess:
    server = start_server()
    server.manage("shell", "-c", ROWS.replace("{url}", host.url))
    return server


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with signed_in(browser, server) as context:
        page = watched(context, server.url, faults := [])
        page.goto("/")
        yield page
        assert faults == []


def test_the_error_of_a_call_is_a_sentence_live_and_later(
    page: Page, host: ThinkingHost
):
    send_message(page, "calculate 1 / 0; 6 * 7; and hold it")
    cards = last(page).locator(".called")
    expect(cards).to_have_count(3)
    expect(last(page).locator(".said")).to_be_visible()
    error = cards.first.locator("[data-slot=error]")
    expect(error).to_have_text(re.compile("^This divides by zero"))
    expect_end(page)
    expect(error).to_have_text(re.compile("^This divides by zero"))
