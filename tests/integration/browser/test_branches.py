"""Versions of a message, in two tabs and without a script."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.integration.browser.test_chat import (
    Open,
    answer,
    browser,
    chat_address,
    expect_end,
    open_page,
    page,
    send_message,
)

__all__ = ["browser", "open_page", "page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def menu(page: Page) -> Locator:
    return page.locator("summary[aria-label='More for this answer']").last


@pytest.mark.smoke
def test_a_message_is_edited_and_both_versions_show_in_two_tabs(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    address = chat_address(page)
    other = open_page(address)
    expect(answer(other)).to_have_text("one")
    page.get_by_role("link", name="Edit the message").click()
    page.get_by_label("Message").fill("/echo two")
    page.get_by_role("button", name="Send").click()
    expect_end(page)
    expect(answer(page)).to_have_text("two")
    switch = page.locator(".branch-switch")
    expect(switch).to_contain_text("2/2")
    # The other tab stays at its branch, and shows that there is another version.
    expect(other.locator(".branch-switch")).to_contain_text("1/2")
    expect(answer(other)).to_have_text("one")
    send_message(other, "/echo below one")
    expect(answer(other)).to_have_text("below one")
    expect_end(other)
    expect(page.locator(".turn")).to_have_count(1)
    page.get_by_role("button", name="Previous version").click()
    expect(page.locator(".turn")).to_have_count(2)
    expect(answer(page)).to_have_text("below one")
    expect(page.get_by_role("button", name="Next version")).to_be_focused()
    assert page.url.partition("#")[0] == address


def test_an_answer_is_asked_again_in_its_place(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo again")
    expect_end(page)
    menu(page).click()
    page.get_by_role("button", name="Answer again", exact=True).click()
    expect(page.locator(".branch-switch")).to_contain_text("2/2")
    expect_end(page)
    expect(page.locator(".turn")).to_have_count(1)


def test_a_deletion_is_undone_without_a_script(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    plain = open_page(chat_address(page), java_script_enabled=False)
    menu(plain).click()
    plain.get_by_role("button", name="Delete from here").click()
    expect(plain.locator(".turn")).to_have_count(0)
    expect(page.locator(".turn")).to_have_count(0)  # the other tab agrees
    plain.get_by_role("button", name="Undo").click()
    expect(plain).to_have_url(re.compile("#turn-"))
    expect(plain.locator(".turn")).to_have_count(1)
