"""Passkeys and security keys, with Chromium's virtual authenticator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import StartServer
from tests.integration.browser.people.test_account import sign_in, sign_out
from tests.integration.browser.test_chat import browser

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: As of a phone or laptop that asks for a finger.
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def page(browser: Any, start_server: StartServer) -> Iterator[Page]:
    """At `localhost`, where browsers allow passkeys without HTTPS."""
    server = start_server(STAFF_SECOND_FACTOR="true")
    context = browser.new_context(base_url=f"http://localhost:{server.port}")
    page = context.new_page()
    page.on("console", lambda line: check(line.text))
    client = context.new_cdp_session(page)
    client.send("WebAuthn.enable")
    client.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    yield page
    context.close()


def check(line: str) -> None:
    assert "Content Security Policy" not in line, line


def add_key(page: Page, name: str, *, is_passkey: bool) -> None:
    page.get_by_label("Name").fill(name)
    if is_passkey:
        page.get_by_label("Passwordless").check()
    page.get_by_role("button", name="Add").click()
    page.wait_for_url("**/recovery-codes/")


def test_a_passkey_signs_in_without_name_and_password(page: Page):
    sign_in(page, "admin")
    page.goto("/admin/")  # which leads there
    expect(page.get_by_text("Set up a second factor first")).to_be_visible()
    page.goto("/account/second-factor/webauthn/add/")
    add_key(page, "My phone", is_passkey=True)
    page.goto("/admin/")
    expect(
        page.get_by_role("heading", name="Administration", exact=True)
    ).to_be_visible()
    page.goto("/")
    sign_out(page)
    page.goto("/login/?next=/admin/")
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url("**/admin/")
    expect(
        page.get_by_role("heading", name="Administration", exact=True)
    ).to_be_visible()


def test_a_security_key_is_asked_for_after_the_password(page: Page):
    sign_in(page, "admin")
    page.goto("/account/second-factor/webauthn/add/")
    add_key(page, "My key", is_passkey=False)
    page.goto("/")
    sign_out(page)
    page.goto("/login/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill("tests-know-this-one")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/second-factor/authenticate/")
    page.get_by_role("button", name="Use a security key").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    page.goto("/admin/")
    expect(
        page.get_by_role("heading", name="Administration", exact=True)
    ).to_be_visible()
    page.goto("/account/second-factor/")
    expect(page.get_by_text("You have added 1 security key")).to_be_visible()
