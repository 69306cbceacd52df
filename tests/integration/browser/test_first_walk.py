"""From a bare server to an answer of a real model, as somebody new would go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.conftest import StartServer
from tests.integration.accessibility.checks import find_faults
from tests.integration.accessibility.site import DESKTOP, PHONE
from tests.integration.browser.test_chat import browser, watched
from tests.llm.probing.host import ProbedHost
from tests.serving import PASSWORD, ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST = 6  # clicks and submits
OWN = "Kestrels-at-dusk-91"  # a password


class Walker:
    """Counts what is clicked and sent; filling a form in is not counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.interactions = 0

    def click(self, what: Locator) -> None:
        what.click()
        self.interactions += 1

    def press_enter(self, what: Locator) -> None:
        what.press("Enter")
        self.interactions += 1


@pytest.fixture
def walker(browser: Browser, start_server: StartServer) -> Iterator[Walker]:
    with walking(browser, start_server()) as walker:
        yield walker


@contextmanager
def walking(browser: Browser, server: ServerProcess) -> Iterator[Walker]:
    context = browser.new_context(base_url=server.url)
    page = watched(context, server.url, faults := [])
    page.goto("/")  # the address that the server prints
    yield Walker(page)
    assert faults == []
    context.close()


def sign_in(walker: Walker) -> None:
    walker.page.get_by_label("Username").fill("admin")
    walker.page.get_by_label("Password").fill(PASSWORD)
    name = re.compile("^(Sign in|Log in)$")  # of the chat, of the admin
    walker.click(walker.page.get_by_role("button", name=name))


def sign_in_as_printed(walker: Walker, banner: str) -> None:
    """With the password that the first start prints; then choose another one."""
    page = walker.page
    [printed] = re.findall(r"with the password (\S+)", banner)
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(printed)
    walker.click(page.get_by_role("button", name="Sign in", exact=True))
    page.get_by_label("Old password").fill(printed)
    page.get_by_label("New password", exact=True).fill(OWN)
    page.get_by_label("New password confirmation").fill(OWN)
    walker.click(page.get_by_role("button", name="Change the password"))


def fill_in_provider(walker: Walker, url: str) -> None:
    page = walker.page
    page.get_by_label("Name:", exact=True).first.fill("Workshop")
    page.get_by_label("Kind:").select_option("openai_compatible")
    page.locator("#id_base_url").fill(url)
    page.locator("#id_allow_private_network").check()
    page.locator("#id_keys-0-secret").fill("wk-0123456789")
    walker.click(page.get_by_role("button", name="Save and test connection"))


def ask(walker: Walker) -> None:
    box = walker.page.get_by_role("textbox", name="Message")
    box.fill("Are you there?")
    walker.press_enter(box)
    turn = walker.page.locator('.turn[data-status="completed"]')
    expect(turn).to_contain_text("OK")


def test_a_host_with_one_model_answers_after_five_interactions(walker: Walker):
    host = ProbedHost("ignores tools", models=["orchard-7b"])
    with host.listening() as url:
        sign_in(walker)
        walker.click(walker.page.get_by_role("link", name="Add a provider"))
        fill_in_provider(walker, url)
        added = walker.page.get_by_text("orchard-7b was added and switched on")
        expect(added).to_be_visible()
        walker.click(walker.page.get_by_role("link", name="View site"))
        ask(walker)
    assert walker.interactions == 5
    assert host.requests[-1]["model"] == "orchard-7b"
    expect(walker.page.get_by_text("Only the demo answers")).to_have_count(0)


def test_a_host_with_several_models_answers_after_six_interactions(walker: Walker):
    host = ProbedHost("ignores tools", models=["orchard-7b", "orchard-32b"])
    with host.listening() as url:
        sign_in(walker)
        walker.click(walker.page.get_by_role("link", name="Add a provider"))
        fill_in_provider(walker, url)
        walker.page.get_by_label("orchard-32b").check()
        walker.click(walker.page.get_by_role("button", name="switch new models on"))
        walker.click(walker.page.get_by_role("link", name="View site"))
        ask(walker)
    assert walker.interactions <= MOST
    assert host.requests[-1]["model"] == "orchard-32b"


def test_a_bare_server_needs_six_with_the_choice_of_a_password_and_of_a_model(
    browser: Browser, start_server: StartServer
):
    server = start_server(PARLEY_ADMIN_PASSWORD="")
    host = ProbedHost(
        "thinks first", "ignores tools", models=["orchard-7b", "orchard-32b"]
    )
    with host.listening() as url, walking(browser, server) as walker:
        sign_in_as_printed(walker, "\n".join(server.banner))
        walker.click(walker.page.get_by_role("link", name="Add a provider"))
        fill_in_provider(walker, url)
        walker.page.get_by_label("orchard-32b").check()
        walker.click(walker.page.get_by_role("button", name="open the chat"))
        ask(walker)
        assert walker.interactions <= MOST
    assert host.requests[-1]["model"] == "orchard-32b"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_of_a_hosts_models_has_no_faults(walker: Walker, theme: Any):
    page = walker.page
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    host = ProbedHost("ignores tools", models=["orchard-7b", "orchard-32b"])
    with host.listening() as url:
        sign_in(walker)
        page.goto("/admin/llm/provider/add/")
        fill_in_provider(walker, url)
        assert faults_on_all_screens(page) == []
        page.get_by_label("orchard-32b").check()
        page.get_by_role("button", name="switch new models on").click()
        host.models = ["orchard-7b", "orchard-90b"]
        page.get_by_role("link", name="Workshop").click()
        page.get_by_role("button", name="Save and choose models").click()
        expect(page.get_by_role("heading", name="New (2)")).to_be_visible()
        expect(page.get_by_role("heading", name="No longer listed (1)")).to_be_visible()
        expect(page.get_by_role("button", name="open the chat")).to_have_count(0)
        assert faults_on_all_screens(page) == []


def faults_on_all_screens(page: Page) -> list[str]:
    found: list[str] = []
    for screen in (PHONE, DESKTOP):
        page.set_viewport_size(cast(Any, screen["viewport"]))
        found += find_faults(page, preload=False)
    return found


def test_the_first_steps_lead_to_the_provider_and_tick_themselves(walker: Walker):
    page = walker.page
    with ProbedHost("ignores tools", models=["orchard-7b"]).listening() as url:
        page.goto("/admin/")
        sign_in(walker)
        step = page.locator(".first-steps li").filter(has_text="Provider")
        expect(step).to_contain_text("There is only the demo")
        walker.click(step.get_by_role("link"))
        fill_in_provider(walker, url)
        page.goto("/admin/")
        expect(step).to_contain_text("Workshop was not probed yet.")
        walker.click(step.get_by_role("link"))
        walker.click(page.get_by_role("button", name="Probe"))
        expect(page.get_by_text("The answer came")).to_be_visible()
        page.goto("/admin/")
        expect(step).to_contain_text("Done:")
    assert walker.interactions <= MOST
