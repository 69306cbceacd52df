"""The main acts of the staff console's smaller pages, in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.accessibility.checks import find_faults
from tests.integration.browser.test_chat import browser, session
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_ROWS = """
from conversations.models.preset import ContextSource
from llm.models import Provider
ContextSource.objects.create(
    name="rules", title="House rules", kind="text", text="Prices are in zloty.")
host = Provider.objects.create(name="Rack 3", kind="ollama")
for number in range(3):
    host.keys.create(label=f"key {number}", secret=f"sk-{number}")
for name in ("gemma-4", "qwen-9"):
    host.models.create(name=name)
"""
WEATHER = json.dumps(
    {
        "openapi": "3.0.0",
        "info": {"title": "Weather", "version": "1"},
        "servers": [{"url": "https://weather.example/v1"}],
        "paths": {
            "/rain/{town}": {
                "get": {
                    "operationId": "rain_tomorrow",
                    "summary": "How much rain falls tomorrow",
                    "parameters": [
                        {
                            "name": "town",
                            "in": "path",
                            "required": True,
                            "schema": {"type": "string"},
                        }
                    ],
                    "responses": {"200": {"description": "Millimetres"}},
                }
            }
        },
    }
)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("console") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    server.manage("shell", "-v0", "-c", _ROWS)
    yield server
    server.kill()


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with browser.new_context(
        base_url=server.url,
        storage_state=session(browser, server),
        viewport={"width": 1280, "height": 900},
    ) as context:
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda exc: faults.append(str(exc)))
        yield page
    assert faults == []


def select(page: Page, *names: str) -> None:
    for name in names:
        row = page.get_by_role("row").filter(has_text=name)
        row.locator("input.action-select").check()


def run(page: Page, action: str) -> None:
    page.get_by_label("Action:").select_option(label=action)
    page.get_by_role("button", name="Run").or_(
        page.get_by_role("button", name="Go")
    ).first.click()


def test_tools_are_imported_from_a_document(page: Page):
    page.goto("/admin/tools/tool/")
    page.get_by_role("link", name="Import from OpenAPI").click()
    page.get_by_label("Or paste its text").fill(WEATHER)
    page.get_by_role("button", name="Read").click()
    page.get_by_role("checkbox", name="GET /rain/{town}").check()
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text("1 tool imported. It is switched off")).to_be_visible()
    expect(page.get_by_role("link", name="rain_tomorrow")).to_be_visible()


def test_a_tools_versions_are_compared_and_an_older_one_is_restored(page: Page):
    page.goto("/admin/tools/tool/")
    page.get_by_role("link", name="calculator", exact=True).click()
    address = page.url
    for label in ("Sums", "Accounts"):
        page.goto(address)
        page.get_by_label("Label:").fill(label)
        page.get_by_role("button", name="Save", exact=True).click()
    page.goto(address)
    page.get_by_role("link", name="Versions", exact=True).click()
    page.get_by_label("Compare from version 2").check()
    page.get_by_label("Compare to version 3").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".tool-diff ins")).to_contain_text("Accounts")
    page.get_by_role("button", name="Restore version 2").click()
    expect(page.get_by_text("Version 2 is restored.")).to_be_visible()
    page.goto(address)
    expect(page.get_by_label("Label:")).to_have_value("Sums")


def test_a_context_source_is_tried(page: Page):
    page.goto("/admin/conversations/contextsource/")
    page.get_by_role("link", name="rules", exact=True).click()
    page.get_by_role("link", name="Try", exact=True).click()
    page.get_by_role("button", name="Try").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("Prices are in zloty.")
    expect(result).to_contain_text("20 bytes")


def test_several_keys_are_disabled_after_a_question(page: Page):
    page.goto("/admin/llm/apikey/?q=Rack")
    select(page, "key 0", "key 2")
    run(page, "Disable the selected keys…")
    expect(page.get_by_text("2 selected rows")).to_be_visible()
    assert find_faults(page) == []
    page.get_by_role("link", name="No, take me back").click()
    expect(page.get_by_role("row").filter(has_text="key 0")).to_contain_text("active")
    page.goto("/admin/llm/apikey/?q=Rack")
    select(page, "key 0", "key 2")
    run(page, "Disable the selected keys…")
    page.get_by_role("button", name="Yes, I’m sure").click()
    expect(page.get_by_text("2 keys disabled.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="key 0")).to_contain_text("disabled")
    expect(page.get_by_role("row").filter(has_text="key 1")).to_contain_text("active")


def test_models_get_aliases_on_a_page_that_everybody_can_use(page: Page):
    page.goto("/admin/llm/languagemodel/?q=Rack")
    select(page, "gemma-4", "qwen-9")
    run(page, "Set or remove aliases…")
    assert find_faults(page) == []
    page.get_by_label("Rack 3/gemma-4").fill("small one")
    page.get_by_label("Rack 3/qwen-9").fill("large")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("cannot contain spaces")).to_be_visible()
    assert find_faults(page) == []
    page.get_by_label("Rack 3/gemma-4").fill("small")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Aliases of 2 models changed.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="qwen-9")).to_contain_text("large")


def test_a_test_prompt_is_answered_while_the_page_looks_on(page: Page):
    page.goto("/admin/llm/languagemodel/")
    page.get_by_role("link", name="Test prompt").click()
    models = page.get_by_label("Models")
    demo = models.locator("option").filter(has_text=re.compile("demo$"))
    models.select_option(value=demo.get_attribute("value"))
    page.get_by_label("Prompt").fill("/echo Hello from the console")
    page.get_by_role("button", name="Send").click()
    answer = page.locator("section.module").first
    expect(answer).to_contain_text("completed")
    expect(answer.locator("p.tool-text")).to_contain_text("Hello from the console")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert find_faults(page) == []
    page.get_by_role("button", name="Delete this test").click()
    expect(page.get_by_role("heading", name="Answers")).to_have_count(0)
