"""The pages in a real browser, against a real server and its demo model.

Every page is watched: an error in its console, or a request to anywhere but our own
server, fails the test that caused it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.conftest import StartServer
from tests.conversations import files
from tests.serving import PASSWORD, ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.slow]
expect.set_options(timeout=60_000)  # ms; a loaded machine is slow, not wrong

NUMBERS = 90  # words of a long answer, at the demo's human pace: a few seconds


def count_to(last: int) -> str:
    """The answer to `/long` with this number."""
    return " ".join(str(number) for number in range(1, last + 1))


COUNTED = count_to(NUMBERS)
QUESTION = "What is the weather in Paris, and what time is it there?"
NO_SOCKETS = """
window.WebSocket = class {
  static OPEN = 1;
  readyState = 3;
  constructor() { setTimeout(() => this.onclose?.(), 0); }
  close() {}
};
"""
#: Of tests in both ways: test_blocked_sockets.py has the pages without sockets, so CI
#: leaves these out.
STREAM = pytest.param(NO_SOCKETS, id="stream", marks=pytest.mark.nightly)
#: Records forbidden states of a message, even if they appear only for a moment.
WATCH = """
window.forbidden = [];
new MutationObserver(() => {
  const found = document.querySelectorAll(
    "#transcript :is(img, script, iframe, [style], [onerror], [onclick])," +
    "#transcript a[href]:not([href^='http'], [href^='mailto:'], [href^='#'])"
  );
  for (const node of found) {
    const isOurs = node.matches(".window-link, .progress a, .turn-foot a, .turn-edit");
    if (!isOurs) forbidden.push(node.outerHTML);
  }
}).observe(document, { subtree: true, childList: true, attributes: true });
"""

#: The words that the page paints as found, once there are any.
PAINTED = """() => new Promise((resolve) => {
  const look = () => {
    const found = CSS.highlights.get("found");
    if (found) resolve([...found].map(String));
    else requestAnimationFrame(look);
  };
  look();
})"""

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    flags = ["--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@contextmanager
def signed_in(browser: Browser, server: ServerProcess, **options: Any) -> Iterator[Any]:
    """A browser context of a signed-in user."""
    size = {"width": 1280, "height": 800}
    context = browser.new_context(
        base_url=server.url,
        storage_state=session(browser, server),
        service_workers="block",  # tests intercept requests, which a worker would send
        **{"viewport": size, **options},
    )
    yield context
    context.close()


@cache
def session(browser: Browser, server: ServerProcess, user: str = "admin") -> Any:
    """The cookies of a sign-in, once for all tests of a server."""
    return begin_session(browser, server, user)


def begin_session(browser: Browser, server: ServerProcess, user: str) -> Any:
    """The cookies of a new sign-in, without a page: one costs seconds of CPU time."""
    with browser.new_context(base_url=server.url) as context:
        form = context.request.get("/login/").text()
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token, form
        fields = {"username": user, "password": PASSWORD}
        fields["csrfmiddlewaretoken"] = token[1]
        answer = context.request.post("/login/", form=fields, max_redirects=0)
        assert answer.status == 302, answer.text()
        return context.storage_state()


@pytest.fixture
def open_page(browser: Browser, shared_server: ServerProcess) -> Iterator[Open]:
    """`open_page("/", java_script_enabled=False)`: a page with a context of its own."""
    contexts, faults = [], []

    def open_one(path: str = "/", script: str = "", **options: Any) -> Page:
        context = signed_in(browser, shared_server, **options)
        contexts.append(context)
        page = watched(context.__enter__(), shared_server.url, faults)
        page.add_init_script(script or "0")
        page.goto(path)
        return page

    yield open_one
    for context in contexts:
        context.__exit__(None, None, None)
    # Tests take pages offline; the console reports each failed request.
    assert [each for each in faults if "ERR_INTERNET_DISCONNECTED" not in each] == []


def watched(context: BrowserContext, url: str, faults: list[str]) -> Page:
    page = context.new_page()
    page.on("pageerror", lambda exc: faults.append(str(exc)))
    page.on("console", lambda m: m.type == "error" and faults.append(m.text))
    page.on(
        "request",
        lambda r: r.url.startswith((url, "data:")) or faults.append(r.url),
    )
    return page


@pytest.fixture
def page(open_page: Open) -> Page:
    return open_page()


def send_message(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def chat_address(page: Page) -> str:
    """The address of the open chat, once the page has moved there from the start."""
    page.wait_for_url(re.compile(r"/chat/[^/?#]+/"))
    return page.url.partition("#")[0]  # a script removes the fragment after it scrolled


def last(page: Page) -> Any:
    return page.locator(".turn").last


def answer(page: Page) -> Any:
    return last(page).locator(".said")


def expect_end(page: Page, status: str = "completed") -> None:
    """The server's own rendering has taken the place of the live one."""
    expect(last(page).locator(".turn-foot")).to_be_visible()
    expect(last(page)).to_have_attribute("data-status", status)


# Asking


@pytest.mark.smoke
def test_a_question_is_answered_with_tools(page: Page):
    page.get_by_role("button", name=QUESTION).click()
    cards = last(page).locator(".called")
    expect(cards).to_have_count(2)
    expect_end(page)
    for card in cards.all():
        expect(card).to_have_attribute("data-state", "completed")
    cards.first.locator("summary").click()
    expect(cards.first.locator("[data-slot=arguments]")).to_contain_text('"Paris"')
    expect(cards.first.locator("[data-slot=output]")).to_contain_text("temperature")
    expect(last(page).locator(".turn-foot")).to_contain_text("Demo (no AI)")
    expect(page.locator(".row.is-current")).to_contain_text("What is the weather")


def test_the_message_is_seen_before_the_server_knows_of_it(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    page.context.set_offline(True)
    send_message(page, "/echo two")
    expect(last(page).locator(".asked")).to_contain_text("/echo two")
    expect(page.locator("#banner")).to_be_visible()
    page.context.set_offline(False)
    expect(answer(page)).to_have_text("two")
    expect_end(page)
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator(".turn")).to_have_count(2)


def test_a_reload_in_the_middle_loses_nothing(page: Page):
    send_message(page, f"/long {NUMBERS}")
    expect(answer(page)).to_contain_text("20 21")
    page.reload()
    expect(answer(page)).to_contain_text("30 31")
    expect_end(page)
    expect(answer(page)).to_have_text(COUNTED)


def test_a_message_not_acknowledged_is_sent_after_a_reload(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    page.evaluate(
        """() => {
          const chat = document.querySelector("#conversation").dataset.conversation;
          const user = document.body.dataset.user;
          const key = crypto.randomUUID(); // the server knows the key of a first try
          const lost = [{ key, text: "/echo lost", model: "", at: Date.now() }];
          localStorage.setItem(`parley:outbox:${user}:${chat}`, JSON.stringify(lost));
        }"""
    )
    for _ in range(2):  # the second time the server knows its key
        page.reload()
        expect(answer(page)).to_have_text("lost")
        expect(page.locator(".turn")).to_have_count(2)


@pytest.mark.smoke
def test_stop_keeps_the_text_so_far(page: Page):
    send_message(page, "/long 5000")
    expect(answer(page)).to_contain_text("10 11")
    page.get_by_role("button", name="Stop the answer").click()
    expect_end(page, "cancelled")
    expect(answer(page)).to_contain_text("10 11")
    expect(last(page)).to_contain_text("Stopped")
    expect(page.get_by_role("button", name="Stop the answer")).to_be_hidden()


def test_escape_stops_and_what_waits_goes_on(page: Page):
    send_message(page, "/long 5000")
    expect(answer(page)).to_contain_text("10 11")
    send_message(page, "/echo next")
    expect(last(page)).to_contain_text("Waiting for its turn")
    page.keyboard.press("Escape")
    expect(answer(page)).to_have_text("next")
    expect(page.locator(".turn").first).to_contain_text("Stopped")


def test_a_queued_message_is_removed(page: Page):
    send_message(page, "/long 5000")
    expect(answer(page)).to_contain_text("1 2")
    send_message(page, "/echo never")
    page.get_by_role("button", name="Remove from the queue").click()
    expect(page.locator("#queue")).to_be_hidden()
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.locator(".turn").first).to_have_attribute("data-status", "in_progress")
    page.keyboard.press("Escape")


def test_a_failure_shows_its_reason_and_can_be_retried(page: Page):
    send_message(page, "/fail 429")
    expect(last(page)).to_contain_text("rate limit is reached")
    last(page).get_by_role("link", name="Choose another model").click()
    expect(page.get_by_role("dialog", name="Choose a model")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#choose-model")).to_be_focused()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".branch-switch")).to_contain_text("2/2")
    expect_end(page, "failed")
    expect(page.locator(".turn")).to_have_count(1)


def test_reasoning_is_collapsed_and_shows_its_duration(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    send_message(page, "/think What time is it in Tokyo?")
    thought = last(page).locator(".thought").first
    expect(thought).to_contain_text("Thinking…")
    expect(thought).not_to_have_attribute("open", re.compile(""))
    expect(thought.locator("summary")).to_have_text(re.compile(r"Thought for \d+ s"))
    thought.locator("summary").click()
    expect_end(page)
    expect(last(page).locator(".thought").first).to_have_attribute("open", "")
    expect(last(page).locator(".thought summary").first).to_contain_text("Thought for")


def test_a_refused_message_comes_back_to_the_box(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    box = page.get_by_label("Message", exact=True)
    chosen = page.locator("#model option:checked")
    chosen.evaluate("(option) => { option.value = 'gone'; }")
    send_message(page, "precious words")
    expect(page.locator("#composer-errors")).to_contain_text("'gone'")
    expect(box).to_have_value("precious words")
    expect(page.locator(".turn")).to_have_count(1)


def test_a_message_of_last_month_comes_back_to_the_box_unsent(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    page.evaluate(
        """() => {
          const chat = document.querySelector("#conversation").dataset.conversation;
          const user = document.body.dataset.user;
          const at = Date.now() - 30 * 24 * 3600 * 1000;
          const lost = [{ key: "k1", text: "/echo lost", model: "", at }];
          localStorage.setItem(`parley:outbox:${user}:${chat}`, JSON.stringify(lost));
        }"""
    )
    page.reload()
    expect(page.locator("#composer-errors")).to_contain_text("kept for too long")
    expect(page.get_by_label("Message", exact=True)).to_have_value("/echo lost")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("/echo lost")
    expect(page.locator(".turn")).to_have_count(1)


# Other ways and other people


def test_another_tab_follows(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    other = page.context.new_page()
    other.goto(chat_address(page))
    send_message(page, f"/long {NUMBERS}")
    expect(answer(other)).to_contain_text("5 6")
    expect_end(other)
    expect(answer(other)).to_have_text(COUNTED)
    expect(other.locator(".turn")).to_have_count(2)


def test_without_websockets_events_come_all_the_same(open_page: Open):
    page = open_page("/", NO_SOCKETS)
    numbers = 8 * NUMBERS  # not all said before the next message waits
    send_message(page, f"/long {numbers}")
    expect(answer(page)).to_contain_text("10 11")
    page.reload()
    expect(answer(page)).to_contain_text("20 21")
    send_message(page, "/echo two")
    expect(last(page)).to_contain_text("Waiting for its turn")
    expect(answer(page)).to_have_text("two")
    expect(page.locator(".turn .said").first).to_have_text(count_to(numbers))
    send_message(page, "/long 5000")
    expect(answer(page)).to_contain_text("5 6")
    page.keyboard.press("Escape")
    expect_end(page, "cancelled")


@pytest.mark.parametrize("script", ["", NO_SOCKETS], ids=["socket", "stream"])
@pytest.mark.smoke
def test_a_crash_of_the_server_loses_no_word(
    browser: Browser, server: ServerProcess, script: str
):
    with signed_in(browser, server) as context:
        page = watched(context, server.url, [])
        page.add_init_script(script or "0")
        page.goto("/")
        send_message(page, f"/long {NUMBERS}")
        expect(answer(page)).to_contain_text("30 31")
        server.kill()
        expect(page.locator("#banner")).to_be_visible()
        expect(answer(page)).to_contain_text("30 31")
        server.start()
        expect_end(page)
        expect(answer(page)).to_have_text(COUNTED)
        expect(page.locator("#banner")).to_be_hidden()


@pytest.mark.smoke
def test_it_works_without_javascript(open_page: Open):
    page = open_page("/", java_script_enabled=False)
    page.get_by_role("button", name=QUESTION).click()
    expect(last(page).locator(".asked")).to_contain_text(QUESTION)
    while last(page).get_attribute("data-status") != "completed":
        page.get_by_role("button", name="Refresh").click()
    expect(last(page).locator(".called")).to_have_count(2)
    page.get_by_label("Message", exact=True).fill("/long 5000")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Stop the answer").click()
    while last(page).get_attribute("data-status") != "cancelled":
        page.reload()
    last(page).get_by_role("button", name="Ask again").click()
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".branch-switch")).to_contain_text("2/2")
    page.get_by_role("button", name="Stop the answer").click()


# Safety


ATTACK = (
    "/echo ![x](https://evil.test/x.png) <img src=x onerror=alert(1)> "
    "[a](javascript:alert(1)) [b](data:text/html,x) [c](/admin/) <b onclick=x()>b</b>"
    "\n\n```<script>\nalert(1)\n```\n\n<script>alert(1)</script>\n\n"
    + "> " * 40
    + "deep"
)


@pytest.mark.smoke
def test_nothing_a_model_writes_becomes_more_than_text(open_page: Open):
    page = open_page("/", WATCH)
    page.get_by_label("Message", exact=True).fill(ATTACK)
    page.keyboard.press("Enter")
    expect_end(page)
    expect(last(page).locator(".answer")).to_contain_text("deep")
    assert page.evaluate("forbidden") == []
    expect(last(page).locator(".answer a")).to_have_count(1)  # the picture's address


def test_streamed_markup_equals_the_servers_markup(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    page.route("**/turns/**", lambda route: None)  # no swap at the end
    send_message(page, "/markdown")
    expect(last(page)).to_have_attribute("data-status", "completed", timeout=20_000)
    live = outline(page)
    page.reload()
    assert outline(page) == live


def test_a_card_that_streams_looks_like_the_servers(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    page.route("**/turns/**", lambda route: None)  # no swap at the end
    send_message(page, QUESTION)
    expect(last(page)).to_have_attribute("data-status", "completed")
    live = cards(page)
    page.reload()
    assert cards(page) == live
    assert len(live) == 2


def cards(page: Page) -> list[list[str]]:
    """The tags, classes and words of each card's arguments and result."""
    return last(page).evaluate(
        """(turn) => Array.from(turn.querySelectorAll(".called"), (card) => [
          card.dataset.state,
          ...Array.from(
            card.querySelectorAll(".pieces *"),
            (node) => `${node.tagName}.${node.className} ${node.textContent}`,
          ).map((text) => text.trim()),
        ])"""
    )


def outline(page: Page) -> list[str]:
    """The blocks of the last answer with their letters, in order.

    A paragraph of a list without blank lines is an element only while it streams.
    """
    return answer(page).last.evaluate(
        """(said) => Array.from(
          said.querySelectorAll(
            "p:not(.is-tight > li > p), h3, h4, h5, h6, li, th, td, pre, blockquote, hr"
          ),
          (node) => `${node.tagName} ${node.textContent.replace(/\\s+/g, "")}`,
        )"""
    )


# The box


def test_a_draft_outlives_a_reload_and_each_chat_has_its_own(page: Page):
    box = page.get_by_label("Message", exact=True)
    box.fill("half a thought")
    page.reload()
    expect(box).to_have_value("half a thought")
    send_message(page, "/echo one")
    expect_end(page)
    expect(box).to_have_value("")
    box.fill("another")
    page.goto("/")
    expect(box).to_have_value("")
    page.go_back()
    expect(box).to_have_value("another")


def test_enter_sends_but_not_while_a_word_is_composed(page: Page):
    box = page.get_by_label("Message", exact=True)
    box.fill("one")
    box.press("Shift+Enter")
    box.press_sequentially("two")
    box.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    expect(box).to_have_value("one\ntwo")
    expect(page.locator(".turn")).to_have_count(0)


def test_reading_above_is_not_disturbed(page: Page):
    send_message(page, "/long 4000")
    expect(answer(page)).to_contain_text("5 6")
    page.set_viewport_size({"width": 500, "height": 300})
    expect(answer(page)).to_contain_text("90 91")
    page.mouse.move(250, 120)
    page.mouse.wheel(0, -400)
    expect(page.get_by_role("link", name="Jump to latest")).to_be_visible()
    scroll_position = page.evaluate("scrollY")
    expect(answer(page)).to_contain_text("140 141")
    assert page.evaluate("scrollY") == scroll_position
    page.get_by_role("link", name="Jump to latest").click()
    expect(page.get_by_role("link", name="Jump to latest")).to_be_hidden()
    page.keyboard.press("Escape")


# The list


def test_the_list_shows_matches_while_the_user_types(page: Page):
    send_message(page, "/echo Speak of the quokka")
    expect_end(page)
    page.get_by_role("link", name="New chat").first.click()
    field = page.get_by_role("searchbox", name="Search conversations")
    field.press_sequentially("quok")
    found = page.locator("#list .row-link")
    expect(found.locator("mark").first).to_have_text("quok")
    expect(page.locator("#announcer")).to_have_text("Found “quok”")
    field.press_sequentially("zzz")
    expect(page.locator("#list")).to_contain_text("Nothing found for “quokzzz”")
    field.press("Escape")
    today = page.locator("#list .list-label", has_text="Today")
    expect(today).to_be_visible()  # below the folders, if another test made some
    expect(page).not_to_have_url(re.compile("q="))
    field.fill("quokka")
    expect(found.locator("mark").first).to_have_text("quokka")
    found.first.click()
    expect(page.locator("#transcript")).to_contain_text("Speak of the quokka")
    assert set(page.evaluate(PAINTED)) == {"quokka"}
    expect(field).to_have_value("quokka")  # to go through all that is found
    expect(found.locator("mark").first).to_have_text("quokka")


def test_escape_in_the_search_stops_nothing(page: Page):
    send_message(page, f"/long {3 * NUMBERS}")
    expect(answer(page)).to_contain_text("3 4 5")
    page.get_by_label("Search conversations").press("Escape")
    expect_end(page)


def test_the_drawer_renames_and_deletes_on_a_phone(open_page: Open):
    phone = {"width": 390, "height": 844}
    page = open_page("/", viewport=phone, has_touch=True, is_mobile=True)
    box = page.get_by_label("Message", exact=True)
    box.fill("/echo from a phone")
    page.get_by_role("button", name="Send").click()
    expect_end(page)
    assert page.evaluate("document.documentElement.scrollWidth") == phone["width"]
    menu_of(page, "/echo from a phone")
    page.get_by_role("link", name="Rename", exact=True).click()
    page.get_by_role("dialog").get_by_label("Title").fill("Named on a phone")
    page.get_by_role("button", name="Save").click()
    expect(
        page.get_by_role("heading", name="Named on a phone", level=1)
    ).to_be_visible()
    menu_of(page, "Named on a phone")
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.locator(".row-link", has_text="Named on a phone")).to_have_count(0)


def menu_of(page: Page, title: str) -> None:
    page.get_by_role("button", name="Conversations").click()
    row = page.locator(".row", has_text=title).first
    row.locator("summary").click()


def test_everything_that_can_be_pressed_is_big_enough_for_a_thumb(open_page: Open):
    phone = {"width": 390, "height": 844}
    page = open_page("/", viewport=phone, has_touch=True, is_mobile=True)
    sizes = page.evaluate(
        """() => Array.from(
          document.querySelectorAll("button, select, .suggestion, a.icon-button"),
          (node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()],
        ).filter(([, box]) => box.width && (box.width < 44 || box.height < 44))"""
    )
    assert sizes == []


# Files


PICTURE = {"name": "a.png", "mimeType": "image/png", "buffer": files.png(40, 30)}
NOTES = {"name": "notes.md", "mimeType": "text/markdown", "buffer": b"# Notes\n"}


def attach(page: Page, *files: Any) -> Any:
    page.get_by_label("Attach files").set_input_files(list(files))
    return page.locator(".attached-file")


def expect_files(page: Page) -> None:
    """The last message shows its picture, and leads to its text."""
    picture = last(page).locator(".asked img")
    expect(picture).to_have_js_property("naturalWidth", 40)
    notes = last(page).get_by_role("link", name="notes.md")
    assert page.request.get(notes.get_attribute("href") or "").body() == b"# Notes\n"


@pytest.mark.smoke
def test_files_are_sent_with_the_first_message_and_later(page: Page):
    expect(attach(page, PICTURE, NOTES)).to_have_count(2)
    expect(page.locator(".attached canvas")).to_be_visible()
    send_message(page, "/echo one")
    expect_end(page)
    expect(answer(page)).to_have_text("one")
    expect_files(page)
    expect(attach(page, PICTURE)).to_have_count(1)
    page.reload()  # uploads remain, as the draft does
    expect(page.locator(".attached-file")).to_have_count(1)
    expect(attach(page, NOTES)).to_have_count(2)
    send_message(page, "/echo two")
    expect(page.locator(".attached-file")).to_have_count(0)
    expect_end(page)
    expect(page.locator(".turn")).to_have_count(2)
    expect_files(page)


def test_a_message_waits_for_its_files(page: Page):
    send_message(page, "/echo one")
    expect_end(page)
    page.route("**/attachments/", lambda route: None)  # held
    attach(page, PICTURE, NOTES)
    send_message(page, "/echo two")
    expect(page.locator(".turn")).to_have_count(1)
    page.unroute("**/attachments/")  # which lets those go that were held
    expect_end(page)
    expect(page.locator(".turn")).to_have_count(2)
    expect_files(page)


def test_files_are_pasted_dropped_and_taken_off(page: Page):
    page.evaluate(
        """(bytes) => {
          for (const kind of ["paste", "drop"]) {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], `${kind}.png`));
            const options = { bubbles: true, cancelable: true };
            const event = kind === "paste"
              ? new ClipboardEvent(kind, { ...options, clipboardData: data })
              : new DragEvent(kind, { ...options, dataTransfer: data });
            document.querySelector("#text").dispatchEvent(event);
          }
        }""",
        list(PICTURE["buffer"]),
    )
    expect(page.locator(".attached-file")).to_have_count(2)
    page.get_by_role("button", name="Remove paste.png").click()
    expect(page.locator(".attached-file")).to_contain_text("drop.png")
    send_message(page, "/echo one")
    expect_end(page)
    expect(last(page).locator(".asked img")).to_have_count(1)


def test_a_refused_file_is_reported_and_nothing_is_lost(
    browser: Browser, shared_server: ServerProcess
):
    archive = {"name": "a.zip", "mimeType": "application/zip", "buffer": files.ZIP}
    with signed_in(browser, shared_server) as context:
        page = (
            context.new_page()
        )  # not checked: the console reports each refused request
        page.goto("/")
        attach(page, PICTURE, archive)
        send_message(page, "/echo one")
        problem = page.locator("#composer-errors")
        expect(problem).to_contain_text("“a.zip” has a type that models cannot read")
        expect(page.locator(".turn")).to_have_count(0)
        expect(page.get_by_label("Message", exact=True)).to_have_value("/echo one")
        page.get_by_role("button", name="Remove a.zip").click()
        page.get_by_role("button", name="Send").click()
        expect_end(page)
        attach(page, archive)
        expect(problem).to_contain_text("“a.zip” has a type that models cannot read")
        expect(page.locator(".attached-file")).to_have_count(0)


def test_files_need_no_javascript(open_page: Open):
    page = open_page("/", java_script_enabled=False)
    page.get_by_label("Attach files").set_input_files([PICTURE, NOTES])
    page.get_by_label("Message", exact=True).fill("/echo one")
    page.get_by_role("button", name="Send").click()
    while last(page).get_attribute("data-status") != "completed":
        page.reload()
    expect_files(page)


# Tools


def test_a_tool_that_is_ticked_off_is_not_used(page: Page):
    page.locator("#tools summary").click()
    ticked = page.get_by_role("checkbox", checked=True).filter(visible=True).count()
    page.get_by_role("checkbox", name="Calculator").uncheck()
    expect(page.locator(".tools-count")).to_have_text(str(ticked - 1))
    send_message(page, "/tool calculator {}")
    expect_end(page)
    expect(answer(page)).to_contain_text("I was not offered that tool")
    page.locator("#tools summary").click()
    with page.expect_response("**/tools/"):
        page.get_by_role("checkbox", name="Calculator").check()
    page.keyboard.press("Escape")
    send_message(page, '/tool calculator {"expression": "6 * 7"}')
    expect_end(page)
    expect(last(page).locator(".called")).to_have_attribute("data-state", "completed")


# Questions to a person


APPROVAL = """
from tools.models import Tool
Tool.objects.filter(name="calculator").update(approval="always")
"""
CALCULATION = '/tool calculator {"expression": "6 * 7"}'


@pytest.fixture(scope="module")
def asking(start_module_server: StartServer) -> ServerProcess:
    server = start_module_server()
    server.manage("shell", "--no-imports", "-c", APPROVAL)
    return server


@pytest.mark.smoke
def test_a_call_runs_as_a_person_allows_it(browser: Browser, asking: ServerProcess):
    with signed_in(browser, asking) as context:
        page = watched(context, asking.url, faults := [])
        page.goto("/")
        send_message(page, CALCULATION)
        card = page.locator(".question")
        expect(card).to_contain_text("May calculator run?")
        expect(last(page)).to_contain_text("Waiting for a decision")
        page.reload()
        other = context.new_page()
        other.goto(chat_address(page))
        card.get_by_text("Change the arguments").click()
        text = card.get_by_label("Arguments as JSON")
        text.fill("{broken")
        card.get_by_role("button", name="Approve").click()
        assert "not valid JSON" in text.evaluate("(field) => field.validationMessage")
        text.fill('{"expression": "6 * 8"}')
        card.get_by_role("button", name="Approve").click()
        expect_end(page)
        expect(answer(page).last).to_contain_text("48")
        expect_end(other)
        expect(other.locator(".question")).to_have_count(0)
        last(page).locator(".called summary").first.click()
        expect(last(page)).to_contain_text("Approved by admin with other arguments.")
        assert faults == []


def test_a_call_is_declined_without_javascript(browser: Browser, asking: ServerProcess):
    with signed_in(browser, asking, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto("/")
        page.get_by_label("Message", exact=True).fill(CALCULATION)
        page.get_by_role("button", name="Send").click()
        while not page.locator(".question").count():
            page.reload()
        page.get_by_label("Note").fill("Work it out yourself.")
        page.get_by_role("button", name="Decline").click()
        while last(page).get_attribute("data-status") != "completed":
            page.reload()
        last(page).locator(".called summary").first.click()
        expect(last(page)).to_contain_text("Declined by admin: Work it out yourself.")


def test_a_turn_that_waits_can_be_stopped(browser: Browser, asking: ServerProcess):
    with signed_in(browser, asking) as context:
        page = watched(context, asking.url, [])
        page.goto("/")
        send_message(page, CALCULATION)
        expect(page.locator(".question")).to_be_visible()
        page.get_by_role("button", name="Stop the answer").click()
        expect_end(page, "cancelled")
        expect(page.locator(".question")).to_have_count(0)
