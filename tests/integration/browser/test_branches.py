"""Versions of a message, in two tabs and without a script."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import (
    Open,
    answer,
    browser,
    chat_address,
    expect_end,
    open_page,
    page,
    send_message,
    signed_in,
)
from tests.integration.browser.thinking_host import ROWS, ThinkingHost

__all__ = ["browser", "open_page", "page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


#: A second model of the same host.
LARGE = """
LanguageModel.objects.create(provider=row, name="thinker-large")
"""


def menu(page: Page) -> Locator:
    return page.locator("summary[aria-label='More for this answer']").last


def editor(page: Page) -> Locator:
    return page.get_by_role("form", name="Edit the message")


@pytest.mark.smoke
def test_a_message_is_edited_and_both_versions_show_in_two_tabs(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    address = chat_address(page)
    other = open_page(address)
    expect(answer(other)).to_have_text("one")
    page.get_by_role("link", name="Edit the message").click()
    editor(page).get_by_label("Message").fill("/echo two")
    editor(page).get_by_role("button", name="Save and send").click()
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


def test_a_deletion_at_the_end_of_a_long_conversation_can_be_undone(open_page: Open):
    page = open_page("/")
    lines = "\n\n".join(f"line {number}" for number in range(40))
    for name in ("one", "two"):
        send_message(page, f"/echo {name}\n\n{lines}")
        expect_end(page)
    menu(page).click()
    page.get_by_role("button", name="Delete from here").click()
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.get_by_text("line 39").last).to_be_in_viewport()
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_in_viewport(ratio=1)
    top = page.locator(".bar").bounding_box()
    box = undo.bounding_box()
    assert top
    assert box
    assert box["y"] >= top["y"] + top["height"]


def test_a_call_in_a_comparison_shows_its_name_and_arguments(
    browser: Browser, start_server: StartServer
):
    server = start_server()
    wide = {"width": 1440, "height": 900}
    with ThinkingHost() as host, signed_in(browser, server, viewport=wide) as context:
        server.manage("shell", "-c", ROWS.replace("{url}", host.url) + LARGE)
        page = context.new_page()
        page.goto("/")
        page.locator(".compare-menu summary").click()
        menu = page.locator(".compare-menu fieldset").bounding_box()
        heading = page.locator(".compare-menu legend").bounding_box()
        assert menu
        assert heading
        assert heading["y"] > menu["y"]  # below the border
        for name in ("thinker-large", "Demo (no AI)"):
            page.locator(".compare-menu").get_by_label(name).check()
        send_message(page, "calculate 6 * 7; 6 * 8")
        names = page.locator(".compared .called-name")
        expect(names.nth(2)).to_be_visible()
        expect(page.locator(".compared .turn-foot")).to_have_count(3)
        for name in names.all():
            expect(name).to_have_text("calculator")
            box = name.bounding_box()
            assert box
            assert box["height"] < 30  # one line
        preview = page.locator(".compared .called-preview").first.bounding_box()
        assert preview
        assert preview["width"] > 100
        assert page.locator(".comparison").evaluate(
            "e => e.scrollWidth <= e.clientWidth"
        )


def test_up_edits_the_last_message_of_the_reader_not_of_another(open_page: Open):
    page = open_page("/")
    for text in ("/echo mine", "/echo of another"):
        send_message(page, text)
        expect_end(page)
    another = "(message) => message.classList.add('is-of-another')"
    page.locator(".asked").last.evaluate(another)
    page.keyboard.press("ArrowUp")
    expect(editor(page).get_by_label("Message")).to_have_value("/echo mine")


def test_up_edits_the_last_message_where_it_stands(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    address = chat_address(page)
    page.keyboard.press("ArrowUp")
    words = editor(page).get_by_label("Message")
    expect(words).to_be_focused()
    expect(words).to_have_value("/echo one")
    page.keyboard.type(" and more")
    page.keyboard.press("Escape")
    expect(editor(page)).to_have_count(0)
    expect(page.locator(".asked-text")).to_have_text("/echo one")
    expect(page.locator("#text")).to_be_focused()

    page.keyboard.press("ArrowUp")
    expect(words).to_have_value("/echo one")
    words.fill(" ")
    page.keyboard.press("Enter")
    expect(words).to_be_focused()
    words.fill("/echo two")
    page.keyboard.press("Enter")
    expect(answer(page)).to_have_text("two")
    expect_end(page)
    expect(page.locator(".branch-switch")).to_contain_text("2/2")
    expect(page.locator("#text")).to_be_focused()
    assert chat_address(page) == address


def test_escape_closes_the_editor_and_leaves_the_running_answer(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    send_message(page, "/long 5000")
    expect(page.locator(".turn").last).to_contain_text("3 4 5")
    page.get_by_role("link", name="Edit the message").first.click()
    editor(page).get_by_role("link", name="Cancel").click()
    expect(editor(page)).to_have_count(0)
    page.get_by_role("link", name="Edit the message").first.click()
    expect(editor(page).get_by_label("Message")).to_be_focused()
    page.keyboard.press("Escape")
    expect(editor(page)).to_have_count(0)
    expect(page.locator("#stop")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".turn .ending").last).to_contain_text("Stopped")


def test_an_edit_outlives_the_end_of_the_session(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    address = chat_address(page)
    page.keyboard.press("ArrowUp")
    editor(page).get_by_label("Message").fill("/echo a long text")
    cookies = page.context.cookies()
    page.context.clear_cookies(name="sessionid")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Password")).to_be_visible()
    page.context.add_cookies(cookies)  # as after a sign-in
    page.goto(address)
    expect(page.locator("#text")).to_have_value("/echo a long text")
    expect(page.locator(".asked-text")).to_have_text("/echo one")


def test_up_returns_to_the_editor_that_is_open(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    page.keyboard.press("ArrowUp")
    expect(editor(page).get_by_label("Message")).to_be_focused()
    page.locator("#text").click()
    page.keyboard.press("ArrowUp")
    expect(editor(page).get_by_label("Message")).to_be_focused()
    expect(page.locator("#text")).to_have_value("")


def test_up_edits_a_message_that_waits(open_page: Open):
    page = open_page("/")
    send_message(page, "/long 5000")
    expect(page.locator(".turn").last).to_contain_text("3 4 5")
    send_message(page, "/echo later")
    waiting = page.locator("#queue .queued[data-turn]")
    expect(waiting).to_have_count(1)
    page.keyboard.press("ArrowUp")
    expect(waiting.locator("textarea")).to_be_focused()
    expect(page.locator("#text")).to_have_value("")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator(".turn .ending").first).to_contain_text("Stopped")


def test_a_message_is_edited_on_its_page_without_a_script(open_page: Open):
    page = open_page("/")
    send_message(page, "/echo one")
    expect_end(page)
    plain = open_page(chat_address(page), java_script_enabled=False)
    plain.get_by_role("link", name="Edit the message").click()
    expect(plain).to_have_url(re.compile("/edit/$"))
    plain.get_by_label("Message").fill("/echo two")
    plain.get_by_role("button", name="Save and send").click()
    expect(plain).to_have_url(re.compile("#turn-"))
    expect(page.locator(".branch-switch")).to_contain_text("1/2")
