"""What a reader sees of an answer that streams, and on pages behind a link."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from conversations.pages.transcript import LATEST
from tests.integration.browser.test_chat import (
    NUMBERS,
    Open,
    answer,
    browser,
    chat_address,
    expect_end,
    last,
    open_page,
    page,
    send_message,
    signed_in,
)
from tests.serving import ServerProcess

__all__ = ["browser", "open_page", "page"]

pytestmark = pytest.mark.browser

CODE = "\n".join(
    f'def f{number}():  # it\n    return "{number}"' for number in range(30)
)
WORDS = " ".join(str(number) for number in range(NUMBERS))
SHARED = """Energy $E = mc^2$.

```mermaid
flowchart LR
  A[Ask] --> B[Done]
```

```python
x = 1
```
"""


def test_code_is_highlighted_while_it_streams(page: Page):
    send_message(page, f"/echo ```python\n{CODE}\n```\n{WORDS}")
    live = page.locator(".turn[data-status=in_progress] .said pre")
    expect(live.locator(".k").first).to_have_text("def")
    expect(live.locator(".c1").first).to_have_text("# it")
    expect(live.locator(".s2").first).to_have_text('"0"')
    expect(live.locator(".code-part").first).to_have_css("font-style", "normal")
    expect_end(page)
    assert answer(page).locator("code").first.text_content() == f"{CODE}\n"


@pytest.mark.slow
def test_a_page_behind_a_link_can_be_read_as_the_chat(open_page: Open):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    send_message(page, f"/echo {SHARED}")
    expect_end(page)
    page.goto(f"{chat_address(page)}share/")
    page.locator("[name=audience]").first.check()
    page.get_by_role("button", name="Create the link").click()
    address = page.get_by_text(re.compile(r"^http://\S+$")).first.text_content()
    page.goto(address or "")
    expect(page.locator(".katex")).to_have_count(1)
    expect(page.locator(".diagram img")).to_have_count(1)
    block = page.locator(".code", has_text="x = 1")
    block.get_by_role("button", name="Wrap").click()
    expect(block).to_have_class(re.compile("is-wrapped"))
    block.get_by_role("button", name="Copy").click()
    expect(block.locator("[data-copy]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "x = 1\n"


@pytest.mark.slow
def test_a_narrow_header_has_room_for_the_title(open_page: Open):
    page = open_page(viewport={"width": 390, "height": 844})
    send_message(page, "/echo Keeping bread fresh")
    expect_end(page)
    title = page.locator(".bar-title")
    expect(title).to_contain_text("Keeping bread fresh")
    assert title.evaluate("node => node.scrollHeight - node.clientHeight") <= 2
    expect(last(page)).to_be_visible()


@pytest.mark.slow
def test_paper_has_the_conversation_without_controls(page: Page):
    send_message(page, f"/echo {SHARED}")
    expect_end(page)
    send_message(page, "/echo Bye")
    expect_end(page)
    page.emulate_media(media="print")
    for text in ("Energy", "x = 1", "Bye"):
        expect(page.locator(".turn .answer", has_text=text)).to_be_visible()
    shown = page.locator("button:not(.diagram-open), input, select, textarea").all()
    assert [
        each.evaluate("n => n.outerHTML") for each in shown if each.is_visible()
    ] == []
    first = page.locator(".turn .answer").first
    assert first.evaluate("n => getComputedStyle(n).contentVisibility") == "visible"
    assert page.pdf()[:4] == b"%PDF"


@pytest.mark.slow
def test_nothing_moves_for_who_wants_it_so(open_page: Open):
    page = open_page(reduced_motion="reduce")
    send_message(page, f"/long {NUMBERS}")
    expect(answer(page)).to_contain_text("5 6")
    moving = """() => document.getAnimations().filter(({ effect }) => {
      const { duration, iterations } = effect.getComputedTiming();
      return duration > 1 || iterations === Infinity;
    }).length"""
    assert page.evaluate(moving) == 0
    expect_end(page)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["katex.min.js", "katex.min.css", "mermaid.min.js"])
def test_a_library_that_is_lost_once_is_loaded_again(
    browser: Browser, shared_server: ServerProcess, lost: str
):
    """Until then formulas and diagrams can be read as they are written."""
    with signed_in(browser, shared_server) as context:
        page = context.new_page()  # not watched: its console reports the lost request
        asked: list[Route] = []
        is_source_seen = False

        def lose_first(route: Route) -> None:
            asked.append(route)
            if len(asked) == 1:
                route.abort()
            elif is_source_seen:
                route.continue_()

        page.goto("/")
        send_message(page, f"/echo {SHARED}")
        expect_end(page)
        page.route(f"**/{lost}", lose_first)
        # Requests of before the load event delay it: one that is held would stop it.
        page.goto(chat_address(page), wait_until="domcontentloaded")
        source = "flowchart LR" if lost.startswith("mermaid") else "$E = mc^2$"
        expect(answer(page)).to_contain_text(source)
        is_source_seen = True
        for waiting in asked[1:]:
            waiting.continue_()
        expect(answer(page).locator(".katex")).to_have_count(1)
        expect(answer(page).locator(".diagram img")).to_have_count(1)
        expect(answer(page).locator(".diagram-error")).to_have_count(0)
        assert len(asked) == 2


def test_formulas_wait_for_a_network_that_is_away(page: Page):
    send_message(page, "/echo Hello")
    expect_end(page)
    page.context.set_offline(True)
    page.locator(".said").first.evaluate(
        """(said) => {
          const formula = document.createElement("span");
          formula.className = "math";
          formula.textContent = "$x^2$";
          said.append(formula);
        }"""
    )
    formula = page.locator(".math")
    expect(formula).to_have_attribute("data-tex", "$x^2$")
    expect(formula).to_have_text("$x^2$")
    page.context.set_offline(False)
    expect(formula.locator(".katex")).to_have_count(1)


LONG = "\n\n".join(f"Paragraph {n} of a report that goes on." for n in range(1200))

#: As a paste does: where `fill` types 2,400 lines, Chromium needs half a minute.
PASTE = """(box, text) => {
  box.setRangeText(text, 0, box.value.length, "end");
  box.dispatchEvent(new InputEvent("input", { bubbles: true }));
}"""


FAST = """
from llm.models import LanguageModel
LanguageModel.objects.filter(name="demo").update(name="demo-fast")
"""


@pytest.mark.slow
def test_a_long_answer_stays_whole_and_is_read_from_its_question_on(
    browser: Browser, server: ServerProcess
):
    server.manage("shell", "-v0", "-c", FAST)
    with signed_in(browser, server) as context:
        page = context.new_page()
        page.goto("/")
        box = page.get_by_label("Message", exact=True)
        box.evaluate(PASTE, f"/echo {LONG}")
        box.press("Enter")
        expect_end(page)
        end = page.get_by_text("Paragraph 1199 of")
        expect(answer(page).filter(has=end)).to_have_count(1)
        expect(page.locator("[data-next-part]")).to_have_count(0)
        page.goto(chat_address(page))
        expect(page.locator(".answer [data-next-part]")).to_have_count(1)
        expect(page.locator(".answer p").first).to_be_in_viewport()
        expect(page.get_by_text("Paragraph 1199 of").last).to_be_in_viewport()
        jump = page.get_by_role("link", name="Jump to latest")
        jump.click()
        expect(answer(page).filter(has=end)).to_have_count(1)


@pytest.mark.slow
def test_earlier_messages_come_when_their_reader_is_near(open_page: Open):
    page = open_page()
    send_message(page, "/echo Question 0")
    expect_end(page)
    for number in range(1, LATEST + 3):
        send_message(page, f"/echo Question {number}")
        expect_end(page)
    later = open_page(chat_address(page), viewport={"width": 1280, "height": 500})
    expect(later.locator("#transcript > .turn")).to_have_count(LATEST)
    first = later.locator("#transcript > .turn").first
    later.mouse.move(640, 200)
    before = first.evaluate("node => node.id")
    later.mouse.wheel(0, -600)
    expect(later.locator("#transcript > .turn")).to_have_count(LATEST + 3)
    assert first.evaluate("node => node.id") != before
    expect(later.locator("[data-earlier]")).to_have_count(0)
    times = later.locator("time:not([data-local])")
    expect(times).to_have_count(0)


#: Shows a text as it streams, in a turn that runs.
STREAM = """async (text) => {
  const links = [...document.querySelectorAll("link[rel=modulepreload]")];
  const { href } = links.find(({ href }) => href.includes("/markdown"));
  const { MarkdownStream } = await import(href);
  const turn = document.querySelector("#turn-template").content.cloneNode(true);
  const said = document.querySelector("#said-template").content.cloneNode(true);
  document.querySelector("#transcript").append(turn);
  const answer = [...document.querySelectorAll('[data-slot="answer"]')].at(-1);
  answer.append(said);
  const stream = new MarkdownStream(answer.querySelector(".said"));
  for (let end = 500; end < text.length + 500; end += 500) {
    stream.update(text.slice(0, end));
    await new Promise(requestAnimationFrame);
  }
}"""
PIECES = "# A\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
PIECES += "```python\nx = 1\n```\n\nSo $x^2$ is.\n\n"


def test_every_block_of_a_long_answer_gets_its_tools_while_it_is_written(page: Page):
    page.evaluate(STREAM, PIECES * 300)
    said = last(page).locator(".said")
    expect(said.locator(".table-tools")).to_have_count(300)
    expect(said.locator(".code-head[data-tools]")).to_have_count(300)
    expect(said.locator(".math[data-tex]")).to_have_count(300)
    assert said.locator(".prose-part").count() > 1
    expect(said.locator("td").last).to_be_in_viewport()
