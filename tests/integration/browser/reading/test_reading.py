from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import StartServer
from tests.integration.browser.reading.test_live_reading import FAST, PASTE
from tests.integration.browser.test_chat import (
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

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MANY = r"""Energy $E = mc^2$, a sum

$$\sum_{i=1}^n i$$

and \(\fcolorbox{red}{white}{$x$}\), but \(\frac{1}\).

```mermaid
flowchart LR
  A[Ask] --> B[Done]
```

```mermaid
flowchart LR
  A[[[ wrong
```

| Name | Value |
|---|---|
| a, b | =1 |

```python
x = 1
```
"""
#: Tries all that an artifact must not reach, and writes down what it could reach.
HOSTILE = """```html
<title>Hostile</title>
<p id="found">waiting</p>
<script>
const reached = [];
const attempt = (name, act) => { try { act(); reached.push(name); } catch {} };
attempt("cookie", () => document.cookie.length);
attempt("storage", () => localStorage.setItem("a", "b"));
attempt("parent", () => parent.document.title);
attempt("top", () => top.location.href.length);
attempt("navigation", () => { top.location = "/logout/"; });
attempt("popup", () => { if (!open("/")) throw 0; });
const requests = ["/api/conversations/", "https://example.com/"].map((url) =>
  fetch(url).then(() => reached.push(url), () => {}));
const picture = new Promise((resolve) => {
  const image = new Image();
  image.onload = () => resolve(reached.push("picture"));
  image.onerror = resolve;
  image.src = "/static/img/favicon.svg";
});
Promise.all([...requests, picture]).then(() => {
  document.getElementById("found").textContent = `reached: ${reached.join(", ")}.`;
});
</script>
```

```mermaid
flowchart LR
  A["Ask <img src=x onerror=alert(1)>"] --> B[Done]
  click A "javascript:alert(1)"
```"""


@pytest.mark.smoke
def test_formulas_diagrams_tables_and_code_are_made_readable(open_page: Open):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    send_message(page, f"/echo {MANY}")
    expect_end(page)
    said = answer(page)
    expect(said.locator(".katex")).to_have_count(3)
    expect(said.locator(".katex-display")).to_have_count(1)
    frame = said.locator(".katex .fcolorbox")  # the policy refuses no style
    expect(frame).to_have_css("border-top-color", "rgb(255, 0, 0)")
    expect(said).to_contain_text(r"\(\frac{1}\)")  # what KaTeX refuses stays readable
    picture = said.locator(".diagram img")
    expect(picture).to_have_count(1)
    expect(picture).to_have_attribute("src", re.compile("^data:image/svg"))
    assert (
        picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 50
    )
    expect(said.locator(".diagram-error")).to_have_count(1)
    said.get_by_role("button", name="Source").click()
    expect(said.locator(".code").first).to_be_visible()

    said.get_by_role("button", name="Copy as CSV").click()
    copied = "navigator.clipboard.readText()"
    assert page.evaluate(copied) == 'Name,Value\r\n"a, b",\'=1\r\n'
    last(page).get_by_label("More for this answer").click()
    last(page).get_by_role("button", name="Copy as plain text").click()
    expect(page.locator("#announcer")).to_have_text("Copied")
    text = page.evaluate(copied)
    assert "$E = mc^2$" in text
    assert "x = 1" in text
    assert "Wrap" not in text
    last(page).get_by_role("link", name="Link to this answer").click()
    links = last(page).locator("[data-copy-as=link]")
    expect(links.first).to_contain_text("Copied")
    assert re.search(r"/chat/\w+/\?at=(resp_\w+)#answer-\1$", page.evaluate(copied))
    last(page).get_by_role("link", name="Link to the message").click()
    expect(links.last).to_contain_text("Copied")
    address = page.evaluate(copied)
    assert re.search(r"/chat/\w+/\?at=(resp_\w+)#message-\1$", address)
    page.goto(address)
    asked = last(page).locator(".asked-text")
    expect(asked).to_be_in_viewport()
    expect(asked).to_have_css("outline-style", "solid")

    block = said.locator(".code", has_text="x = 1")
    block.get_by_role("button", name="Wrap").click()
    expect(block).to_have_class(re.compile("is-wrapped"))
    with page.expect_download() as download:
        block.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename.endswith(".py")


def test_a_formula_is_typeset_while_the_answer_goes_on(page: Page):
    words = " ".join(str(number) for number in range(1, 90))
    send_message(page, f"/echo First $E = mc^2$ then {words}")
    expect(page.locator(".turn[data-status=in_progress] .katex")).to_have_count(1)
    expect_end(page)
    expect(answer(page).locator(".katex")).to_have_count(1)


def test_formulas_out_of_sight_are_typeset_when_their_reader_comes_near(page: Page):
    send_message(page, "/echo " + "\n\n".join(f"${n}x$" for n in range(1, 101)))
    expect_end(page)
    expect(page.locator(".math").last.locator(".katex")).to_have_count(1)
    first = answer(page).locator(".math").first
    expect(first).to_have_text("$1x$")
    first.scroll_into_view_if_needed()
    expect(first.locator(".katex")).to_have_count(1)


def test_formulas_that_are_far_again_are_put_back_to_their_source(page: Page):
    """So that no jump has to lay out all that was typeset before."""
    send_message(page, "/echo " + "\n\n".join(f"${n}x$" for n in range(1, 101)))
    expect_end(page)
    last = answer(page).locator(".math").last
    expect(last.locator(".katex")).to_have_count(1)
    answer(page).locator(".math").first.scroll_into_view_if_needed()
    expect(last).to_have_text("$100x$")
    last.scroll_into_view_if_needed()
    expect(last.locator(".katex")).to_have_count(1)


def test_an_artifact_reaches_nothing(browser: Browser, shared_server: ServerProcess):
    with signed_in(browser, shared_server) as context:
        # The console reports each refused request, so this page is not watched.
        page = context.new_page()
        left, dialogs = [], []
        page.on("dialog", lambda dialog: dialogs.append(dialog) or dialog.dismiss())
        page.on("request", lambda r: left.append(r.url))
        page.goto("/")
        _open_hostile_artifact(page)
        picture = answer(page).locator(".diagram img")
        expect(picture).to_have_attribute("src", re.compile("^data:image/svg"))
        assert dialogs == []
        assert page.url.startswith(f"{shared_server.url}/chat/")
        assert [
            url for url in left if not url.startswith((shared_server.url, "data:"))
        ] == []


def _open_hostile_artifact(page: Page) -> None:
    send_message(page, f"/echo {HOSTILE}")
    expect_end(page)
    page.get_by_role("link", name="Preview").click()
    pane = page.locator("#artifact")
    expect(pane.get_by_role("heading", name="Hostile")).to_be_visible()
    found = pane.frame_locator("iframe").locator("#found")
    expect(found).to_have_text("reached: .")
    page.keyboard.press("Escape")
    expect(pane).to_be_hidden()
    expect(page.get_by_role("link", name="Preview")).to_be_focused()


def test_ratings_work_in_place_and_without_javascript(page: Page, open_page: Open):
    send_message(page, "/echo rate me")
    expect_end(page)
    good = last(page).get_by_role("button", name="Good answer")
    good.click()
    expect(good).to_have_attribute("aria-pressed", "true")
    last(page).get_by_text("Add a comment").click()
    last(page).get_by_label("What was good or bad?").fill("Short.")
    last(page).get_by_role("button", name="Save").click()
    expect(page.locator("#announcer")).to_have_text("Your rating is stored.")
    expect(last(page).get_by_label("What was good or bad?")).to_be_hidden()
    expect(last(page).get_by_text("Your comment", exact=True)).to_be_focused()

    plain = open_page(page.url, java_script_enabled=False)
    foot = plain.locator(".turn").last
    good = foot.get_by_role("button", name="Good answer")
    expect(good).to_have_attribute("aria-pressed", "true")
    good.click()
    expect(good).to_have_attribute("aria-pressed", "false")


LISTS = """1. one
2. two
   - [x] done
   - below

Said[^1] of $x$.

[^1]: The note.

```mermaid
flowchart LR
  A[[[ wrong
```"""


#: Voices that say nothing, and write down what they should say.
VOICES = """
window.said = [];
let voices = [];
Object.defineProperty(window, "speechSynthesis", { value: {
  getVoices: () => voices,
  speak: (words) => { document.documentElement.dataset.said = said.push(words); },
  cancel: () => {},
}});
window.loadVoices = () => {
  voices = [{ name: "Ada" }];
  speechSynthesis.onvoiceschanged();
};
"""


def test_an_answer_is_read_aloud_where_the_browser_has_voices(page: Page):
    page.add_init_script(VOICES)
    page.reload()
    send_message(page, "/echo Eins ist nicht zwei. Und das ist gut.")
    expect_end(page)
    button = last(page).get_by_role("button", name="Read aloud")
    expect(button).to_be_hidden()  # no voice yet
    page.evaluate("loadVoices()")
    button.click()
    assert page.evaluate("said.map((words) => [words.lang, words.text])") == [
        ["de", "Eins ist nicht zwei. Und das ist gut."]
    ]
    expect(button).to_have_attribute("aria-pressed", "true")
    page.evaluate("said.at(-1).onend()")
    expect(button).to_have_attribute("aria-pressed", "false")


@pytest.fixture(scope="module")
def fast(start_module_server: StartServer) -> ServerProcess:
    """A server whose demo does not pause between words."""
    server = start_module_server()
    server.manage("shell", "-v0", "-c", FAST)
    return server


#: The page loads no further part of a long answer by itself.
NOTHING_IS_NEAR = """
window.IntersectionObserver = class { observe() {} unobserve() {} disconnect() {} };
"""


def test_a_long_answer_is_read_aloud_to_its_end(browser: Browser, fast: ServerProcess):
    with signed_in(browser, fast) as context:
        page = context.new_page()
        page.add_init_script(VOICES + NOTHING_IS_NEAR)
        page.goto("/")
        long = " ".join(["word"] * 30)
        lines = [f"Line {number} has {long}." for number in range(600)]
        box = page.get_by_label("Message", exact=True)
        box.evaluate(PASTE, "/echo " + "\n\n".join(lines))
        box.press("Enter")
        expect_end(page)
        page.goto(chat_address(page))
        expect(last(page).locator(".answer [data-next-part]")).to_have_count(1)
        page.evaluate("loadVoices()")
        button = last(page).get_by_role("button", name="Read aloud")
        button.click()
        said = page.locator("html")
        expect(said).to_have_attribute("data-said", str(len(lines)))
        assert page.evaluate("said.map((words) => words.text)") == lines
        button.click()
        expect(button).to_have_attribute("aria-pressed", "false")


def test_plain_text_has_the_marks_of_lists_and_none_of_the_page(open_page: Open):
    page = open_page("/", permissions=["clipboard-read", "clipboard-write"])
    send_message(page, f"/echo {LISTS}")
    expect_end(page)
    expect(page.locator(".diagram-error")).to_be_visible()
    open_menu(page)
    page.get_by_role("button", name="Copy as plain text").click()
    expect(page.get_by_role("status")).to_have_text("Copied")
    text = page.evaluate("navigator.clipboard.readText()")
    assert "1. one\n2. two\n  - [x] done\n  - below\n" in text
    assert "Said[1] of $x$." in text
    assert "1. The note." in text
    assert "↩" not in text
    assert "could not be drawn" not in text
    page.get_by_role("button", name="Copy with formats").click()
    page.wait_for_function(
        "navigator.clipboard.read().then(([item]) => item.types.includes('text/html'))"
    )
    html = page.evaluate(
        "navigator.clipboard.read().then(async ([item]) =>"
        " (await item.getType('text/html')).text())"
    )
    assert "href" not in html
    assert "could not be drawn" not in html


def open_menu(page: Page) -> None:
    page.locator("summary[aria-label='More for this answer']").last.click()


def test_the_button_of_a_menu_stays_where_it_is(page: Page):
    send_message(page, "/echo first")
    expect_end(page)
    button = page.locator("summary[aria-label='More for this answer']")
    before = button.bounding_box()
    button.click()
    expect(page.get_by_role("button", name="Delete from here")).to_be_visible()
    after = button.bounding_box()
    assert before
    assert after
    assert before["x"] == after["x"]
    button.click()
    expect(page.get_by_role("button", name="Delete from here")).to_be_hidden()


def choose_colours(page: Page, theme: str) -> None:
    page.goto("/settings/")
    page.locator("[name=theme]").select_option(theme)
    page.get_by_role("button", name="Save").first.click()
    expect(page.locator(f"html.theme-{theme}")).to_be_attached()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_diagrams_have_the_colours_that_their_reader_chose(open_page: Open, theme: Any):
    page = open_page(color_scheme="dark" if theme == "light" else "light")
    choose_colours(page, theme)
    try:
        page.goto("/")
        send_message(page, "/echo ```mermaid\nflowchart LR\n  A --> B\n```")
        expect_end(page)
        drawn = unquote(page.locator(".diagram img").get_attribute("src") or "")
        assert ("fill:#ccc" in drawn) == (theme == "dark")
    finally:
        choose_colours(page, "system")


def test_a_long_table_is_one_table_and_copied_whole(
    browser: Browser, fast: ServerProcess
):
    clipboard = ["clipboard-read", "clipboard-write"]
    with signed_in(browser, fast, permissions=clipboard) as context:
        page = context.new_page()
        page.goto("/")
        long = "x" * 90  # the parts of the page end by characters, not by rows
        rows = "\n".join(f"| {number} | {number}{long} |" for number in range(1200))
        box = page.get_by_label("Message", exact=True)
        box.evaluate(PASTE, f"/echo | # | Value |\n|--:|---|\n{rows}\n\nBehind.")
        box.press("Enter")
        expect_end(page)
        page.goto(chat_address(page))
        page.get_by_role("button", name="Copy as CSV").click()
        expect(page.get_by_role("status")).to_have_text("Copied")
        lines = page.evaluate("navigator.clipboard.readText()").splitlines()
        assert lines[0] == "#,Value"
        assert lines[-1] == f"1199,1199{long}"
        expect(page.locator(".answer table")).to_have_count(1)
        assert page.locator(".answer tbody tr").count() == 1200
        assert "|" not in page.locator(".answer").inner_text()


def test_an_attached_table_is_shown_over_the_page(page: Page):
    file = {
        "name": "sums.csv",
        "mimeType": "text/csv",
        "buffer": b'Name,Sum\n"a, <b>x</b>",3\n',
    }
    page.get_by_label("Attach files").set_input_files(file)
    send_message(page, "/echo seen")
    expect_end(page)
    page.get_by_role("link", name="sums.csv").click()
    dialog = page.locator("#file-preview")
    expect(dialog.get_by_role("cell", name="a, <b>x</b>")).to_be_visible()
    expect(dialog).to_contain_text("byte")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
