"""The acts of the chat page in a browser that runs no script.

`test_chat.py` sends, stops, asks again and declines, `test_branches.py` deletes from a
message on.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import (
    CALCULATION,
    Open,
    answer,
    asking,
    browser,
    chat_address,
    last,
    open_page,
    signed_in,
)
from tests.integration.browser.test_model_picker import MODELS
from tests.serving import ServerProcess

__all__ = ["asking", "browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


def say(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def wait_for_end(page: Page) -> None:
    reload_until(page, lambda: last(page).get_attribute("data-status") == "completed")


def reload_until(page: Page, is_so: Callable[[], object]) -> None:
    while not is_so():
        page.reload()


def act(page: Page, title: str) -> None:
    """Opens the menu of a conversation's row."""
    page.locator(".row", has_text=title).first.locator("summary").click()


@pytest.fixture
def plain(open_page: Open) -> Page:
    return open_page("/", java_script_enabled=False)


def test_a_message_is_edited_and_both_versions_stay(plain: Page):
    say(plain, "/echo pears")
    wait_for_end(plain)
    last(plain).get_by_role("link", name="Edit the message").click()
    plain.get_by_label("Message").fill("/echo quinces")
    plain.get_by_role("button", name="Send").click()
    wait_for_end(plain)
    expect(answer(plain)).to_have_text("quinces")
    plain.get_by_role("button", name="Previous version").click()
    expect(answer(plain)).to_have_text("pears")
    expect(plain.locator(".turn")).to_have_count(1)


@pytest.mark.smoke
def test_a_conversation_is_renamed_found_deleted_and_brought_back(plain: Page):
    say(plain, "/echo a word about medlars")
    wait_for_end(plain)
    here = chat_address(plain)
    act(plain, "medlars")
    plain.get_by_role("link", name="Rename", exact=True).click()
    plain.get_by_label("Title").fill("Fruit nobody knows")
    plain.get_by_role("button", name="Save").click()
    assert chat_address(plain) == here
    title = plain.get_by_role("heading", name="Fruit nobody knows", level=1)
    expect(title).to_be_visible()
    plain.goto("/")
    search(plain, "medlars")
    found = plain.locator(".is-found", has_text="Fruit nobody knows")
    expect(found.locator("mark").first).to_contain_text("medlars")
    found.click()
    assert chat_address(plain).startswith(here)
    plain.goto(here)
    act(plain, "Fruit nobody knows")
    plain.get_by_role("link", name="Delete", exact=True).click()
    plain.get_by_role("button", name="Delete").click()
    expect(plain.locator(".row", has_text="Fruit nobody knows")).to_have_count(0)
    plain.get_by_role("button", name="Undo").click()
    expect(title).to_be_visible()


def search(page: Page, words: str) -> None:
    page.get_by_label("Search conversations").fill(words)
    page.get_by_role("search").get_by_role("button", name="Search").click()
    page.wait_for_url(re.compile(r"/library/\?q="))


def test_a_phone_searches_in_its_drawer(open_page: Open):
    phone = open_page("/", java_script_enabled=False, is_mobile=True, **PHONE)
    say(phone, "/echo a word about damsons")
    wait_for_end(phone)
    phone.goto("/")
    phone.get_by_role("button", name="Conversations").click()
    search(phone, "damsons")
    phone.locator(".is-found", has_text="damsons").first.click()
    expect(phone.locator(".asked-text").last).to_contain_text("damsons")


def test_a_call_is_approved(browser: Browser, asking: ServerProcess):
    with signed_in(browser, asking, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto("/")
        say(page, CALCULATION)
        reload_until(page, page.locator(".question").count)
        note = page.get_by_label("Note")
        note.fill("only this once")
        note.press("Enter")  # decides nothing
        expect(note).to_have_value("only this once")
        page.get_by_role("button", name="Approve").click()
        wait_for_end(page)
        expect(answer(page).last).to_contain_text("42")


def test_what_waits_is_changed_and_removed(plain: Page):
    say(plain, "/long 5000")
    say(plain, "/echo plums")
    say(plain, "/echo sloes")
    waiting = plain.locator("#queue li")
    expect(waiting).to_have_count(2)
    waiting.first.get_by_role("button", name="Remove from the queue").click()
    expect(waiting).to_have_count(1)
    expect(waiting).to_contain_text("sloes")
    plain.get_by_role("button", name="Stop the answer").first.click()
    wait_for_end(plain)
    expect(answer(plain)).to_have_text("sloes")


def test_a_model_is_chosen_among_many(browser: Browser, start_server: StartServer):
    server = start_server()
    server.manage("shell", "-v0", "-c", MODELS)
    with signed_in(browser, server, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto("/")
        model = page.get_by_label("Model", exact=True)
        model.select_option(label="apple-17")
        say(page, "hello")
        reload_until(page, lambda: last(page).get_attribute("data-status") == "failed")
        expect(last(page).locator(".turn-foot")).to_contain_text("apple-17")
        expect(model.locator("option:checked")).to_have_text("apple-17")
