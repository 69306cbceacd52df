"""One's own account and its drafts, in a real browser."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import NO_SOCKETS, browser, signed_in
from tests.serving import PASSWORD, ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(start_module_server: StartServer) -> ServerProcess:
    """A server with more users, who are no administrators."""
    server = start_module_server()
    make = "from django.contrib.auth.models import User as U\n"
    make += "for name in ('grace', 'leaver', 'guessed'):"
    make += f" U.objects.create_user(name, password={PASSWORD!r})"
    server.manage("shell", "-v0", "-c", make)
    return server


def sign_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.goto("/login/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("/")  # "**/" is the address of the sign-in page too


def sign_out(page: Page) -> None:
    page.locator(".user-menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login/**")


def expect_drafts(page: Page, count: int) -> None:
    names = "Object.keys(localStorage).filter(name => /draft/.test(name))"
    page.wait_for_function(f"count => {names}.length === count", arg=count)


def test_a_draft_belongs_to_its_author_and_is_removed_at_sign_out(
    browser: Any, site: ServerProcess
):
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    sign_in(page, "admin")
    page.evaluate("localStorage.setItem('parley:draft:new', 'of an old version')")
    page.get_by_role("textbox", name="Message").fill("what only the admin may read")
    page.reload()
    expect(page.get_by_role("textbox", name="Message")).to_have_value(
        "what only the admin may read"
    )
    context.clear_cookies()  # the session is over without a sign-out
    sign_in(page, "grace")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")
    page.get_by_role("textbox", name="Message").fill("by grace")
    expect_drafts(page, 2)
    sign_out(page)
    assert "by grace" not in page.evaluate("JSON.stringify(localStorage)")
    expect_drafts(page, 1)
    sign_in(page, "admin")
    expect(page.get_by_role("textbox", name="Message")).to_have_value(
        "what only the admin may read"
    )
    sign_out(page)
    expect_drafts(page, 0)
    context.close()


def test_no_other_tab_shows_a_user_who_has_signed_out(
    browser: Any, site: ServerProcess
):
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    sign_in(page, "admin")
    box = page.get_by_role("textbox", name="Message")
    box.fill("Only for the admin")
    box.press("Enter")
    page.wait_for_url("**/chat/*/**")
    expect(page.locator('.turn[data-status="completed"]')).to_have_count(1)
    note = {"name": "secret.txt", "mimeType": "text/plain", "buffer": b"hush"}
    page.locator("#file").set_input_files([note])
    stored = "JSON.stringify(localStorage)"
    page.wait_for_function(f"() => {stored}.includes('secret.txt')")
    paths = ["/", "/library/", "/settings/", "/admin/", f"{page.url}print/"]
    tabs = [context.new_page() for _ in paths]
    for tab, path in zip(tabs, paths, strict=True):
        tab.goto(path)
    tabs[0].get_by_role("textbox", name="Message").fill("a draft of the admin's")
    sign_out(page)
    for tab in tabs:
        tab.wait_for_url(re.compile("/login/"))
    assert "secret.txt" not in page.evaluate(stored)
    assert "a draft of" not in page.evaluate(stored)
    # A session that ended otherwise: the next user's pages tell the tabs.
    sign_in(page, "admin")
    tabs[1].goto("/library/")
    context.clear_cookies()
    sign_in(page, "grace")
    tabs[1].wait_for_function("() => !document.body.textContent.includes('Only for')")
    context.close()


def test_text_that_is_not_saved_outlives_a_session(browser: Any, site: ServerProcess):
    context = browser.new_context(base_url=site.url)
    page, tab, other = (context.new_page() for _ in range(3))
    sign_in(page, "admin")
    other.goto("/library/")
    tab.goto("/admin/auth/group/add/")
    name = tab.locator("#id_name")
    name.fill("Typed for long")
    # Expired: the sign-in page of one tab takes nothing from the others.
    cookies = context.cookies()
    context.clear_cookies()
    page.evaluate("localStorage.removeItem('parley:signed-out')")
    page.goto("/login/")
    assert "signed-out" not in page.evaluate("Object.keys(localStorage).join()")
    expect(name).to_have_value("Typed for long")
    token = tab.locator("[name=csrfmiddlewaretoken]").first.input_value()
    sign_in(page, "admin")  # which changes the token of the forms
    tab.wait_for_function(
        "old => document.querySelector('[name=csrfmiddlewaretoken]').value !== old",
        arg=token,
    )
    tab.locator("[name=_save]").click()
    expect(tab.get_by_text("was added successfully")).to_be_visible()
    tab.goto("/admin/auth/group/add/")
    name.fill("Typed for longer")
    cookies = context.cookies()
    # Signed out: tabs leave, but one whose form was edited hides it.
    context.add_cookies(cookies)
    page.goto("/")
    sign_out(page)
    other.wait_for_url("**/login/**")
    expect(tab.get_by_role("heading", name="You are signed out")).to_be_visible()
    expect(name).to_be_hidden()
    # The same person goes on where they were, and can save it.
    sign_in(page, "admin")
    expect(name).to_be_visible()
    expect(name).to_have_value("Typed for longer")
    tab.locator("[name=_save]").click()
    expect(tab.get_by_text("was added successfully")).to_be_visible()
    # Another one does not get to see it.
    tab.goto("/admin/auth/group/add/")
    name.fill("Secret plan")
    sign_out(page)
    expect(name).to_be_hidden()
    sign_in(page, "grace")
    tab.wait_for_function("() => !document.querySelector('#id_name')")
    assert "Secret plan" not in tab.content()
    context.close()


@pytest.mark.parametrize("has_script", [True, False])
def test_what_is_sent_after_the_session_comes_back_and_is_sent_again(
    browser: Any, site: ServerProcess, has_script: bool
):
    context = browser.new_context(base_url=site.url, java_script_enabled=has_script)
    page = context.new_page()
    sign_in(page, "admin")
    page.goto("/settings/personal/")
    box = page.get_by_role("textbox")
    text = f"Written for long, with a script: {has_script}"
    box.fill(text)
    context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
    expect(box).to_have_value(text)
    token = page.locator("main [name=csrfmiddlewaretoken]")
    old = token.get_attribute("value") or ""
    with context.expect_page() as opened:
        page.get_by_role("link", name="Sign in").click()
    sign_in(opened.value, "admin")
    again = page.get_by_role("button", name="Send again")
    if has_script:  # which gives the form the new token, before or after this
        expect(token).not_to_have_value(old)
    again.click()
    if not has_script:
        expect(page.get_by_text("You are signed in as admin.")).to_be_visible()
        again.click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(box).to_have_value(text)
    context.close()


def test_what_came_back_is_not_shown_to_the_next_user(
    browser: Any, site: ServerProcess
):
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    sign_in(page, "admin")
    page.goto("/settings/personal/")
    page.get_by_role("textbox").fill("Secret plan")
    context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
    sign_in(context.new_page(), "grace")
    page.wait_for_url(site.url + "/settings/personal/")
    page.wait_for_function("!document.body.textContent.includes('Secret plan')")
    context.close()


def test_the_draft_of_a_tab_that_crashes_is_found_and_a_copy_has_its_own(
    browser: Any, site: ServerProcess
):
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    sign_in(page, "admin")
    box = page.get_by_role("textbox", name="Message")
    with page.expect_popup() as opened:  # which copies the tab's storage
        page.evaluate("void open('/')")
    copy = opened.value
    copy.get_by_role("textbox", name="Message").fill("of the copy")
    box.fill("a long letter")
    expect_drafts(page, 2)
    with page.expect_event("crash"), suppress(PlaywrightError):
        page.goto("chrome://crash")  # both tabs, which are of one process
    new = context.new_page()
    new.goto("/")
    expect(new.get_by_role("textbox", name="Message")).to_have_value("a long letter")
    new.reload()
    expect(new.get_by_role("textbox", name="Message")).to_have_value("a long letter")
    expect_drafts(new, 2)
    context.close()


def test_drafts_go_with_a_sign_out_in_the_admin_and_with_the_account(
    browser: Any, site: ServerProcess
):
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    sign_in(page, "admin")
    page.get_by_role("textbox", name="Message").fill("by the admin")
    expect_drafts(page, 1)
    page.goto("/admin/")
    page.get_by_role("button", name="Log out").click()
    expect_drafts(page, 0)
    sign_in(page, "leaver")
    page.get_by_role("textbox", name="Message").fill("by the leaver")
    expect_drafts(page, 1)
    page.goto("/account/delete/")
    page.locator("[name=password]").fill(PASSWORD)
    page.locator("form .is-danger").click()
    expect(page.get_by_role("heading", name="Your account is deleted")).to_be_visible()
    expect_drafts(page, 0)
    context.close()


@pytest.mark.parametrize("script", ["", NO_SOCKETS], ids=["socket", "fallback"])
def test_a_page_whose_session_has_ended_goes_to_the_sign_in(
    browser: Any, site: ServerProcess, script: str
):
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    page.add_init_script(script or "0")
    sign_in(page, "admin")
    box = page.get_by_role("textbox", name="Message")
    box.fill("Hello")
    box.press("Enter")
    page.wait_for_url("**/chat/*/**")
    expect(page.locator('.turn[data-status="completed"]')).to_have_count(1)
    (key,) = (c["value"] for c in context.cookies() if c["name"] == "sessionid")
    end = "from django.contrib.sessions.models import Session as S;"
    end += f"assert S.objects.filter(pk={key!r}).delete()[0]"
    box.fill("written before it ended")
    site.manage("shell", "-v0", "-c", end)
    # Without a socket the page learns it at its next request, by this key or by itself.
    if script and "/login/" not in page.url:
        with suppress(PlaywrightError):  # the page has left meanwhile
            box.press("Enter", timeout=10_000)
    page.wait_for_url(re.compile(r"/login/\?next=/chat/"))
    is_sent = page.evaluate(
        "Object.keys(localStorage).some((name) => name.startsWith('parley:outbox:'))"
    )
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(re.compile(r"^[^?]*/chat/"))
    if is_sent:  # the message is sent now
        expect(page.locator('.turn[data-status="completed"]')).to_have_count(2)
    else:
        expect(box).to_have_value("written before it ended")
    context.close()


def test_the_account_page_fits(browser: Any, site: ServerProcess):
    with signed_in(browser, site) as context:
        page = context.new_page()
        page.goto("/account/")
        expect(page.get_by_role("heading", name="Account", exact=True)).to_be_visible()
        expect(page.get_by_text("this browser", exact=True)).to_be_visible()
        page.get_by_label("Old password").fill("wrong")
        page.get_by_label("New password", exact=True).fill("a-new-one-of-tests")
        page.get_by_label("New password confirmation").fill("a-new-one-of-tests")
        page.get_by_role("button", name="Change the password").click()
        expect(page.get_by_text("entered incorrectly")).to_be_visible()
        expect_fit(page, "account")


def test_the_page_of_a_locked_out_user_fits(browser: Any, site: ServerProcess):
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    page.goto("/login/")
    for _ in range(5):
        page.get_by_label("Username").fill("guessed")
        page.get_by_label("Password").fill("wrong")
        with page.expect_navigation():
            page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_text(re.compile(r"Try again in \d+ seconds"))).to_be_visible()
    expect_fit(page, "locked-out")
    context.close()


def expect_fit(page: Page, name: str) -> None:
    """In windows of both widths and schemes, which need no other page."""
    wide = "document.documentElement.scrollWidth"
    for width, scheme in product((1280, 360), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(wide) <= width, f"{name}, {width} wide, {scheme}"
        _shoot(page, f"{name}-{width}-{scheme}")


def _shoot(page: Page, name: str) -> None:
    """For people to look at, where SCREENSHOTS names a folder."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
