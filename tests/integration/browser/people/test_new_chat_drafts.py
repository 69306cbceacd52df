"""What is chosen for a new chat outlives a reload, for its author alone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.conversations.files import PNG
from tests.integration.browser.people.test_account import (
    expect_drafts,
    sign_in,
    sign_out,
    site,
)
from tests.integration.browser.test_chat import browser
from tests.serving import ServerProcess

__all__ = ["browser", "site"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FILES = [
    {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"Dig a tunnel."},
    {"name": "dot.png", "mimeType": "image/png", "buffer": PNG},
]
STORED = """() => new Promise((resolve) => {
  const opening = indexedDB.open("parley", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("files");
  opening.onsuccess = () => {
    const files = opening.result.transaction("files").objectStore("files");
    files.count().onsuccess = ({ target }) => {
      opening.result.close();
      resolve(target.result);
    };
  };
})"""


def expect_stored(page: Page, count: int) -> None:
    page.wait_for_function(f"async (count) => await ({STORED})() === count", arg=count)


def create_folder(site: ServerProcess, name: str) -> str:
    """The id of a new folder of the administrator's."""
    make = "from conversations.models import Folder; from django.contrib.auth.models"
    make += " import User; f = Folder(owner=User.objects.get(username='admin'));"
    make += f" f.name = {name!r}; f.save(); print(f.pk)"
    return site.manage("shell", "-v0", "-c", make).strip()


def create_prompt(site: ServerProcess) -> str:
    """The id of a new saved prompt of the administrator's."""
    make = "from conversations.models import SavedPrompt; from django.contrib.auth"
    make += ".models import User; p = SavedPrompt(owner=User.objects.get(username="
    make += "'admin'), name='sum', text='Summarise this'); p.save(); print(p.pk)"
    return site.manage("shell", "-v0", "-c", make).strip()


@pytest.fixture
def page(browser: Any, site: ServerProcess) -> Any:
    context = browser.new_context(base_url=site.url)
    yield context.new_page()
    context.close()


def test_choices_of_a_new_chat_outlive_a_reload(page: Page, site: ServerProcess):
    sign_in(page, "admin")
    page.goto(f"/?folder={create_folder(site, 'Choices')}")
    page.locator("#tools summary").click()
    tool = page.locator("#tools [name=tool]").first
    tool.uncheck()
    in_use = page.locator("#tools [data-slot=count]").inner_text()
    page.locator("#tools summary").click()
    page.locator(".new-options summary").click()
    effort = page.get_by_label("Effort of thinking")
    effort.select_option("high")
    page.reload()  # without a text or a file
    expect(tool).not_to_be_checked()
    expect(page.locator("#tools [data-slot=count]")).to_have_text(in_use)
    expect(effort).to_have_value("high")

    page.context.clear_cookies()  # the session is over without a sign-out
    sign_in(page, "grace")
    expect(effort).to_have_value("")


def test_files_of_a_new_chat_outlive_a_reload(page: Page, site: ServerProcess):
    sign_in(page, "admin")
    folder = create_folder(site, "Files")
    page.goto(f"/?folder={folder}")
    page.locator("#file").set_input_files(FILES)
    names = page.locator(".attached-file [data-slot=name]")
    expect_stored(page, 2)
    page.reload()
    expect(names).to_have_text(["plan.txt", "dot.png"])
    expect(page.locator(".attached-file canvas")).to_be_visible()
    page.get_by_role("button", name="Remove dot.png").click()
    expect_stored(page, 1)
    page.reload()
    expect(names).to_have_text(["plan.txt"])
    page.goto(f"/settings/prompts/{create_prompt(site)}/use/")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Summarise this")
    expect(page.locator("#composer[data-scripted]")).to_be_visible()
    expect(names).to_have_count(0)
    page.goto(f"/?folder={folder}")
    expect(names).to_have_text(["plan.txt"])


def test_files_of_a_new_chat_are_those_of_one_user(page: Page, site: ServerProcess):
    sign_in(page, "admin")
    names = page.locator(".attached-file [data-slot=name]")
    page.locator("#file").set_input_files(FILES[:1])
    expect_stored(page, 1)
    page.locator("#tools summary").click()
    tool = page.locator("#tools [name=tool]").first
    tool.uncheck()

    page.context.clear_cookies()  # the session is over without a sign-out
    sign_in(page, "grace")
    expect(names).to_have_count(0)
    expect_stored(page, 1)
    page.locator("#file").set_input_files(FILES)
    expect_stored(page, 3)
    forget = "localStorage.removeItem(sessionStorage.getItem("
    forget += "`parley:draft:${document.body.dataset.user}:new`))"
    page.evaluate(forget)  # as a page that is left between the draft and its files
    sign_out(page)
    expect_stored(page, 1)
    sign_in(page, "admin")
    expect(names).to_have_text(["plan.txt"])
    page.get_by_label("Message", exact=True).fill("/echo Read it")
    page.get_by_role("button", name="Send", exact=True).click()
    page.wait_for_url("**/chat/*/**")
    expect(page.locator(".asked").get_by_text("plan.txt")).to_be_visible()
    expect_drafts(page, 0)
    expect_stored(page, 0)
    page.goto("/")
    expect(names).to_have_count(0)
    expect(tool).to_be_checked()
