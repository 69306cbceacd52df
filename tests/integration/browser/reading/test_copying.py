"""What a copy button shows where the browser lets no page write to the clipboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.browser.test_chat import (
    Open,
    answer,
    browser,
    expect_end,
    last,
    open_page,
    send_message,
    signed_in,
)
from tests.serving import ServerProcess

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DENIED = """
const deny = () => Promise.reject(new DOMException("denied", "NotAllowedError"));
const value = { writeText: deny, write: deny };
Object.defineProperty(navigator, "clipboard", { value });
"""
NOT_EVEN_THE_OLD_WAY = f"{DENIED}; document.execCommand = () => false;"
ANSWER = "/echo ```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
KEEP = (
    "from llm.models import Provider;"
    "Provider.objects.filter(kind='demo').update(keeps_exchanges=True)"
)


def open_answer(open_page: Open, script: str) -> Page:
    page = open_page("/", script)
    send_message(page, ANSWER)
    expect_end(page)
    return page


def test_buttons_copy_the_old_way_where_the_clipboard_is_denied(open_page: Open):
    page = open_answer(open_page, DENIED)
    answer(page).locator("[data-copy]").click()
    expect(answer(page).locator("[data-copy]")).to_have_text("Copied")
    expect(answer(page).locator("[data-copy]")).to_have_text("Copy")
    page.locator("#text").click()
    page.keyboard.press("Control+v")
    expect(page.locator("#text")).to_have_value("x = 1\n")


def test_buttons_say_what_they_could_not_copy(open_page: Open):
    page = open_answer(open_page, NOT_EVEN_THE_OLD_WAY)
    code = answer(page).locator("[data-copy]")
    code.click()
    expect(code).to_have_text("Not copied")
    expect(code).to_have_attribute(
        "title",
        "Not copied: your browser does not allow it. Select the text and copy it.",
    )
    expect(page.locator("#announcer")).to_contain_text("Not copied")
    table = answer(page).get_by_role("button", name="Copy as CSV")
    table.click()
    expect(answer(page).locator(".table-tools")).to_contain_text("Not copied")
    whole = last(page).locator('.turn-foot [data-copy="answer"]')
    whole.click()
    expect(whole.locator("use")).to_have_attribute("href", "#icon-alert")
    expect(whole.locator("use")).to_have_attribute("href", "#icon-copy")
    last(page).get_by_label("More for this answer").click()
    last(page).locator('[data-copy-as="rich"]').click()
    expect(last(page).locator('[data-copy-as="rich"]')).to_have_text("Not copied")


def test_staff_read_that_a_command_was_not_copied(
    browser: Browser, shared_server: ServerProcess
):
    shared_server.manage("shell", "-v0", "-c", KEEP)
    with signed_in(browser, shared_server) as context:
        context.add_init_script(NOT_EVEN_THE_OLD_WAY)
        page = context.new_page()
        page.goto("/")
        send_message(page, "/echo one")
        expect_end(page)
        turn = last(page).get_attribute("data-turn")
        page.goto(f"/admin/conversations/turn/{turn}/change/")
        page.get_by_role("link", name="Request and response").first.click()
        page.get_by_role("button", name="Copy as curl").click()
        expect(page.get_by_role("button", name="Not copied")).to_be_visible()
        expect(page.get_by_role("button", name="Copy as curl")).to_be_visible()
