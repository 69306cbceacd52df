"""Hundreds of texts that try to run a script, in each place that shows foreign text.

The browser ignores the pages' Content-Security-Policy here, so that what the policy
would stop is found too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import StartServer
from tests.integration.browser.payloads import PAYLOADS
from tests.integration.browser.test_chat import (
    browser,
    expect_end,
    send_message,
    signed_in,
    watched,
)
from tests.serving import PATIENCE

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HIT = "window.hits = []; window.hit = (...about) => hits.push(about.join() || 'hit');"
#: Places that show a text in a frame of its own, where its scripts may run.
FRAMED = {"artifacts"}
#: What in the page would run a payload, now or when a person touches it.
FIND = r"""
() => {
  const addresses = ["href", "src", "action", "formaction", "data", "xlink:href"];
  const scheme = /^[\s\x00-\x20]*(javascript|vbscript|data:text|data:image\/svg)/i;
  const dangers = (node) =>
    (node.localName === "script" && /hit\(/.test(node.textContent) &&
      !/json/.test(node.type)) ||
    ["base", "object", "embed", "meta[http-equiv=refresh]", "marquee"].some(
      (kind) => node.matches(kind)) ||
    [...node.attributes].some(({ name, value }) =>
      name.startsWith("on") ||
      (name === "srcdoc" && /hit\(/.test(value)) ||
      (addresses.includes(name) &&
        node.localName !== "img" && // what an image contains never runs
        scheme.test(value.replace(/[\t\n\r]/g, ""))));
  for (const node of document.querySelectorAll("details")) node.open = true;
  return [...document.querySelectorAll("*")].filter(dangers).map(
    (node) => node.outerHTML.slice(0, 200));
}
"""
#: Shows each text as a stream does, in pieces, and leaves all of them in the page.
STREAM = """
async (texts) => {
  const { MarkdownStream } = await import("/static/js/markdown.js");
  const shown = document.body.appendChild(document.createElement("div"));
  for (const text of texts) {
    const stream = new MarkdownStream(
      shown.appendChild(document.createElement("div")));
    for (let end = 3; end < text.length; end += 3) stream.update(text.slice(0, end));
    stream.update(text);
    stream.end();
  }
  return shown.children.length;
}
"""


#: Nothing was loaded for half a second. Chromium's own event ("networkidle") is at
#: times left out on a loaded machine, though all requests have ended.
QUIET = """() => {
  const loads = performance.getEntriesByType("resource").map((one) => one.responseEnd);
  const isLoaded = document.readyState === "complete";
  return isLoaded && performance.now() - Math.max(0, ...loads) > 500;
}"""


@pytest.fixture
def site(browser: Browser, start_server: StartServer) -> Iterator[tuple[Page, Any]]:
    """A page, and the paths of the pages that show the payloads, by place."""
    server = start_server(SHARE_LINKS="public")
    script = "from tests.integration.browser.payloads import store_rows; store_rows()"
    pages = json.loads(server.manage("shell", "-c", script).splitlines()[-1])
    faults: list[str] = []
    with signed_in(browser, server, bypass_csp=True) as context:
        context.set_default_timeout(1000 * PATIENCE)  # until nothing is loaded any more
        page = watched(context, server.url, faults)
        page.add_init_script(HIT)
        yield page, pages
    assert faults == []


@pytest.mark.timeout(900)  # hundreds of pages, beside other tests
def test_no_payload_runs_wherever_foreign_text_is_shown(site: tuple[Page, Any]):
    page, places = site
    assert len(PAYLOADS) >= 200
    assert len(places) >= 17
    framing = page.context.new_page()
    framing.add_init_script(HIT)
    for place, paths in places.items():
        # What an artifact's frame asks for is not found; that is no fault of the page.
        look_at(framing if place in FRAMED else page, place, paths)
    page.goto("/")
    assert page.evaluate(STREAM, list(PAYLOADS)) == len(PAYLOADS)
    page.wait_for_function(QUIET)
    assert page.evaluate(FIND) == []
    assert page.evaluate("hits") == []
    page.locator("#choose-model").click()
    expect(page.locator("#dialog .model-choice").nth(50)).to_be_attached()
    assert page.evaluate(FIND) == []
    assert page.evaluate("hits") == []
    # Sent by a person, and streamed by the model as it is.
    page.reload()
    send_message(page, "/echo " + "\n\n".join(PAYLOADS[::9]))
    expect_end(page)
    expect(page.locator(".said").last).to_contain_text("hit()")
    assert page.evaluate(FIND) == []
    assert page.evaluate("hits") == []


def look_at(page: Page, place: str, paths: Iterable[str]) -> None:
    shown = ""
    for path in paths:
        page.goto(path)
        page.wait_for_function(QUIET)
        assert page.evaluate(FIND) == [], (place, path)
        assert page.evaluate("hits") == [], (place, path)
        shown += page.content()
    assert "hit()" in shown, place  # else the place shows nothing


def test_the_check_finds_what_would_run(browser: Browser):
    """Otherwise the test above would pass with a broken check."""
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.add_init_script(HIT)
    page.goto("about:blank")
    texts = [text for text in PAYLOADS if text.startswith("<")][:22]
    found = 0
    for text in texts:
        page.set_content(f"<body>{text}</body>", wait_until="domcontentloaded")
        found += bool(page.evaluate(FIND) or page.evaluate("hits"))
    context.close()
    assert found >= len(texts) - 1
