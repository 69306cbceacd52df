"""Each page of the staff console, opened by staff, with its main act."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.screenshots import show_differences
from tests.integration.accessibility.site import DESKTOP, Site, show, start_site
from tests.integration.browser.test_chat import browser, watched
from tests.llm.probing.host import ProbedHost

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(
    browser: Browser, migrated_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    site = start_site(browser, migrated_data, tmp_path_factory.mktemp("staff"))
    yield site
    site.server.kill()


@pytest.fixture
def page(site: Site) -> Iterator[Page]:
    with site.context("admin", **DESKTOP) as context:
        yield watched(context, site.server.url, faults := [])
    assert faults == []


def test_the_board_shows_processes_and_sets_a_banner(site: Site, page: Page):
    show(page, "admin board", site.paths["admin board"])
    expect(page.get_by_role("cell", name="runs turns").first).to_be_visible()
    page.get_by_label("Banner").fill("Back at noon")
    page.get_by_role("button", name="Save").click()
    page.goto("/")
    expect(page.get_by_text("Back at noon")).to_be_visible()


def test_the_timeline_leads_to_a_call_and_to_the_events(site: Site, page: Page):
    show(page, "admin turn", site.paths["admin turn"])
    expect(page.get_by_role("heading", name="Where 7.4 s went")).to_be_visible()
    page.get_by_role("link", name="find_events").first.click()
    expect(page.locator(".timeline li:target")).to_contain_text("did not answer")
    page.get_by_role("link", name="Events", exact=True).click()
    page.get_by_label("Number or position").fill("2")
    page.get_by_role("button", name="Go").click()
    expect(page.locator("#event-2 details")).to_have_attribute("open", "")


def test_a_replay_is_started_and_another_one_compared(site: Site, page: Page):
    show(page, "admin turn", site.paths["admin turn"])
    page.get_by_role("link", name="Replay", exact=True).click()
    page.get_by_label("Name:").fill("In one sentence")
    page.get_by_label("Instructions:").fill("Answer in one sentence.")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="In one sentence")).to_be_visible()
    show(page, "admin replayed turn", site.paths["admin replayed turn"])
    expect(page.locator(".tool-diff ins")).to_have_text(
        "+ North leads, with 1,200 sold."
    )


def test_a_replayed_call_without_spaces_fits_a_phone(site: Site):
    with site.context("admin", viewport={"width": 390, "height": 844}) as context:
        page = context.new_page()
        page.goto(site.paths["admin replayed turn"])
        calls = page.locator(".replay-columns ul").first
        long = f"<li class='tool-code'>lookup({'x' * 400})</li>"
        calls.evaluate("(node, html) => { node.innerHTML = html }", long)
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_probe_shows_what_the_host_cannot_do(site: Site, page: Page):
    with ProbedHost("ignores tools").listening() as url:
        show(page, "admin provider", site.paths["admin provider"])
        page.locator("#id_base_url").fill(url)
        page.locator("#id_keys-0-secret").fill("wk-another-0123456789")
        page.get_by_role("button", name="Save and continue editing").click()
        expect(page.get_by_text("was changed successfully")).to_be_visible()
        page.get_by_role("link", name="Probe", exact=True).click()
        page.get_by_role("button", name="Probe").click()
        tool = page.get_by_role("row").filter(has=page.get_by_text("Tool", exact=True))
        expect(tool).to_contain_text("does not work")


def test_a_key_is_rotated(site: Site, page: Page):
    show(page, "admin rotation", site.paths["admin rotation"])
    page.locator("#id_secret").fill("wk-next-0123456789")
    page.get_by_role("button", name="Rotate").click()
    show(page, "admin provider", site.paths["admin provider"])
    # Three keys, and the row that a further one is made from.
    expect(page.get_by_label("Expires at Date", exact=True)).to_have_count(4)


def test_the_statistics_of_tools_have_periods(site: Site, page: Page):
    show(page, "admin tool statistics", site.paths["admin tool statistics"])
    failed = page.get_by_role("row").filter(has_text="find_events")
    expect(failed).to_contain_text("100 %")
    page.get_by_role("link", name="24 hours").click()
    expect(failed).to_contain_text("2.398 s")


def test_a_changed_configuration_is_compared_and_applied(site: Site, page: Page):
    show(page, "admin configuration", site.paths["admin configuration"])
    show_differences(page)
    expect(page.locator(".tool-diff ins")).to_contain_text("GPT-5 small")
    page.get_by_role("button", name="Apply these changes").click()
    expect(page.get_by_text("1 change was made.")).to_be_visible()


def test_a_tool_runs_dry(site: Site, page: Page):
    show(page, "admin dry run", site.paths["admin dry run"])
    page.get_by_label("Arguments").fill('{"expression": "6 * 7"}')
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#content-main, #content")).to_contain_text("42")


def test_the_first_steps_explain_a_backup(site: Site, page: Page):
    show(page, "admin", site.paths["admin"])
    page.get_by_role("link", name="How to make one").click()
    section = page.locator("#step-backup:target")
    expect(section).to_contain_text("backup /backup")
    site.server.manage("backup", "--noted")
    page.reload()
    expect(section).to_contain_text("The last one was made on")


def test_the_admin_becomes_read_only_and_opens_again(site: Site, page: Page):
    show(page, "admin board", site.paths["admin board"])
    page.get_by_label("Read-only admin").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The admin is read-only")).to_be_visible()
    try:
        page.goto(site.paths["admin provider"])
        expect(page.get_by_role("button", name="Save")).to_have_count(0)
        expect(page.get_by_role("link", name="Delete")).to_have_count(0)
        page.goto("/admin/llm/languagemodel/")
        expect(page.get_by_label("Action:")).to_have_count(0)
    finally:
        page.get_by_role("link", name="End this").click()
        page.get_by_label("Read-only admin").uncheck()
        page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The admin is read-only")).to_have_count(0)
    page.goto(site.paths["admin provider"])
    expect(page.get_by_role("button", name="Save", exact=True)).to_be_visible()


def test_staff_ask_whether_a_request_would_pass(site: Site, page: Page):
    page.goto("/admin/usage/")
    page.get_by_role("link", name="Would a request pass?").click()
    page.get_by_label("User:").fill("admin")
    page.get_by_label("Model:").fill("gpt-5")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="It would pass")).to_be_visible()
    expect(page.get_by_text("Models that would answer")).to_be_visible()
    page.get_by_label("Model:").fill("gpt-99")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="It would be refused")).to_be_visible()
    row = page.get_by_role("row", name="Model ✗")
    expect(row).to_contain_text("There is no model 'gpt-99'")


def test_a_provider_shows_its_use_and_usage_its_conversations(site: Site, page: Page):
    page.goto("/admin/llm/provider/")
    page.get_by_role("link", name="Openai", exact=True).click()
    expect(page.get_by_role("img", name="30 days:")).to_be_visible()
    page.get_by_role("link", name="30 days:").click()
    page.get_by_label("by", exact=True).select_option("conversation")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("row", name="mateo: Minutes of the board")).to_be_visible()
    page.get_by_role("link", name="mateo: Minutes of the board").click()
    expect(page.get_by_role("heading", name="Change conversation")).to_be_visible()
