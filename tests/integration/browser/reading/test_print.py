"""The page for paper in a real browser: from the menu to a PDF, without JavaScript."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.integration.browser.test_chat import (
    Open,
    browser,
    chat_address,
    expect_end,
    open_page,
    send_message,
)

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LINES = 200  # paragraphs of an answer; paper has room for about thirty on a page


def test_a_long_answer_becomes_a_pdf_of_many_pages(open_page: Open):
    page = open_page()
    text = "\n\n".join(f"Paragraph {number} of it." for number in range(LINES))
    page.get_by_label("Message", exact=True).fill(f"/echo {text}")
    page.keyboard.press("Enter")
    address = chat_address(page)
    expect_end(page)
    plain = open_page(address, java_script_enabled=False)
    row = plain.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Print").click()
    expect(plain).to_have_url(re.compile(r"/print/$"))
    expect(plain.get_by_role("button")).to_have_count(0)
    answer = plain.locator(".answer")
    expect(answer).to_contain_text(f"Paragraph {LINES - 1} of it.")
    plain.emulate_media(media="print")
    expect(plain.locator(".print-hint")).to_be_hidden()
    document = plain.pdf(format="A4")
    assert document.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type /Page\b", document)) > LINES // 50


def test_a_chat_in_the_dark_theme_is_printed_dark_on_light(open_page: Open):
    page = open_page(color_scheme="dark")
    send_message(page, "/markdown")
    expect_end(page)
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink')"
    on_screen = page.evaluate(ink)
    page.emulate_media(media="print")
    on_paper = page.evaluate(ink)
    page.emulate_media(media="screen", color_scheme="light")
    assert on_screen != on_paper == page.evaluate(ink)
