"""The admin's pages of models in a browser: a test prompt, a path, a capability."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.integration.accessibility.checks import find_faults
from tests.llm.probing.host import ProbedHost
from tests.serving import PASSWORD, PATIENCE, ServerProcess

pytestmark = pytest.mark.browser

_ROWS = """
from llm.models import Provider
demo = Provider.objects.get(kind="demo")
first = demo.models.create(name="demo-fast", alias="fast")
first.fallbacks.add(demo.models.get(name="demo"))
"""
_HOST = """
from llm.models import Provider
row = Provider.objects.create(
    name="Orchard",
    kind="openai_compatible",
    base_url="{url}",
    allow_private_network=True,
)
row.keys.create(secret="ok-0123456789")
"""
LIST = "/admin/llm/languagemodel/"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("models") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    server.manage("shell", "-v0", "-c", _ROWS)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    flags = ["--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    """The list of models, as the administrator sees it."""
    with browser.new_context(base_url=server.url) as context:
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.goto(f"/admin/login/?next={LIST}")
        page.get_by_label("Username").fill("admin")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url(f"**{LIST}")
        yield page


@pytest.mark.slow
def test_two_models_answer_a_test_prompt_side_by_side(page: Page):
    page.get_by_role("link", name="Test prompt").click()
    page.get_by_label("Models").select_option(index=[0, 1])
    page.get_by_label("Prompt").fill("Hello there")
    page.get_by_role("button", name="Send").click()
    answers = page.locator("section.module")
    expect(answers).to_have_count(2)
    for number in range(2):
        expect(answers.nth(number)).to_contain_text("completed")
        expect(answers.nth(number).locator(".tool-text")).not_to_be_empty()


@pytest.mark.slow
def test_the_path_leads_from_the_name_to_the_fallback(page: Page):
    page.get_by_role("link", name="Fallback paths").click()
    boxes = page.locator(".model-path li")
    expect(boxes).to_have_count(3)
    places = [boxes.nth(number).bounding_box() for number in range(3)]
    lefts = [place["x"] for place in places if place]
    assert lefts == sorted(lefts)
    expect(boxes.last).to_contain_text("fallback 1")


@pytest.mark.slow
def test_a_capability_is_overridden_and_returns_to_its_default(page: Page):
    page.get_by_role("link", name="demo-fast").first.click()
    page.get_by_role("link", name="Capabilities").click()
    row = page.get_by_role("row").filter(has_text="vision")
    row.get_by_label("Value of vision as JSON").fill("false")
    row.get_by_role("button", name="Override").click()
    expect(row).to_contain_text("overridden by staff")
    row.get_by_role("button", name="Return to").click()
    expect(row).not_to_contain_text("overridden by staff")


@pytest.mark.slow
def test_a_long_list_of_new_models_is_narrowed_and_ticked_at_once(
    page: Page, server: ServerProcess
):
    names = [f"orchard-{size}b" for size in range(60)] + ["meadow-1", "meadow-2"]
    host = ProbedHost(models=names)
    with host.listening() as url:
        server.manage("shell", "-v0", "-c", _HOST.format(url=url))
        page.goto("/admin/llm/provider/")
        page.get_by_role("row", name="Orchard").get_by_role("checkbox").check()
        page.get_by_label("Action:").select_option(label="Sync models")
        page.locator("button[name=index]").first.click()
        assert find_faults(page) == []
        page.get_by_label("Show only names with").fill("MEADOW")
        page.get_by_label("Tick all that are shown").check()
        expect(page.locator("input[name=new]:checked")).to_have_count(2)
        page.get_by_label("Show only names with").fill("")
        expect(page.get_by_label("Tick all that are shown")).not_to_be_checked()
        page.get_by_role("button", name="Apply the selection", exact=True).click()
        expect(page.get_by_text("2 added, 0 changed")).to_be_visible()
