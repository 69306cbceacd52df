"""Terms of use and announcements in a real browser, with and without JavaScript."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.accessibility.checks import find_faults
from tests.integration.accessibility.site import DESKTOP, PHONE
from tests.integration.browser.test_chat import browser, signed_in
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.server, pytest.mark.slow]

TERMS = re.compile(r"/terms/\?next=")
PUBLISH = """
from conversations.models import TermsVersion
TermsVersion.objects.create(text="# One\\n\\n1. Be *kind*.").publish()
"""
ANNOUNCE = """
from conversations.models import Announcement
for level in Announcement.Level.values:
    Announcement.objects.create(text=f"The **{level}** [news](https://a.example/)",
                                level=level, dismissible=level != "critical")
"""


@pytest.fixture
def server(migrated_data: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    shutil.copytree(migrated_data, tmp_path / "data")
    server = ServerProcess(tmp_path / "data").start()
    yield server
    server.kill()


def accept(page: Page) -> None:
    page.wait_for_url(TERMS)
    expect(page.get_by_role("heading", name="Terms of use")).to_be_visible()
    page.get_by_role("button", name="I accept these terms").click()


def test_an_open_chat_is_led_to_new_terms_and_back(browser: Browser, server: Any):
    with signed_in(browser, server) as context:
        page = context.new_page()
        page.goto("/")
        box = page.get_by_role("textbox", name="Message")
        box.fill("Hello")
        box.press("Enter")
        page.wait_for_url("**/chat/*/")
        expect(page.locator(".turn").last).to_contain_text("Hello")
        chat = page.url
        box.fill("And again")
        server.manage("shell", "-v0", "-c", PUBLISH)
        # The engine reads it within five seconds; then the next page leads there.
        other = context.new_page()
        while "/terms/" not in other.url:
            other.goto("/library/")
        page.keyboard.press("Enter")  # unless the open chat has been led there already
        page.wait_for_url(TERMS)
        assert find_faults(page, is_touched=False) == []
        accept(page)
        expect(page).to_have_url(chat)
        sent = page.locator(".turn", has_text="And again")
        while box.input_value() != "And again" and not sent.count():
            page.wait_for_load_state()


def test_both_work_without_javascript_and_are_accessible(browser: Browser, server: Any):
    with signed_in(browser, server, java_script_enabled=False) as context:
        server.manage("shell", "-v0", "-c", PUBLISH + ANNOUNCE)
        page = context.new_page()
        while "/terms/" not in page.url:
            page.goto("/library/")
        accept(page)
        page.wait_for_url("**/library/")
        expect(page.locator(".announcement")).to_have_count(3)
        page.get_by_role("button", name="Dismiss the announcement").first.click()
        expect(page.locator(".announcement")).to_have_count(2)
        assert page.url.endswith("/library/")
        state = context.storage_state()
    for options in (DESKTOP, {**PHONE, "color_scheme": "dark"}):
        seen = browser.new_context(
            base_url=server.url, storage_state=state, bypass_csp=True, **options
        )
        page = seen.new_page()
        for path in ("/", "/library/", "/terms/"):
            page.goto(path)
            assert find_faults(page, is_touched=options is not DESKTOP) == [], path
        seen.close()
