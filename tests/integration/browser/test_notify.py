"""What a page shows while its reader is elsewhere."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.integration.browser.test_chat import (
    NUMBERS,
    Open,
    browser,
    chat_address,
    open_page,
    send_message,
)

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: A tab that a test can hide, and notifications that it can read.
HIDEABLE = """
let isHidden = false;
Object.defineProperty(document, "hidden", { get: () => isHidden });
window.hide = (value) => {
  isHidden = value;
  document.dispatchEvent(new Event("visibilitychange"));
};
window.asked = 0;
window.notes = [];
window.Notification = class extends EventTarget {
  static permission = "default";
  static requestPermission() {
    asked += 1;
    return Promise.resolve("granted");
  }
  constructor(title) {
    super();
    notes.push(title);
  }
};
"""


def test_a_hidden_tab_counts_answers_until_its_reader_is_back(open_page: Open):
    page = open_page(script=HIDEABLE)
    send_message(page, "/echo one")
    chat_address(page)
    expect(page.locator(".turn .turn-foot")).to_have_count(1)
    expect(page).to_have_title(re.compile(r"^/echo one"))
    send_message(page, f"/long {NUMBERS // 3}")
    page.evaluate("hide(true)")
    expect(page).to_have_title(re.compile(r"^\(1\) /echo one"))
    icon = page.locator("link[rel=icon]")
    expect(icon).to_have_attribute("href", re.compile("favicon-new"))
    page.evaluate("hide(false)")
    expect(page).to_have_title(re.compile(r"^/echo one"))
    expect(icon).not_to_have_attribute("href", re.compile("favicon-new"))
    assert page.evaluate("[asked, notes.length]") == [0, 0]  # nothing unasked


def test_an_answer_in_another_chat_has_a_dot_in_the_list(open_page: Open):
    page = open_page()
    send_message(page, f"/long {NUMBERS}")
    first = chat_address(page)
    page.goto("/")
    row = page.locator(".row", has=page.locator(f'a[href^="{path_of(first)}"]')).first
    expect(row.locator(".spinner")).to_be_visible()
    expect(row.locator(".unread")).to_be_visible()
    page.goto(first)
    expect(page.locator(".turn .turn-foot")).to_have_count(1)
    page.goto("/")
    expect(row).to_be_visible()
    expect(row.locator(".unread")).to_have_count(0)


def path_of(address: str) -> str:
    return "/" + address.split("/", 3)[3]
