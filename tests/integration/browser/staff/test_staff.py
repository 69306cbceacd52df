"""Staff in a browser: from an error to the provider's bytes, reviews, grants, keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import StartServer
from tests.integration.accessibility.site import STORE
from tests.integration.browser.test_chat import (
    browser,
    expect_end,
    send_message,
    signed_in,
    watched,
)
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLANTED = "sk-planted-k3y-0f-th1s-test-ab12"
KEEP = (
    "from llm.models import Provider;"
    "Provider.objects.filter(kind='demo').update(keeps_exchanges=True)"
)


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    server = start_module_server()
    server.manage("shell", "-v0", "-c", KEEP)
    return server


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with _open_page(browser, server) as page:
        yield page


@pytest.fixture
def stored_page(browser: Browser, start_server: StartServer) -> Iterator[Page]:
    """Of a server of its own: its rows include a default model."""
    server = start_server(SHARE_LINKS="public")  # some of its rows are such links
    server.manage("shell", "-v0", "-c", STORE)
    with _open_page(browser, server) as page:
        yield page


@contextmanager
def _open_page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    # A headless shell grants it only on request, a browser to who clicks.
    permissions = ["clipboard-write"]
    with signed_in(browser, server, permissions=permissions) as context:
        yield watched(context, server.url, faults := [])
        assert faults == []


@pytest.mark.smoke
def test_an_error_id_leads_to_the_providers_bytes_in_two_clicks(
    page: Page, server: ServerProcess
):
    page.goto("/")
    for text in ("/echo one", "/fail 400", "/echo three"):
        send_message(page, text)
        expect_end(page, "failed" if "fail" in text else "completed")
    turn = page.locator(".turn").nth(1).get_attribute("data-turn")
    assert turn
    page.goto("/admin/conversations/turn/")
    page.locator("#searchbar").fill(turn)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Request and response").first.click()
    expect(page.locator("pre.bytes").first).to_contain_text("/fail 400")
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.get_by_role("link", name="Back to the turn").click()
    page.get_by_role("link", name="Next turn").click()
    page.get_by_role("link", name="Previous turn").click()
    expect(page).to_have_url(f"{server.url}/admin/conversations/turn/{turn}/change/")


def test_a_running_turn_is_released_and_stopped_from_its_page(page: Page):
    page.goto("/")
    send_message(page, "/slow 60 One two three four")
    last = page.locator(".turn").last
    expect(last).to_have_attribute("data-turn", re.compile(r"resp_\w+"))
    turn = last.get_attribute("data-turn")
    page.goto(f"/admin/conversations/turn/{turn}/change/")
    page.get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Yes, I’m sure").click()
    expect(page.get_by_text("The turn was released")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Yes, I’m sure").click()
    expect(page.get_by_text("The turn is being stopped.")).to_be_visible()
    status = page.locator(".field-status .readonly")
    expect(status).not_to_have_text("in progress")


def test_definitions_are_rejected_and_approved_and_grants_are_revoked(
    stored_page: Page,
):
    page = stored_page
    page.goto("/admin/tools/mcpserver/")
    page.get_by_role("link", name="Review 2 definitions").click()
    page.get_by_label("plan_route", exact=True).check()
    page.get_by_role("button", name="Reject the selection").click()
    expect(page.get_by_text("1 tool rejected.")).to_be_visible()
    page.get_by_label("sell", exact=True).check()
    page.get_by_role("button", name="Approve the selection").click()
    expect(page.get_by_text("Nothing waits for a review.")).to_be_visible()
    page.goto("/admin/conversations/question/")
    page.get_by_role("link", name="Grants").click()
    page.get_by_label("calculator").check()
    page.get_by_role("button", name="Revoke the selection").click()
    expect(page.get_by_text("No tool runs unasked")).to_be_visible()
    page.goto("/admin/conversations/replayset/")
    page.get_by_role("link", name="Replay", exact=True).click()
    expect(page.get_by_role("button", name="Run")).to_be_visible()


def test_keys_are_imported_and_never_shown(page: Page):
    page.goto("/admin/llm/apikey/")
    page.get_by_role("link", name="Import keys").click()
    page.get_by_label("Provider").select_option(index=1)
    page.get_by_label("Keys:").fill(f"TEAM_API_KEY={PLANTED}\nbad key")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Line 2:")).to_be_visible()
    assert PLANTED not in page.content()
    page.get_by_label("Keys:").fill(f"TEAM_API_KEY={PLANTED}")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("1 key imported.")).to_be_visible()
    expect(page.get_by_role("link", name="TEAM_API_KEY")).to_be_visible()
    assert PLANTED not in page.content()
