"""What a turn shows while it runs, and what a new chat begins with, in a real
browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.browser.test_chat import (
    answer,
    browser,
    expect_end,
    last,
    open_page,
    page,
    send_message,
    signed_in,
    watched,
)
from tests.serving import ServerProcess

__all__ = ["browser", "open_page", "page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Shows a turn of these events, as the page's own modules do.
SHOW = """async (events) => {
  const links = [...document.querySelectorAll("link[rel=modulepreload]")];
  const load = (name) => import(links.find(({ href }) => href.includes(name)).href);
  const { TurnView } = await load("/turn-view");
  const { apply, newTurn } = await load("/turn-state");
  const { cloned } = await load("/dom");
  const article = cloned("turn");
  document.querySelector("#transcript").append(article);
  const turn = newTurn();
  const view = new TurnView(article);
  events.forEach((event, number) => {
    apply(turn, event, `1-${number}`);
    view.update(turn);
  });
}"""
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "in_progress",
    "content": [],
}
FOUND = {"type": "url", "url": "https://a.test/cats", "title": "The Cat Times"}
PRESETS = """
from conversations.models.preset import Preset
from llm.demo.key import demo_key
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import Tool
demo = LanguageModel.objects.get(is_default=True)
provider = Provider.objects.create(name="Other", kind="demo")
ApiKey.objects.create(provider=provider, secret=demo_key())
other = LanguageModel.objects.create(
    provider=provider, name=demo.name, alias="other", label="Other"
)
desk = Preset.objects.create(name="desk", label="Help desk", language_model=other)
desk.tools.add(Tool.objects.get(name="calculator"))
"""


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def cited(index: int, **note: str) -> dict[str, Any]:
    return {
        "type": "response.output_text.annotation.added",
        "output_index": index,
        "content_index": 0,
        "annotation": {"type": "url_citation", **note},
    }


def test_a_hosted_search_is_shown_while_it_runs(page: Page):
    page.evaluate(SHOW, [added(0, SEARCH)])
    card = last(page).locator(".called")
    expect(card).to_have_attribute("data-state", "executing")
    expect(card).to_contain_text("Searched the web")
    action = {"type": "search", "query": "cat news", "sources": [FOUND]}
    whole = {**SEARCH, "status": "completed", "action": action}
    page.evaluate(SHOW, [added(0, SEARCH), done(0, whole)])
    card = last(page).locator(".called")
    expect(card).to_have_attribute("data-state", "completed")
    expect(card.locator(".called-preview")).to_have_text("cat news")
    card.locator("summary").click()
    link = card.get_by_role("link", name="The Cat Times")
    expect(link).to_have_attribute("href", "https://a.test/cats")
    assert "noopener" in (link.get_attribute("rel") or "")


def test_sources_are_named_while_the_answer_is_written(page: Page):
    notes = [
        cited(0, url="https://a.test/cats", title="The Cat Times"),
        cited(0, url="https://a.test/cats", title="The Cat Times"),
        cited(0, url="javascript:alert(1)", title="No page"),
        cited(0, url="https://b.test/", title=""),
    ]
    page.evaluate(SHOW, [added(0, MESSAGE), *notes])
    sources = last(page).get_by_role("list", name="Sources").get_by_role("link")
    expect(sources).to_have_text(["The Cat Times", "b.test"])


def test_a_reset_takes_the_sources_of_what_was_dropped_along(page: Page):
    note = cited(0, url="https://a.test/cats", title="The Cat Times")
    reset = {"type": "parley:step.reset", "output_index": 0}
    page.evaluate(SHOW, [added(0, MESSAGE), note, reset])
    expect(last(page).locator(".answer > *")).to_have_count(0)


def test_omitted_context_is_shown_once(page: Page):
    failed = {
        "type": "parley:context.failed",
        "source": "orders",
        "reason": "it failed: OSError.",
    }
    page.evaluate(SHOW, [{"type": "response.created"}, failed, failed])
    expect(last(page).locator(".degraded")).to_have_text(
        ["Answered without the context “orders”: it failed: OSError."]
    )


def test_a_preset_brings_its_model_and_its_tools(
    browser: Browser, server: ServerProcess
):
    server.manage("shell", "--no-imports", "-c", PRESETS)
    with signed_in(browser, server) as context:
        page = watched(context, server.url, faults := [])
        page.goto("/")
        expect(page.get_by_role("radio", name="No preset")).to_be_checked()
        expect(page.locator(".tools-count")).to_have_text("3")
        page.get_by_role("radio", name="Help desk").check()
        expect(page.locator(".tools-count")).to_have_text("1")
        expect(page.locator("#model option:checked")).to_contain_text("(usual)")
        send_message(page, "/tool weather_demo {}")
        expect_end(page)
        expect(last(page)).to_contain_text("I was not offered that tool")
        expect(page.locator(".preset-name")).to_contain_text("Help desk")
        expect(page.locator("#model")).to_have_value("other")
        assert faults == []


def test_the_menu_opens_and_closes(page: Page):
    page.locator(".user-menu summary").click()
    expect(page.get_by_role("link", name="Settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Settings")).to_be_hidden()


def test_nothing_of_the_box_is_cut_off_on_a_phone(open_page: Any):
    page = open_page(viewport={"width": 390, "height": 844})
    page.evaluate('document.querySelector("#stop").hidden = false')
    box = page.locator("#composer").bounding_box()
    for part in page.locator(".composer-tools > :visible").all():
        inner = part.bounding_box()
        assert box["x"] <= inner["x"]
        assert inner["x"] + inner["width"] <= box["x"] + box["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_escape_closes_what_is_open_before_it_stops_the_answer(page: Page):
    send_message(page, "/echo ```html\n<h1>Rivers</h1>" + 5 * "\n<p>One</p>" + "\n```")
    expect_end(page)
    page.get_by_role("button", name="Good answer").click()
    page.get_by_role("link", name="Preview").click()
    pane = page.locator("#artifact")
    expect(pane).to_be_visible()
    send_message(page, "/long 5000")
    expect(answer(page)).to_contain_text("1 2 3")
    page.locator(".rating-comment summary").first.click()
    comment = page.locator(".rating-comment textarea").first
    comment.fill("Good, but")
    page.keyboard.press("Escape")
    expect(comment).to_be_hidden()
    expect(page.locator(".rating-comment summary").first).to_be_focused()
    expect(pane).to_be_visible()
    page.locator("#text").focus()
    page.keyboard.press("Escape")
    expect(pane).to_be_hidden()
    expect(last(page)).to_have_attribute("data-status", "in_progress")
    expect(page.locator(".progress")).not_to_contain_text("Stopping")
    page.keyboard.press("Escape")
    expect_end(page, "cancelled")


def test_a_selection_that_ends_beside_a_dialog_does_not_close_it(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    row = page.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    dialog = page.get_by_role("dialog")
    box = dialog.get_by_label("Title").bounding_box()
    assert box
    page.mouse.move(box["x"] + 40, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(5, 5)
    page.mouse.up()
    around = dialog.bounding_box()
    assert around
    page.mouse.click(around["x"] + 3, around["y"] + 3)  # its padding
    expect(dialog).to_be_visible()
    page.mouse.click(5, 5)
    expect(dialog).to_be_hidden()
