"""The page that finds and selects conversations."""

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


def test_a_long_title_breaks_on_a_narrow_page(open_page: Open):
    page = open_page(viewport={"width": 390, "height": 844})
    send_message(page, "/echo " + "W" * 400)
    expect_end(page)
    page.goto("/library/")
    expect(page.locator(".is-found").first).to_contain_text("WWW")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_all_conversations_of_the_page_are_selected_at_once(open_page: Open):
    page = open_page()
    for text in ("/echo one", "/echo two"):
        page.goto("/")
        send_message(page, text)
        expect_end(page)
    page.goto("/library/")
    boxes = page.locator("input[name=ids]")
    every = page.get_by_label("Select all on this page")
    every.check()
    expect(page.locator("input[name=ids]:checked")).to_have_count(boxes.count())
    boxes.first.uncheck()
    expect(every).not_to_be_checked()
    boxes.first.check()
    expect(every).to_be_checked()
    every.uncheck()
    expect(page.locator("input[name=ids]:checked")).to_have_count(0)
    plain = open_page("/library/", java_script_enabled=False)
    expect(plain.locator("#select-all")).to_be_hidden()


@pytest.mark.parametrize("has_script", [True, False])
def test_enter_in_the_tag_box_tags_and_archives_nothing(
    open_page: Open, has_script: bool
):
    page = open_page(java_script_enabled=has_script)
    page.locator("#text").fill("/echo a word about rowans")
    page.locator("#send").click()
    page.wait_for_url(re.compile("/chat/"))
    page.goto("/library/")
    box = page.locator("input[name=ids]").first
    box.check()
    if has_script:
        box.press("Enter")  # which a browser would take for the first button
        expect(box).to_be_checked()
    tag = page.get_by_label("Tag", exact=True).last
    tag.fill("hedge")
    tag.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("1 conversation changed.")
    expect(page.locator(".found-list .tag").first).to_have_text("hedge")


@pytest.mark.parametrize(
    "place", ["/import/ All as JSON", "/import/ All as Markdown", "export/ JSON"]
)
def test_who_has_to_sign_in_again_is_asked_instead_of_given_a_file(
    open_page: Open, place: str
):
    page = open_page()
    send_message(page, "/echo one")
    expect_end(page)
    path, _, name = place.partition(" ")
    page.goto(path if path.startswith("/") else chat_address(page) + path)
    page.context.clear_cookies()
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_label("Password")).to_be_visible()


def test_the_keys_of_the_chat_page_work_in_the_library(open_page: Open):
    page = open_page()
    for text in ("/echo one", "/echo two"):
        page.goto("/")
        send_message(page, text)
        expect_end(page)
    page.goto("/library/")
    found = page.locator(".is-found")
    page.keyboard.press("j")
    expect(found.nth(0)).to_be_focused()
    page.keyboard.press("j")
    expect(found.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(found.nth(0)).to_be_focused()
    page.locator("input[name=ids]").nth(0).focus()
    page.keyboard.press("j")
    expect(found.nth(1)).to_be_focused()
    page.keyboard.press("s")
    expect(page.get_by_label("Words")).to_be_focused()
    page.keyboard.press("n")
    expect(page.get_by_label("Words")).to_have_value("n")
    page.keyboard.press("Control+/")
    shown = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(shown).to_contain_text("Next chat")
    expect(shown).not_to_contain_text("Stop the answer")
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
    found.nth(0).focus()
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile(r":\d+/$"))
