"""What helps to write a message: quotations, long texts as files, a chat's options."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.conversations import files
from tests.integration.browser.test_chat import (
    Open,
    browser,
    chat_address,
    expect_end,
    last,
    open_page,
    send_message,
)

__all__ = ["browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SELECT = """(selector) => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector(selector));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}"""
PASTE = """([text, shiftKey]) => {
  const box = document.querySelector("#text");
  box.focus();
  const held = { key: "v", shiftKey, bubbles: true };
  box.dispatchEvent(new KeyboardEvent("keydown", held));
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  const event = new ClipboardEvent(
    "paste", { clipboardData, bubbles: true, cancelable: true });
  return box.dispatchEvent(event);
}"""
LONG = "All work and no play.\n" * 400


def test_a_selection_is_quoted_by_button_and_by_key(open_page: Open):
    page = open_page()
    send_message(page, "/echo First line\n\nSecond line")
    expect_end(page)
    box = page.get_by_label("Message", exact=True)
    box.fill("About this:")
    quote = page.get_by_role("button", name="Quote")
    expect(quote).to_be_hidden()
    page.evaluate(SELECT, ".turn:last-child .said")
    quote.click()
    expect(quote).to_be_hidden()
    expect(box).to_be_focused()
    expect(box).to_have_value("About this:\n\n> First line\n>\n> Second line\n\n")

    box.fill("")
    page.locator("h1").first.click()
    page.evaluate(SELECT, ".turn:last-child .said p")
    page.keyboard.press("q")
    expect(box).to_have_value("> First line\n\n")


def test_what_is_not_of_the_conversation_is_not_quoted(open_page: Open):
    page = open_page()
    send_message(page, "/echo Hello")
    expect_end(page)
    page.evaluate(SELECT, ".bar")
    expect(page.locator("#quote")).to_be_hidden()
    page.keyboard.press("Escape")
    page.locator("h1").first.click()
    page.keyboard.press("q")
    expect(page.locator("#announcer")).to_contain_text("Select a text")


def test_a_long_text_that_is_pasted_becomes_a_file(open_page: Open):
    page = open_page()
    assert paste(page, "short") is True  # the browser pastes it
    assert paste(page, LONG) is False
    assert paste(page, LONG) is False
    names = page.locator(".attached-file [data-slot=name]")
    expect(names).to_have_text(["pasted.txt", "pasted-2.txt"])
    assert paste(page, LONG, shift=True) is True
    expect(names).to_have_count(2)
    send_message(page, "/echo Sent")
    chat_address(page)
    expect(last(page).locator(".said")).to_have_text("Sent")
    expect(last(page).locator(".asked").get_by_text("pasted-2.txt")).to_be_visible()


NOISE = """async (side) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const picture = new ImageData(side, side);
  for (let i = 0; i < picture.data.length; i += 65536) {
    crypto.getRandomValues(picture.data.subarray(i, i + 65536));
  }
  for (let i = 3; i < picture.data.length; i += 4) picture.data[i] = 255;
  canvas.getContext("2d").putImageData(picture, 0, 0);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  const data = new DataTransfer();
  data.items.add(new File([blob], "noise.png", { type: "image/png" }));
  const options = { clipboardData: data, bubbles: true, cancelable: true };
  document.querySelector("#text").dispatchEvent(new ClipboardEvent("paste", options));
  return blob.size;
}"""
PICTURE_SIZES = """(pictures) => Promise.all(pictures.map(async (picture) => {
  await picture.decode();
  const blob = await (await fetch(picture.src)).blob();
  return [picture.naturalWidth, picture.naturalHeight, blob.size, blob.type];
}))"""


def test_pictures_are_made_small_enough_for_every_provider(open_page: Open):
    page = open_page("/")
    wide = {"name": "w.png", "mimeType": "image/png", "buffer": files.png(3000, 1500)}
    page.get_by_label("Attach files").set_input_files([wide])
    assert page.evaluate(NOISE, 1800) > 5_000_000
    names = page.locator(".attached-file [data-slot=name]")
    expect(names).to_have_text(["w.png", "noise.jpg"])
    send_message(page, "/echo one")
    expect_end(page)
    pictures = last(page).locator(".asked img")
    expect(pictures).to_have_count(2)
    wide_one, noise = pictures.evaluate_all(PICTURE_SIZES)
    assert wide_one[:2] == [2000, 1000]
    assert wide_one[3] == "image/png"
    assert noise[:2] == [1800, 1800]
    assert noise[2] <= 3_500_000
    assert noise[3] == "image/jpeg"


def test_a_tool_is_named_and_switched_on(open_page: Open):
    page = open_page()
    tools = page.locator("#tools")
    tools.locator("summary").click()
    clock = tools.locator("[name=tool]").first
    name = clock.get_attribute("value") or ""
    clock.uncheck()
    tools.locator("summary").click()
    box = page.get_by_label("Message", exact=True)
    box.press_sequentially(f"Ask @{name[:4]}")
    page.get_by_role("option", name=re.compile(f"^{name}")).click()
    expect(box).to_have_value(f"Ask {name} ")
    expect(clock).to_be_checked()


def paste(page: Page, text: str, *, shift: bool = False) -> bool:
    """Whether the browser itself pastes it."""
    is_left: bool = page.evaluate(PASTE, [text, shift])
    return is_left


@pytest.mark.parametrize("script", [True, False])
def test_a_chat_gets_instructions_and_an_effort(open_page: Open, script: bool):
    page = open_page(java_script_enabled=script)
    page.locator(".new-options summary").click()
    page.get_by_label("Instructions", exact=True).fill("Answer in verse.")
    page.get_by_label("Effort of thinking").select_option("high")
    page.get_by_label("Message", exact=True).fill("/echo Begun")
    page.get_by_role("button", name="Send", exact=True).click()
    page.wait_for_url("**/chat/*/**")
    if script:  # the end of a turn renders the row anew, which closes its menu
        expect(page.get_by_role("button", name="Copy the answer")).to_be_visible()
    row = page.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Instructions and effort").click()
    instructions = page.get_by_label("Instructions", exact=True)
    expect(instructions).to_have_value("Answer in verse.")
    expect(page.get_by_label("Effort of thinking")).to_have_value("high")
    instructions.fill("Answer in prose.")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#dialog")).to_be_hidden()
    page.reload()
    row.locator("summary").click()
    row.get_by_role("link", name="Instructions and effort").click()
    expect(instructions).to_have_value("Answer in prose.")


def test_a_slash_without_saved_prompts_leads_to_their_page(open_page: Open):
    page = open_page()
    box = page.get_by_label("Message", exact=True)
    box.press_sequentially("/")
    option = page.get_by_role("option", name="No saved prompts yet")
    expect(option).to_be_visible()
    box.press_sequentially("e")
    expect(option).to_have_count(0)
    box.press("Backspace")
    option.click()
    expect(page.get_by_role("heading", name="Saved prompts", level=1)).to_be_visible()


def test_a_new_chat_is_still_temporary_after_a_change_of_another_and_a_reload(
    open_page: Open,
):
    page = open_page()
    box = page.get_by_label("Message", exact=True)
    box.fill("/echo about quinces")
    box.press("Enter")
    page.wait_for_url("**/chat/*/**")
    expect(page.locator(".turn-foot")).to_have_count(1)  # or the list would change
    page.goto("/")
    temporary = page.get_by_label("Temporary chat")
    temporary.check()
    box.fill("Private")
    page.locator("#file").set_input_files(
        [{"name": "plan.txt", "mimeType": "text/plain", "buffer": b"hush"}]
    )
    row = page.locator(".row", has_text="quinces").first
    row.locator("summary").click()
    row.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("heading", name="Pinned")).to_be_visible()
    expect(temporary).to_be_checked()
    expect(page.locator("#attached")).to_contain_text("plan.txt")
    page.locator(".new-options summary").click()
    page.get_by_label("Effort of thinking").select_option("high")
    page.reload()
    expect(box).to_have_value("Private")
    expect(temporary).to_be_checked()
    expect(page.get_by_label("Effort of thinking")).to_have_value("high")
    box.fill("")
    page.reload()
    expect(temporary).to_be_checked()  # a choice needs no text
    temporary.uncheck()
    page.reload()
    expect(temporary).not_to_be_checked()
    expect(page.get_by_label("Effort of thinking")).to_have_value("high")


def test_a_suggestion_is_sent_instead_of_a_typed_text_which_stays(open_page: Open):
    page = open_page("/")
    box = page.get_by_label("Message", exact=True)
    box.fill("First")
    page.locator(".suggestion", has_text="What is (17 + 25) * 3?").click()
    page.wait_for_url(re.compile("/chat/"))
    expect(last(page).locator(".asked-text")).to_have_text("What is (17 + 25) * 3?")
    page.goto(page.url.partition("/chat/")[0] + "/")
    expect(box).to_have_value("First")
