"""Signing in by a real OpenID Connect provider, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.conftest import StartServer
from tests.integration.browser.people.test_account import sign_in, sign_out
from tests.integration.browser.test_chat import browser
from tests.integration.sign_in.oidc import OidcServer, environment, sign_in_there
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STAFF = """
from django.contrib.auth.models import User, Group
from project.accounts.models import IdentityProvider
"""


@pytest.fixture
def acme(tmp_path: Path) -> OidcServer:
    return OidcServer(tmp_path)


class Scene:
    def __init__(self, browser: Any, server: ServerProcess) -> None:
        self.browser, self.server = browser, server
        self._contexts: list[Any] = []

    def page(self) -> Page:
        """Of a browser that has no cookies yet."""
        context = self.browser.new_context(base_url=self.server.url)
        self._contexts.append(context)
        page: Page = context.new_page()
        page.on("console", lambda line: self._check(line.text))
        return page

    def _check(self, line: str) -> None:
        assert "Content Security Policy" not in line, line

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def run(self, code: str) -> str:
        return self.server.manage("shell", "-v0", "-c", STAFF + code).strip()

    def users(self) -> list[str]:
        names = self.run(
            "print(list(User.objects.order_by('pk')"
            ".values_list('username', 'email')).__repr__())"
        )
        return re.findall(r"'([^']*)', '([^']*)'", names)

    def groups_of(self, name: str) -> list[str]:
        return json.loads(
            self.run(
                "import json; print(json.dumps(sorted(User.objects.get(username="
                f"{name!r}).groups.values_list('name', flat=True))))"
            )
        )


@pytest.fixture
def begin(browser: Any, acme: OidcServer, start_server: StartServer) -> Iterator[Any]:
    scenes: list[Scene] = []
    running: list[Any] = []

    def start(**more: str) -> Scene:
        server = start_server(**environment(acme, **more))
        acme.allow(f"{server.url}/sso/oidc/sso/login/callback/")
        running.append(acme.run())
        running[-1].__enter__()
        scenes.append(Scene(browser, server))
        return scenes[-1]

    yield start
    for scene in scenes:
        scene.close()
    for each in running:
        each.__exit__(None, None, None)


def go_in(page: Page, name: str, where: str = "/login/") -> None:
    page.goto(where)
    page.get_by_role("button", name="Continue with Acme").click()
    page.wait_for_selector("input[name=login]")
    sign_in_there(page, name)


def test_a_person_of_the_organisation_comes_in_with_its_groups(
    begin: Any, acme: OidcServer
):
    ada = {"email": "ada@acme.org", "email_verified": True, "name": "Ada Lovelace"}
    acme.know("ada", **ada, groups=["eng", "unknown here"])
    scene = begin(OIDC_NEW_ACCOUNTS="everybody", OIDC_EMAIL_DOMAINS="acme.org")
    scene.run(
        "p = IdentityProvider.objects.get(); p.default_group = "
        "Group.objects.create(name='all'); p.save();"
        "make = lambda n: Group.objects.create(name=n);"
        "p.group_mappings.create(claim='eng', group=make('Engineers'));"
        "p.group_mappings.create(claim='hr', group=make('People'))"
    )
    page = scene.page()
    go_in(page, "ada", "/login/?next=/settings/")
    page.wait_for_url("**/settings/")
    assert scene.users()[1:] == [("ada", "ada@acme.org")]
    assert scene.groups_of("ada") == ["Engineers", "all"]
    page.goto("/")
    sign_out(page)
    acme.know("ada", **ada, groups=["hr"])  # moved
    page.context.clear_cookies()
    go_in(page, "ada")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert scene.groups_of("ada") == ["People", "all"]
    assert len(scene.users()) == 2
    # Others are refused: of another domain, or with an address that nobody verified.
    acme.know("eve", email="eve@evil.org", email_verified=True)
    acme.know("mal", email="mal@acme.org", email_verified=False)
    for name in ("eve", "mal"):
        stranger = scene.page()
        go_in(stranger, name)
        expect(stranger.get_by_text("not of a domain that may sign in")).to_be_visible()
    assert len(scene.users()) == 2


def test_no_address_takes_over_an_account(begin: Any, acme: OidcServer):
    scene = begin(OIDC_NEW_ACCOUNTS="everybody")
    scene.run(
        "User.objects.create_user('grace', 'grace@acme.org', 'x' * 12);"
        "User.objects.create_user('root', 'root@acme.org', 'x' * 12, is_staff=True)"
    )
    acme.know("mal", email="grace@acme.org", email_verified=False)
    page = scene.page()
    go_in(page, "mal")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    # A new account, without the address, which nobody verified.
    assert scene.users()[-1] == ("user", "")
    acme.know("grace", email="Grace@acme.org", email_verified=True)
    page = scene.page()
    go_in(page, "grace")
    expect(page.get_by_text("There is an account with your address")).to_be_visible()
    scene.run("p = IdentityProvider.objects.get(); p.links_accounts = True; p.save()")
    acme.know("boss", email="root@acme.org", email_verified=True)
    page = scene.page()
    go_in(page, "boss")
    expect(page.get_by_text("There is an account with your address")).to_be_visible()
    page = scene.page()
    go_in(page, "grace")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    expect(page.locator("body[data-user]")).to_be_attached()
    page.goto("/account/")
    expect(page.get_by_text("You are signed in as grace")).to_be_visible()
    assert len(scene.users()) == 4


def test_who_has_a_password_connects_the_provider(begin: Any, acme: OidcServer):
    acme.know("boss", email="boss@acme.org", email_verified=True)
    scene = begin()
    stranger = scene.page()
    go_in(stranger, "boss")
    expect(stranger.get_by_text("You have no account here")).to_be_visible()
    page = scene.page()
    sign_in(page, "admin")
    page.goto("/account/")
    page.get_by_role("link", name="Connected providers").click()
    page.get_by_role("button", name="Connect Acme").click()
    sign_in_there(page, "boss")
    page.wait_for_url("**/sso/")
    expect(page.get_by_role("heading", name="Acme")).to_be_visible()
    sign_out_of = scene.page()
    go_in(sign_out_of, "boss")
    expect(sign_out_of.get_by_role("textbox", name="Message")).to_be_visible()
    sign_out_of.goto("/account/")
    expect(sign_out_of.get_by_text("You are signed in as admin")).to_be_visible()
    page.get_by_role("button", name="Disconnect").click()
    expect(page.get_by_text("None is connected.")).to_be_visible()
    stranger = scene.page()
    go_in(stranger, "boss")
    expect(stranger.get_by_text("You have no account here")).to_be_visible()


def test_only_invited_people_get_an_account(begin: Any, acme: OidcServer):
    acme.know("ida", email="ida@acme.org", email_verified=True)
    acme.know("mal", email="ida@acme.org", email_verified=False)
    acme.know("eve", email="eve@acme.org", email_verified=True)
    scene = begin(OIDC_NEW_ACCOUNTS="invited")
    scene.run(
        "from project.accounts.models import Invitation;"
        "Invitation.objects.create(email='Ida@acme.org')"
    )
    for name in ("mal", "eve"):
        page = scene.page()
        go_in(page, name)
        expect(page.get_by_text("ask an administrator to invite you", exact=False))
        expect(page.get_by_role("heading", name="You cannot sign in")).to_be_visible()
    page = scene.page()
    go_in(page, "ida")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert scene.users()[-1] == ("ida", "ida@acme.org")


def test_a_provider_that_is_down_is_one_sentence(start_server: StartServer):
    server = start_server(
        OIDC_ISSUER="http://127.0.0.1:9", OIDC_CLIENT_ID="x", OIDC_LABEL="Acme"
    )
    with httpx.Client(base_url=server.url) as http:
        form = http.get("/login/").text
        token = re.findall(r'csrfmiddlewaretoken" value="(\w+)"', form)[0]
        answer = http.post("/sso/oidc/sso/login/", data={"csrfmiddlewaretoken": token})
    assert answer.status_code == 502
    assert "The provider does not answer" in answer.text
