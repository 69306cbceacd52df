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
    this.permission = "granted"; // as browsers do
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
    send_message(page, f"/long {NUMBERS}")
    page.evaluate("hide(true)")
    expect(page).to_have_title(re.compile(r"^\(1\) /echo one"))
    icon = page.locator("link[rel=icon]")
    expect(icon).to_have_attribute("href", re.compile("favicon-new"))
    page.evaluate("hide(false)")
    expect(page).to_have_title(re.compile(r"^/echo one"))
    expect(icon).not_to_have_attribute("href", re.compile("favicon-new"))
    assert page.evaluate("[asked, notes.length]") == [0, 0]  # nothing unasked


#: Notifications that are allowed, and a device that plays tones.
ALLOWED = (
    HIDEABLE.replace('permission = "default"', 'permission = "granted"')
    + """
document.hasFocus = () => !isHidden;
window.tones = 0;
class Node_ {
  frequency = {};
  gain = { setValueAtTime() {}, exponentialRampToValueAtTime() {} };
  connect(next) { return next; }
  start() { tones += 1; }
  stop() {}
}
window.AudioContext = class {
  currentTime = 0;
  createOscillator() { return new Node_(); }
  createGain() { return new Node_(); }
  close() {}
};
"""
)


def test_a_notification_and_a_sound_come_only_as_they_are_wished_for(open_page: Open):
    settings = open_page("/settings/", script=HIDEABLE)
    wish = settings.get_by_label("by a notification of the browser")
    wish.check()
    assert settings.evaluate("asked") == 1
    settings.get_by_role("button", name="Save").click()
    expect(wish).to_be_checked()

    page = open_page(script=ALLOWED, bypass_csp=True)  # to wait for what scripts do
    send_message(page, "/echo one")
    chat_address(page)
    expect(page.locator(".turn .turn-foot")).to_have_count(1)
    assert page.evaluate("[notes.length, tones]") == [0, 0]  # its reader looks at it
    page.locator(".user-menu summary").click()
    page.get_by_role("button", name="Sound with answers").click()
    assert page.evaluate("tones") == 2  # so that one knows how it sounds
    page.keyboard.press("Escape")
    send_message(page, f"/long {NUMBERS}")
    page.evaluate("hide(true)")
    page.wait_for_function("notes.length === 1 && tones === 4")
    assert page.evaluate("notes") == ["An answer is ready"]
    page.evaluate("hide(false)")

    wish.uncheck()
    settings.get_by_role("button", name="Save").click()
    page.reload()
    send_message(page, f"/long {NUMBERS}")
    page.evaluate("hide(true)")
    page.wait_for_function("tones === 2")
    assert page.evaluate("notes") == []


def test_an_answer_in_another_chat_has_a_dot_in_the_list(open_page: Open):
    page = open_page()
    send_message(page, f"/long {3 * NUMBERS}")
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
