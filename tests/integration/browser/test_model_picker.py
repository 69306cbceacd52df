"""The list of models: found by typing, described, with favourites on every device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import browser, signed_in, watched

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MODELS = """
from llm.models import LanguageModel, Provider
values = {"base_url": "http://127.0.0.1:9/v1", "allow_private_network": True}
host = Provider.objects.create(name="orchard", kind="openai_compatible", **values)
host.keys.create(label="k", secret="wk-0123456789-abcdefgh")
for number in range(30):
    LanguageModel.objects.create(provider=host, name=f"apple-{number:02}")
prices = {"input": 3, "output": 15}
LanguageModel.objects.create(
    provider=host, name="quince", context_window=131_072, prices=prices,
    description="Slow and thorough", capabilities={"vision": True},
)
"""


@pytest.fixture
def contexts(
    browser: Browser, start_server: StartServer
) -> Iterator[tuple[Page, Page]]:
    """The same user's new chat on a desk and on a phone."""
    server = start_server()
    server.manage("shell", "-v0", "-c", MODELS)
    faults: list[str] = []
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    with (
        signed_in(browser, server) as wide,
        signed_in(browser, server, **phone, is_mobile=True) as narrow,
    ):
        yield watched(wide, server.url, faults), watched(narrow, server.url, faults)
    assert faults == []


def opener(page: Page) -> Any:
    return page.get_by_role("button", name=re.compile("^Model: "))


def choices(page: Page) -> Any:
    return page.locator("#dialog .model-choice strong")


def test_a_model_is_found_chosen_and_kept_as_a_favourite(contexts: tuple[Page, Page]):
    page, phone = contexts
    page.goto("/")
    opener(page).press("Enter")
    search = page.get_by_label("Search models")
    expect(search).to_be_focused()
    expect(
        page.get_by_text("131,072 tokens of context · $3 in, $15 out")
    ).to_be_visible()
    expect(page.locator(".model-abilities", has_text="sees pictures")).to_be_visible()
    search.fill("thorough")
    expect(choices(page)).to_have_text(["quince"])
    search.fill("sees pictures")
    expect(choices(page).first).to_have_text("quince")
    search.fill("no such fruit")
    expect(page.get_by_text("No model matches.")).to_be_visible()
    search.fill("apple-17")
    expect(choices(page)).to_have_text(["apple-17"])
    star = page.get_by_role("button", name="Favourite: apple-17")
    with page.expect_response("**/api/settings/"):
        star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    search.press("Enter")
    expect(page.locator("#dialog")).to_be_hidden()
    expect(page.get_by_label("Model", exact=True)).to_have_value("orchard/apple-17")
    expect(page.get_by_role("button", name="Model: apple-17")).to_be_focused()

    phone.goto("/")
    opener(phone).tap()
    expect(choices(phone).first).to_have_text("apple-17")
    phone.get_by_role("button", name=re.compile("quince")).first.tap()
    expect(phone.get_by_label("Model", exact=True)).to_have_value("orchard/quince")


def test_the_arrows_walk_through_the_models_and_escape_chooses_none(
    contexts: tuple[Page, Page],
):
    page, _ = contexts
    page.goto("/")
    before = page.get_by_label("Model", exact=True).input_value()
    opener(page).click()
    page.get_by_label("Search models").fill("apple-0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".model-choice").nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(opener(page)).to_be_focused()
    assert page.get_by_label("Model", exact=True).input_value() == before
