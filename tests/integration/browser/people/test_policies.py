"""Rules of the staff console in a real browser: audit log, limits of use, identity
providers, legal holds, retention, erasure and the reason for reading."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.accessibility.checks import find_faults
from tests.integration.browser.staff.test_console_acts import run
from tests.integration.browser.test_chat import begin_session, browser
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_ROWS = """
from django.contrib.auth.models import Group, User
from conversations.models import Conversation
Group.objects.create(name="Night shift")
for name in ("rhea", "tomasz"):
    owner = User.objects.create_user(name)
    Conversation.objects.create(owner=owner, title=f"Of {name}")
"""
_KEY = """
from django.contrib.auth.models import User
print(User.objects.get(username="tomasz").pk)
"""


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("policies") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    server.manage("shell", "-v0", "-c", _ROWS)
    yield server
    server.kill()


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with browser.new_context(
        base_url=server.url,
        storage_state=begin_session(browser, server, "admin"),
        viewport={"width": 1280, "height": 900},
    ) as context:
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda exc: faults.append(str(exc)))
        yield page
    assert faults == []


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()


def choose(page: Page, field: str, name: str) -> None:
    """By the search of an autocomplete field."""
    page.locator(f"#id_{field} + .select2").click()
    page.locator(".select2-search__field").last.fill(name)
    page.get_by_role("option", name=name, exact=True).click()


def test_staff_filter_the_audit_log_and_export_what_they_see(page: Page):
    page.goto("/admin/audit/auditevent/")
    expect(page.get_by_role("columnheader", name="Concerned user")).to_be_visible()
    page.get_by_role("link", name="signed in", exact=True).last.click()
    rows = page.locator("#result_list tbody tr")
    expect(rows.filter(has_text="admin").first).to_be_visible()
    expect(rows.filter(has_text="user: added")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export these events").click()
    lines = download.value.path().read_text().splitlines()
    assert {json.loads(line)["action"] for line in lines} == {"sign_in"}
    page.goto("/admin/audit/auditevent/?action=log.export")
    page.locator("#result_list tbody a").first.click()
    expect(page.locator("#content")).to_contain_text("action=sign_in")
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    assert find_faults(page) == []


def test_a_limit_is_set_and_raised_for_a_time_with_a_reason(page: Page):
    page.goto("/admin/conversations/usagelimit/add/")
    assert find_faults(page) == []
    save(page)
    expect(page.get_by_text("Enter at least one amount.")).to_be_visible()
    choose(page, "user", "rhea")
    page.get_by_label("Cost in USD").fill("2.5")
    save(page)
    row = page.get_by_role("row").filter(has_text="rhea")
    expect(row).to_contain_text("$2.5")
    page.goto("/admin/conversations/limitraise/add/")
    choose(page, "user", "rhea")
    page.get_by_label("Tokens").fill("1000000")
    page.get_by_label("Reason").fill("Year's end")
    page.get_by_label("Date").fill("2099-12-31")
    page.get_by_label("Time").fill("12:00")
    save(page)
    row = page.get_by_role("row").filter(has_text="Year's end")
    expect(row).to_contain_text("1,000,000 tokens")
    expect(row.locator(".field-granted_by")).to_have_text("admin")
    row.get_by_role("link").click()
    expect(page.locator("#id_tokens")).to_have_count(0)  # only its end is changed
    expect(page.get_by_label("Date")).to_have_value("2099-12-31")


def test_an_identity_provider_is_entered_and_offered_at_the_sign_in(
    page: Page, browser: Browser, server: ServerProcess
):
    secret = "kc-planted-0123456789"
    page.goto("/admin/accounts/identityprovider/add/")
    page.get_by_label("Kind").select_option("keycloak")
    page.get_by_label("Short name").fill("orchard")
    page.get_by_label("Label").fill("Orchard account")
    page.get_by_label("Issuer").fill("https://login.example.org/realms/orchard")
    page.get_by_label("Client ID").fill("parley")
    page.get_by_label("Client secret").fill(secret)
    page.get_by_role("button", name="Save and continue editing").click()
    address = page.locator(".field-callback")
    expect(address).to_contain_text("/sso/oidc/orchard/login/callback/")
    assert secret not in page.content()
    with browser.new_context(base_url=server.url) as context:
        visitor = context.new_page()
        visitor.goto("/login/")
        offered = visitor.get_by_text("Continue with Orchard account")
        expect(offered).to_be_visible()
        page.get_by_label("Enabled").uncheck()
        save(page)
        visitor.reload()
        expect(visitor.get_by_label("Username")).to_be_visible()
        expect(offered).to_have_count(0)


def test_a_hold_stops_an_erasure_until_it_is_lifted(page: Page, server: ServerProcess):
    found = server.manage("shell", "-v0", "-c", _KEY)
    page.goto("/admin/conversations/legalhold/add/")
    page.get_by_label("User").fill(found.split()[-1])
    page.get_by_label("Reason").fill("Case 4711")
    save(page)
    held = page.get_by_role("row").filter(has_text="everything of tomasz")
    expect(held).to_contain_text("Case 4711")
    erase(page, "tomasz")
    expect(page.get_by_text("under a legal hold")).to_be_visible()
    page.goto("/admin/conversations/legalhold/")
    held.locator("input.action-select").check()
    run(page, "Lift the selected holds…")
    assert find_faults(page) == []
    page.get_by_label("Reason").fill("Case 4711 is closed")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("1 hold lifted.")).to_be_visible()
    erase(page, "tomasz")
    expect(page.get_by_text("1 user erased")).to_be_visible()
    page.goto("/admin/auth/user/?q=tomasz")
    expect(page.get_by_role("link", name="tomasz")).to_have_count(0)


def erase(page: Page, name: str) -> None:
    page.goto(f"/admin/auth/user/?q={name}")
    page.locator("input.action-select").check()
    run(page, "Erase the selected users…")
    expect(page.get_by_text("It cannot be undone")).to_be_visible()
    assert find_faults(page) == []
    page.get_by_label("Reason").fill("Asked for it in ticket 12")
    page.get_by_role("button", name="Apply").click()


def test_a_group_has_a_rule_of_retention(page: Page):
    page.goto("/admin/conversations/retentionrule/add/")
    page.get_by_label("Group").select_option(label="Night shift")
    page.get_by_label("Days").fill("30")
    save(page)
    row = page.get_by_role("row").filter(has_text="Night shift")
    expect(row).to_contain_text("after 30 days in which nothing happened")


def test_staff_say_once_why_they_read_a_conversation(page: Page):
    page.goto("/admin/conversations/conversation/?q=rhea")
    page.get_by_role("link", name="Of rhea").click()
    expect(page.get_by_role("heading", name="Why do you read this?")).to_be_visible()
    assert find_faults(page) == []
    page.get_by_label("Reason").fill("Ticket 4711")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="Of rhea")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Of rhea")).to_be_visible()
    page.goto("/admin/audit/auditevent/?action=content.read")
    page.locator("#result_list tbody a").first.click()
    expect(page.locator("#content")).to_contain_text("Ticket 4711")
    expect(page.locator("#content")).not_to_contain_text("Of rhea")
