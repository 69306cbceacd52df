"""The page behind a live link, while the conversation goes on, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import (
    browser,
    chat_address,
    expect_end,
    last,
    send_message,
    signed_in,
    watched,
)
from tests.integration.browser.thinking_host import ROWS, ThinkingHost
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

END = """
from datetime import timedelta
from django.utils import timezone
from conversations.models import ShareLink
links = ShareLink.objects.filter(conversation="{chat}")
links.update(expires_at=timezone.now() - timedelta(seconds=1))
"""


@dataclass
class Scene:
    """A conversation with one answer, and a stranger who reads it behind a link."""

    writer: Page
    reader: Page
    host: ThinkingHost
    server: ServerProcess
    faults: list[str]


def share(page: Page, kind: str, *shown: str) -> str:
    """The address of a new public link to the open chat."""
    address = chat_address(page)
    page.goto(address.rstrip("/") + "/share/")
    page.get_by_label("everybody who has the link").check()
    page.get_by_label(kind).check()
    for label in shown:
        page.get_by_label(label).check()
    page.get_by_role("button", name="Create the link").click()
    link = page.locator(".secret code").inner_text()
    page.goto(address)
    return link


@pytest.fixture(scope="module")
def module_host() -> Iterator[ThinkingHost]:
    with ThinkingHost() as host:
        yield host


@pytest.fixture(scope="module")
def site(start_module_server: StartServer, module_host: ThinkingHost) -> ServerProcess:
    """A server on which each test has a chat and a link of its own."""
    server = start_module_server(SHARE_LINKS="public")
    rows = ROWS.replace("{url}", module_host.url)
    server.manage("shell", "--no-imports", "-c", rows)
    return server


@pytest.fixture
def scene(
    browser: Browser, site: ServerProcess, module_host: ThinkingHost
) -> Iterator[Scene]:
    module_host.begin_anew()
    with signed_in(browser, site) as context:
        faults: list[str] = []
        writer = watched(context, site.url, faults)
        writer.goto("/")
        send_message(writer, "begin")
        expect_end(writer)
        stranger = browser.new_context(base_url=site.url)
        reader = watched(stranger, site.url, faults)
        yield Scene(writer, reader, module_host, site, faults)
        stranger.close()
    module_host.go_on.set()  # what a test has not let end


def test_what_follows_appears_as_the_link_shows_it(scene: Scene):
    writer, reader = scene.writer, scene.reader
    reader.goto(share(writer, "also what follows"))
    expect(reader.locator(".turn")).to_have_count(1)
    reader.evaluate("document.querySelector('.turn').dataset.mark = 1")
    send_message(writer, "hold it at length 30")
    expect(last(reader).locator(".asked-text")).to_have_text("hold it at length 30")
    expect(last(reader).locator(".said")).to_contain_text("-2")  # its partial words
    expect(last(reader)).to_contain_text("Answering…")
    assert "-" in last(reader).locator(".said").inner_text()
    scene.host.go_on.set()
    expect_end(writer)
    expect(last(reader)).not_to_contain_text("Answering…")
    text = last(writer).locator(".said").inner_text()
    expect(last(reader).locator(".said")).to_have_text(text)
    # What did not change stays, and thoughts, which the link does not show, stay away.
    expect(reader.locator(".turn").first).to_have_attribute("data-mark", "1")
    assert "Let me think" not in reader.content()
    assert scene.faults == []


#: Counts how often the code and the formula that are shown now leave the page.
COUNT_LOST = """() => {
  window.lost = 0;
  const shown = [...document.querySelectorAll(".turn:last-child :is(.math, .code)")];
  new MutationObserver((records) => {
    for (const node of records.flatMap((record) => [...record.removedNodes])) {
      lost += shown.filter((each) => node.contains(each)).length;
    }
  }).observe(document.querySelector("#transcript"), { childList: true, subtree: true });
  return shown.length;
}"""
SAID = """spell First $a^2 + b^2$, then

```python
print("one")
```

{words}

```mermaid
graph TD; A-->B
```

At last $c_1$ and **done**."""


def test_code_and_formulas_stay_while_the_answer_grows(scene: Scene):
    writer, reader = scene.writer, scene.reader
    scene.host.pause = 0.02
    reader.goto(share(writer, "also what follows"))
    expect(reader.locator(".turn")).to_have_count(1)
    words = " ".join(f"word-{number}" for number in range(700))
    send_message(writer, SAID.format(words=words))
    shown = last(reader).locator(".answer")
    shown.locator(".math").scroll_into_view_if_needed()
    expect(shown.locator(".math.is-typeset")).to_have_count(1)
    expect(shown.locator(".code-head [data-copy]")).to_have_count(1)
    assert reader.evaluate(COUNT_LOST) == 2
    assert "word-699" not in shown.inner_text()
    expect_end(writer)
    expect(last(reader)).not_to_contain_text("Answering…")
    shown.locator(".math").last.scroll_into_view_if_needed()
    expect(shown.locator(".math").last).to_have_class(re.compile("is-typeset"))
    expect(shown.locator("figure")).to_have_count(1)  # the diagram is drawn
    expect(shown.locator(".code-head [data-copy]")).to_have_count(2)
    expect(shown.locator("strong")).to_have_text("done")
    assert shown.inner_text().count("word-") == 700
    assert reader.evaluate("lost") == 0
    assert scene.faults == []


def test_code_that_grows_stays_as_its_reader_wants_it(scene: Scene):
    writer, reader = scene.writer, scene.reader
    reader.goto(share(writer, "also what follows"))
    expect(reader.locator(".turn")).to_have_count(1)
    scene.host.pause = 0.02
    words = " ".join(f"word-{number}" for number in range(500))
    send_message(writer, f"spell ```python\n# {words}\n```\nDone")
    wrap = last(reader).get_by_role("button", name="Wrap")
    wrap.click()
    assert "word-499" not in last(reader).locator("code").inner_text()
    expect(last(reader).locator("code")).to_contain_text("word-499")
    expect(last(reader)).not_to_contain_text("Answering…")
    expect(last(reader).locator(".said")).to_contain_text("Done")
    expect(wrap).to_have_attribute("aria-pressed", "true")
    expect(wrap).to_be_focused()
    expect(last(reader).locator(".code")).to_have_class(re.compile("is-wrapped"))
    assert scene.faults == []


def test_a_call_and_a_title_appear_and_what_was_opened_stays_open(scene: Scene):
    writer, reader = scene.writer, scene.reader
    link = share(
        writer, "also what follows", "results of tools", "the model's thoughts"
    )
    reader.goto(link)
    send_message(writer, "calculate 6 * 7; 6 * 8")
    card = last(reader).locator(".called").first
    expect(card).to_contain_text("calculator")
    card.locator("summary").click()
    expect(card).to_contain_text("42")
    expect_end(writer)
    expect(last(reader).locator(".said")).to_contain_text("-3")
    send_message(writer, "and on")
    expect(reader.locator(".turn")).to_have_count(3)
    expect(reader.locator(".called").first).to_have_attribute("open", "")
    row = writer.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    writer.get_by_role("dialog").get_by_label("Title").fill("A title of now")
    writer.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(
        reader.get_by_role("heading", name="A title of now", level=1)
    ).to_be_visible()
    assert scene.faults == []


@pytest.mark.parametrize("ending", ["expired", "revoked"])
def test_an_open_page_ends_with_its_link(scene: Scene, ending: str):
    writer, reader = scene.writer, scene.reader
    reader.goto(share(writer, "also what follows"))
    expect(reader.locator(".turn")).to_have_count(1)
    if ending == "expired":
        chat = chat_address(writer).rstrip("/").rpartition("/")[2]
        end = END.replace("{chat}", chat)
        scene.server.manage("shell", "--no-imports", "-c", end)
    else:
        writer.goto("/shares/")
        writer.get_by_role("button", name="Revoke").first.click()  # the newest
    expect(
        reader.get_by_role("heading", name="This link does not open")
    ).to_be_visible()
    expect(reader.locator(".turn")).to_have_count(0)


def test_a_snapshot_never_shows_what_follows(scene: Scene):
    writer, reader = scene.writer, scene.reader
    link = share(writer, "what is there now")
    reader.clock.install()
    reader.goto(link)
    send_message(writer, "not for others")
    expect_end(writer)
    with reader.expect_response(lambda answered: "state=" in answered.url) as looked:
        reader.clock.fast_forward("01:00")
    assert looked.value.status == 204
    expect(reader.locator(".turn")).to_have_count(1)


def test_what_is_no_page_of_the_link_does_not_end_the_looks(scene: Scene):
    writer, reader = scene.writer, scene.reader
    reader.goto(share(writer, "also what follows"))
    portal = "<!doctype html><h1>Sign in to this network</h1>"
    looks = re.compile(r"state=")
    reader.route(
        looks, lambda route: route.fulfill(content_type="text/html", body=portal)
    )
    with reader.expect_response(looks), reader.expect_response(looks):
        pass
    expect(reader.locator(".turn")).to_have_count(1)
    reader.unroute(looks)
    send_message(writer, "and on")
    expect(reader.locator(".turn")).to_have_count(2)
    assert scene.faults == []


def test_one_look_at_a_time_however_often_the_page_is_shown(scene: Scene):
    writer, reader = scene.writer, scene.reader
    reader.goto(share(writer, "also what follows"))
    waiting_looks: list[Route] = []
    looks = re.compile(r"state=")
    reader.route(looks, lambda route: waiting_looks.append(route))
    show = "document.dispatchEvent(new Event('visibilitychange'))"
    with reader.expect_request(looks):
        reader.evaluate(show)
    reader.evaluate(show)
    reader.evaluate(show)
    send_message(writer, "and on")
    expect_end(writer)
    assert len(waiting_looks) == 1
    waiting_looks[0].continue_()
    reader.unroute(looks)
    expect(reader.locator(".turn")).to_have_count(2)
    assert scene.faults == []
