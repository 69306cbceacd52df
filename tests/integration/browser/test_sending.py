"""The first moments of a message: before the page's scripts, and its first sign."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import (
    Open,
    browser,
    chat_address,
    last,
    open_page,
    send_message,
    signed_in,
)
from tests.serving import ServerProcess

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Presses Enter and reads the page in the same task, before any answer of a server.
PRESS_ENTER = """(text) => {
  const box = document.querySelector("#text");
  box.value = text;
  const options = { key: "Enter", bubbles: true, cancelable: true };
  box.dispatchEvent(new KeyboardEvent("keydown", options));
  const turn = document.querySelector(".turn:last-child");
  return turn && turn.offsetHeight ? turn.innerText : "";
}"""
PRESET = """
from conversations.models import Preset
from llm.models import LanguageModel, Provider
demo = LanguageModel.objects.filter(provider__kind="demo").first()
host = Provider.objects.create(
    name="Apart", kind="openai_compatible", base_url="http://127.0.0.1:9/v1",
    allow_private_network=True)
LanguageModel.objects.create(provider=host, name="apart", label="Another one")
preset = Preset.objects.create(name="narrow", label="Narrow")
preset.allowed_models.add(demo)
"""


def hold(route: Route) -> None:
    """Never answer."""


@pytest.mark.parametrize("path", ["/", "a chat"])
def test_enter_sends_before_the_scripts_of_the_page_have_loaded(
    open_page: Open, path: str
):
    if path != "/":
        first = open_page()
        send_message(first, "/echo Begun.")
        path = chat_address(first)
    page = open_page("/login/")
    page.route(re.compile(r"/js/.*\.js"), hold_modules)
    page.goto(path, wait_until="commit")
    box = page.get_by_label("Message", exact=True)
    box.fill("/echo Without waiting.")
    page.unroute_all(behavior="ignoreErrors")
    box.press("Enter")
    expect(last(page).locator(".said")).to_have_text("Without waiting.")


def hold_modules(route: Route) -> None:
    if "boot" in route.request.url:
        route.continue_()


def test_a_message_is_seen_before_the_server_has_answered(open_page: Open):
    page = open_page()
    assert "Good morning" in page.evaluate(PRESS_ENTER, "Good morning")
    chat_address(page)
    expect(last(page)).to_have_attribute("data-status", "completed")
    page.route("**/api/**", hold)
    shown = page.evaluate(PRESS_ENTER, "And good night")
    assert "And good night" in shown
    assert "Sending" in shown


def test_the_list_of_models_has_those_that_the_preset_allows(
    open_page: Open, shared_server: ServerProcess
):
    shared_server.manage("shell", "-v0", "-c", PRESET)
    page = open_page()
    page.get_by_text("No preset").click()
    assert "Another one" in offered(page)
    page.get_by_label("Model", exact=True).select_option(label="Another one")
    page.get_by_text("Narrow").click()
    assert "Another one" not in offered(page)
    expect(page.get_by_label("Model", exact=True)).to_have_value("")
    send_message(page, "/echo Allowed.")
    expect(last(page).locator(".said")).to_have_text("Allowed.")
    assert "Another one" not in offered(page)


def offered(page: Page) -> list[str]:
    page.locator("#choose-model").click()
    names = page.locator("#dialog .model-choice strong").all_inner_texts()
    page.keyboard.press("Escape")
    return names


def test_a_message_to_a_busy_server_is_sent_again_by_itself(
    start_server: StartServer, browser: Browser
):
    server = start_server(MAX_CONNECTIONS="2")
    with signed_in(browser, server) as context:
        page = context.new_page()
        page.goto("/")
        send_message(page, "/echo one")
        expect(last(page).locator(".said")).to_have_text("one")
        other = context.new_page()
        other.goto(chat_address(page))
        expect(other.locator(".turn")).to_have_count(1)
        with page.expect_event("websocket") as opened:
            page.reload()
        with opened.value.expect_event(
            "framereceived", lambda frame: "server_busy" in str(frame)
        ):
            send_message(page, "/echo two")
        expect(last(page).locator(".asked")).to_contain_text("/echo two")
        other.close()
        expect(last(page).locator(".said")).to_have_text("two")
        expect(page.locator(".turn")).to_have_count(2)
