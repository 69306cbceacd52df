"""A draft of a preset in a real browser: tried, evaluated in the background, live."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.integration.browser.test_chat import Open, browser, open_page

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_draft_is_tried_evaluated_and_published(open_page: Open):
    page = open_page("/admin/conversations/preset/")
    page.get_by_role("link", name="demo", exact=True).click()
    page.get_by_role("link", name="Evaluations").click()
    page.get_by_role("link", name="Add an evaluation").click()
    page.get_by_label("Name:").fill("Basics")
    page.get_by_label("Must pass before publishing:").check()
    case = page.locator(".evaluation-case").first
    case.get_by_label("Input:").fill("/echo Delivery takes two days.")
    case.get_by_label("Contains:").fill("48 hours | two days")
    page.get_by_role("button", name="Save").click()

    page.get_by_role("link", name="Draft").click()
    page.get_by_label("Instructions:").fill("Answer like a pirate.")
    page.get_by_role("button", name="Save the draft").click()
    expect(page.get_by_text("has not passed with this content")).to_be_visible()
    expect(page.get_by_role("button", name="Publish", exact=True)).to_have_count(0)

    page.get_by_role("link", name="Preview").click()
    page.get_by_label("Message:").fill("/echo Ahoy <there>")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".preview-assistant")).to_contain_text("Ahoy <there>")
    expect(page.get_by_label("Message:")).to_have_value("")

    page.get_by_role("link", name="Evaluations").click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("The draft has passed.")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("heading", name="Live – passed")).to_be_visible()

    page.get_by_role("link", name="Draft").click()
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("The draft is live.")).to_be_visible()
    expect(page.get_by_text("Answer like a pirate.")).to_be_visible()
