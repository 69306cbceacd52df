"""What scripts show, in the language of the page's reader and in its direction."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.integration.browser.test_chat import Open, browser, chat_address, open_page

__all__ = ["browser", "open_page"]

pytestmark = pytest.mark.browser

#: Notes what screen readers were told, and the labels of the running turn.
LISTEN = """
window.heard = [];
const hear = (text) => {
  const words = text.trim();
  if (words && !heard.includes(words)) heard.push(words);
};
// Of two announcements in one frame an observer would find the last one alone.
const usual = Object.getOwnPropertyDescriptor(Node.prototype, "textContent");
Object.defineProperty(Node.prototype, "textContent", {
  ...usual,
  set(text) {
    if (this.id === "announcer") hear(text);
    usual.set.call(this, text);
  },
});
addEventListener("DOMContentLoaded", () => {
  const note = () => {
    const places = ".turn [data-slot=phase], .called-state, .called-name";
    for (const { textContent } of document.querySelectorAll(places)) hear(textContent);
  };
  new MutationObserver(note).observe(document, {
    subtree: true,
    childList: true,
    characterData: true,
  });
});
"""
#: Turns the page as a language from right to left would: there is none yet.
FROM_THE_RIGHT = 'document.documentElement.dir = "rtl"'
OVERFLOWING = """() => [...document.querySelectorAll("body *")]
  .filter((node) => node.checkVisibility())
  .filter((node) => !node.closest(".visually-hidden, .skip, svg, pre, .table-scroll"))
  .map((node) => [node, node.getBoundingClientRect()])
  .filter(([, { left, right }]) => left < -1 || right > innerWidth + 1)
  .map(([node]) => node.outerHTML.slice(0, 120))"""
#: Two parts of an element's text, as they stand from left to right.
ORDER = """([selector, ...parts]) => {
  const text = document.querySelector(selector).firstChild;
  const left = (part) => {
    const range = document.createRange();
    const start = text.data.indexOf(part);
    range.setStart(text, start);
    range.setEnd(text, start + part.length);
    return range.getBoundingClientRect().left;
  };
  return parts.sort((a, b) => left(a) - left(b));
}"""


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["America/St_Johns", "Asia/Kathmandu"])
def test_a_list_shows_times_in_the_zone_of_its_reader(open_page: Open, zone: str):
    page = open_page("/account/", timezone_id=zone)
    shown = page.locator("time").first
    expect(shown).to_have_attribute("data-local", "")
    at = datetime.fromisoformat(shown.get_attribute("datetime") or "")
    local = at.astimezone(ZoneInfo(zone))
    expect(shown).to_contain_text(f"{local.hour % 12 or 12}:{local.minute:02}")


def send(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.keyboard.press("Enter")


def begin(page: Page) -> None:
    """A conversation whose next answers come over its socket."""
    send(page, "/echo eins")
    chat_address(page)
    expect(page.locator(".turn-foot")).to_have_count(1)


@pytest.mark.slow
def test_scripts_speak_the_readers_language(open_page: Open):
    page = open_page("/", LISTEN, locale="de-DE")
    begin(page)
    send(page, "What is the weather in Paris, and what time is it there?")
    expect(page.locator(".turn-foot")).to_have_count(2)
    heard = "\n".join(page.evaluate("heard"))
    assert "Die Antwort beginnt." in heard
    assert {"weather_demo", "current_time"} <= set(heard.split("\n"))  # their cards
    assert re.search(r"Fertig, \d+ Wörter\.", heard)
    assert "Wird ausgeführt" in heard or "Abgeschlossen" in heard
    assert not re.search(r"\b(?:Waiting|Executing|Completed|Done|Running)\b", heard)


@pytest.mark.slow
def test_a_button_made_by_a_script_is_translated(open_page: Open):
    page = open_page("/", locale="de-DE")
    begin(page)
    send(page, "/markdown")
    live = page.locator(".turn.is-live .code-head [data-copy]").first
    expect(live).to_have_text("Kopieren")
    page.get_by_label("Dateien anhängen").set_input_files(
        {"name": "notiz.txt", "mimeType": "text/plain", "buffer": b"x" * 1500}
    )
    expect(page.get_by_role("button", name="notiz.txt entfernen")).to_be_visible()
    expect(page.locator("#attached [data-slot=size]")).to_have_text("1,5 kB")


@pytest.mark.slow
def test_complaints_of_scripts_are_translated(open_page: Open):
    page = open_page("/", locale="de-DE")
    begin(page)
    page.get_by_label("Dateien anhängen").set_input_files(
        {"name": "leer.txt", "mimeType": "text/plain", "buffer": b""}
    )
    expect(page.locator("#composer-errors")).to_have_text("„leer.txt“ ist leer.")
    page.context.set_offline(True)
    expect(page.locator("#banner")).to_be_visible()
    expect(page.locator("#banner")).to_contain_text("Verbindung")
    page.context.set_offline(False)
    expect(page.locator("#banner")).to_be_hidden()


@pytest.mark.parametrize(
    ("locale", "date"),
    [
        ("de-DE", r"\d{2}\.\d{2}\.\d{4}, \d{2}:\d{2}"),
        ("fr-FR", r"\d+ \w+\.? \d{4}"),
        ("zh-CN", r"\d{4}年\d+月\d+日"),
        ("en-GB", r"\d+ \w+ \d{4}, \d{2}:\d{2}"),
    ],
)
def test_times_are_written_as_the_language_does(
    open_page: Open, locale: str, date: str
):
    page = open_page("/", locale=locale)
    begin(page)
    expect(page.locator(".turn-foot time").first).to_have_text(re.compile(date))


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_what_scripts_make_fits_a_page_from_right_to_left(open_page: Open, width: int):
    size = {"width": width, "height": 800}
    page = open_page(
        "/",
        f"addEventListener('DOMContentLoaded', () => {FROM_THE_RIGHT})",
        viewport=size,
    )
    begin(page)
    send(page, "/markdown")
    expect(page.locator(".turn-foot")).to_have_count(2)
    expect(page.locator("[data-code=wrap]").first).to_be_visible()
    page.locator("#file").set_input_files(
        {"name": "note.txt", "mimeType": "text/plain", "buffer": b"x" * 1500}
    )
    expect(page.locator("#attached [data-slot=size]")).to_have_text("1.5 kB")
    assert page.evaluate(OVERFLOWING) == []
    order = page.evaluate(ORDER, ["#attached [data-slot=size]", "1.5", "kB"])
    assert order == ["1.5", "kB"]  # from the left, as this unit is read


@pytest.mark.slow
@pytest.mark.parametrize("words", ["to do", "مهمة"])
def test_the_box_of_a_task_stands_beside_its_words(open_page: Open, words: str):
    page = open_page()
    send(page, f"/echo - [x] {words}")
    expect(page.locator(".turn-foot")).to_be_visible()
    gap = page.locator(".said .task-list-item").evaluate(
        """(item) => {
          const box = item.querySelector("input").getBoundingClientRect();
          const range = document.createRange();
          range.selectNodeContents(item.querySelector("label") ?? item);
          range.setStartAfter(item.querySelector("input"));
          const text = range.getBoundingClientRect();
          return Math.max(text.left - box.right, box.left - text.right);
        }"""
    )
    assert gap >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Work", "مجلد"])
def test_the_name_of_a_folder_stands_off_the_edge(open_page: Open, name: str):
    page = open_page("/folders/")
    page.locator("main [name=name]").fill(name)
    page.locator("main [name=name]").press("Enter")
    page.wait_for_url(re.compile(r"/folders/."))
    page.goto("/")
    link = page.locator("[data-key^=folder]").get_by_role("link", name=name)
    sides = link.evaluate(
        "(e) => ['paddingLeft', 'paddingRight'].map((s) => getComputedStyle(e)[s])"
    )
    assert "0px" not in sides
