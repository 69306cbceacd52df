"""Cards of calls that run in the background, after their turn has ended, in a real
browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.integration.browser.test_chat import (
    STREAM,
    browser,
    expect_end,
    send_message,
    signed_in,
    watched,
)
from tests.serving import ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOOLS = """
from tools.models import HttpTool, Tool
for name in ("dig", "mine", "drill"):
    tool = Tool(name=name, kind="http", blocking=False, approval="never")
    tool.runs_after_untrusted = True
    tool.save()
    HttpTool.objects.create(tool=tool, url="{url}/" + name, networks="127.0.0.0/8")
"""


class Host:
    """An HTTP server whose paths answer when their gate is opened: `/mine` with an
    error, all others with text."""

    def __init__(self) -> None:
        self.gates = {name: threading.Event() for name in ("dig", "mine", "drill")}
        self.url = ""


@contextmanager
def slow_host() -> Iterator[Host]:
    host = Host()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/")
            host.gates[name].wait(60)
            body = b"gold and silver"
            self.send_response(500 if name == "mine" else 200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    host.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield host
    finally:
        for gate in host.gates.values():
            gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def call_in_background(page: Page, name: str) -> Locator:
    """The card of a call whose turn has ended while it runs."""
    send_message(page, f"/tool {name} {{}}")
    card = card_of(page, name)
    expect_end(page)
    expect(card).to_have_attribute("data-state", "executing")
    return card


def card_of(page: Page, name: str) -> Locator:
    cards = page.locator(".called:not([data-key^='result'])")
    return cards.filter(has=page.locator(f".called-name:text-is('{name}')")).first


@pytest.mark.parametrize("script", [pytest.param("", id="socket"), STREAM])
def test_cards_of_finished_turns_show_how_their_calls_end(
    browser: Browser, server: ServerProcess, script: str
):
    with slow_host() as host, signed_in(browser, server) as context:
        server.manage("shell", "--no-imports", "-c", TOOLS.format(url=host.url))
        page = watched(context, server.url, faults := [])
        page.add_init_script(script or "0")
        page.goto("/")
        for name, state in (("dig", "completed"), ("mine", "failed")):
            card = call_in_background(page, name)
            card.locator("summary").click()
            host.gates[name].set()
            expect(card).to_have_attribute("data-state", state)
            expect(card).to_have_attribute("open", "")  # it stays as the reader had it
            expect(page.locator(".turn").last).to_contain_text(f"Result of {name}")
        card = call_in_background(page, "drill")
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(card).to_have_attribute("data-state", "cancelled")
        page.reload()
        for name, state in (
            ("dig", "completed"),
            ("mine", "failed"),
            ("drill", "cancelled"),
        ):
            expect(card_of(page, name)).to_have_attribute("data-state", state)
        assert faults == []
