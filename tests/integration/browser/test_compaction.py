"""A long conversation in a real browser: its gauge, the line that its earlier messages
become, and what a person does with that; with JavaScript and without."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import (
    browser,
    expect_end,
    last,
    send_message,
    signed_in,
    watched,
)

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WINDOW = 4000  # tokens
SMALL_WINDOW = f"""
from llm.models import LanguageModel
LanguageModel.objects.filter(is_default=True).update(context_window={WINDOW})
"""
LONG = "Tea is a drink. " * 190  # about 760 tokens
LINE = re.compile(r"\d+ earlier messages? summarised")


def test_earlier_messages_become_a_line_to_open_edit_and_undo(
    browser: Browser, start_server: StartServer
):
    server = start_server()
    server.manage("shell", "-c", SMALL_WINDOW)
    faults: list[str] = []
    with signed_in(browser, server) as context:
        page = watched(context, server.url, faults)
        page.goto("/")
        gauge = page.get_by_role("meter", name="Context used")
        send_message(page, f"First of all: my name is Ada. {LONG}")
        expect_end(page)
        expect(gauge).to_be_visible()
        page.get_by_role("button", name="Pin this message").click()
        pin = page.get_by_role("button", name="Pin this message")
        expect(pin).to_have_attribute("aria-pressed", "true")
        line = page.locator("summary").filter(has_text=LINE)
        for number in range(6):
            if line.count():
                break
            send_message(page, f"{number}: {LONG}")
            expect(page.locator(".turn")).to_have_count(number + 2)
            expect_end(page)
        expect(line).to_have_count(1)
        assert float(gauge.get_attribute("value") or 0) < WINDOW * 0.75
        line.click()
        page.get_by_text("Edit the summary").click()
        page.get_by_label("Summary of the earlier messages").fill("Ada drinks *tea*.")
        page.get_by_role("button", name="Save").click()
        line.click()
        expect(page.locator(".summarised .prose em")).to_have_text("tea")
        expect(line).to_have_text(re.compile("edited"))
        used = float(gauge.get_attribute("value") or 0)
        page.get_by_role("button", name="Undo the summary").click()
        expect(line).to_have_text(re.compile("undone"))
        assert float(gauge.get_attribute("value") or 0) > used
        send_message(page, "Go on.")
        expect_end(page)
        expect(line).to_have_count(1)  # nobody summarises against a person's will
        path = page.url
    with signed_in(browser, server, java_script_enabled=False) as context:
        page = watched(context, server.url, faults)
        page.goto(path)
        expect(page.get_by_role("meter", name="Context used")).to_be_visible()
        page.locator("summary").filter(has_text=LINE).click()
        page.get_by_role("button", name="Use the summary again").click()
        expect(page.locator("summary").filter(has_text=LINE)).not_to_have_text(
            re.compile("undone")
        )
        expect(last(page)).to_be_visible()
    assert faults == []
