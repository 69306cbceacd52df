"""The installed app without a network: nothing is lost, and nothing is sent twice."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import (
    BrowserContext,
    Page,
    Route,
    WebSocketRoute,
    expect,
)

from tests.conftest import StartServer
from tests.integration.browser.people.test_account import sign_in, sign_out
from tests.integration.browser.test_chat import (
    NO_SOCKETS,
    STREAM,
    browser,
    expect_end,
    send_message,
    signed_in,
)
from tests.serving import PASSWORD, ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

COUNT = "from conversations.models import Turn; print('turns:', Turn.objects.count())"
#: The names of the places in which messages are kept until they have arrived.
OUTBOXES = "Object.keys(localStorage).filter(name => name.includes('outbox'))"
CONTROLLED = "() => navigator.serviceWorker.controller !== null"
STORED = """async () => {
  const found = [];
  for (const name of await caches.keys()) {
    const cache = await caches.open(name);
    for (const request of await cache.keys()) found.push(new URL(request.url).pathname);
  }
  return found;
}"""


def message_box(page: Page) -> Any:
    return page.get_by_role("textbox", name="Message")


def open_app(browser: Any, server: Any) -> tuple[BrowserContext, Page]:
    context = browser.new_context(base_url=server.url)
    page = context.new_page()
    sign_in(page, "admin")
    page.wait_for_function(CONTROLLED)
    return context, page


def test_first_messages_written_offline_are_sent_once(
    browser: Any, start_server: StartServer
):
    server = start_server()
    context, page = open_app(browser, server)
    context.set_offline(True)
    message_box(page).fill("What is 2 + 2?")
    message_box(page).press("Enter")
    expect(page.locator("#composer-errors")).to_contain_text("The message is kept")
    expect(message_box(page)).to_have_value("")
    page.goto("/")  # the app is started again, still without a network
    expect(page.get_by_role("heading", name="You are offline")).to_be_visible()
    expect(page.get_by_text("What is 2 + 2?")).to_be_visible()
    other = context.new_page()
    other.goto("/settings/")
    expect(other.get_by_role("heading", name="You are offline")).to_be_visible()
    message_box(other).fill("And 3 + 3?")
    other.get_by_role("button", name="Send later").click()
    context.set_offline(False)
    page.wait_for_url(re.compile("/chat/"))
    expect(page.locator(".turn-foot")).to_be_visible()
    page.wait_for_function("localStorage.getItem('parley:outbox:1:new') === null")
    other.goto("/")
    expect(message_box(other)).to_have_value("")
    assert "turns: 2" in server.manage("shell", "-v0", "-c", COUNT)
    context.close()


def test_what_is_stored_is_the_shell_and_leaves_with_the_user(
    browser: Any, start_server: StartServer
):
    server = start_server()
    make = "from django.contrib.auth.models import User as U;"
    make += f"U.objects.create_user('grace', password={PASSWORD!r})"
    server.manage("shell", "-v0", "-c", make)
    context, page = open_app(browser, server)
    stored = page.evaluate(STORED)
    assert "/offline/" in stored
    assert [p for p in stored if p != "/offline/" and "/static/" not in p] == []
    context.set_offline(True)
    message_box(page).fill("what only the admin may read")
    message_box(page).press("Enter")
    expect(page.locator("#composer-errors")).to_contain_text("The message is kept")
    context.clear_cookies()  # the session is over without a sign-out
    context.set_offline(False)
    sign_in(page, "grace")
    page.goto("/")
    expect(message_box(page)).to_be_visible()
    assert "turns: 0" in server.manage("shell", "-v0", "-c", COUNT)
    assert "what only the admin may read" not in page.content()
    page.wait_for_function(CONTROLLED)
    sign_out(page)
    page.wait_for_function("() => caches.keys().then(names => names.length === 0)")
    assert page.evaluate("localStorage.getItem('parley:last-user')") is None
    context.close()


class Crash:
    """Kills the server when it has stored a message, before the page hears of it."""

    def __init__(self, page: Page, server: ServerProcess) -> None:
        self._server = server
        self.is_due = False
        page.route_web_socket(re.compile("/ws/"), self._relay)
        page.route("**/api/**", self._post)

    def _relay(self, socket: WebSocketRoute) -> None:
        upstream = socket.connect_to_server()

        def receive(message: str | bytes) -> None:
            if self.is_due and "parley:turn.queued" in str(message):
                self._happen()
            else:
                socket.send(message)

        upstream.on_message(receive)

    def _post(self, route: Route) -> None:
        if not self.is_due or route.request.method != "POST":
            route.continue_()
            return
        assert route.fetch().ok
        self._happen()
        route.abort()

    def wait(self, page: Page) -> None:
        """The banner alone does not tell: a page gives up a connection that is slow,
        and sends its message again over the next one."""
        while self.is_due:
            page.wait_for_timeout(50)  # another process: no event to wait for

    def _happen(self) -> None:
        self.is_due = False
        self._server.kill()


@pytest.mark.parametrize("script", [pytest.param("", id="socket"), STREAM])
def test_a_message_whose_receipt_dies_with_the_server_is_sent_once(
    browser: Any, start_server: StartServer, script: str
):
    server = start_server()
    with signed_in(browser, server) as context:
        page = context.new_page()
        crash = Crash(page, server)
        page.add_init_script(script or "0")
        page.goto("/")
        send_message(page, "/echo first")
        expect_end(page)
        for number in (2, 3):
            crash.is_due = True
            send_message(page, f"/echo message {number}")
            crash.wait(page)
            expect(page.locator("#banner")).to_be_visible()
            server.start()
            expect(page.locator("#banner")).to_be_hidden()
            expect_end(page)
            expect(page.locator(".turn")).to_have_count(number)
        page.reload()
        expect(page.locator(".turn")).to_have_count(3)
        expect(page.locator(".turn").last).to_contain_text("message 3")
        assert "turns: 3" in server.manage("shell", "-v0", "-c", COUNT)
        assert page.evaluate(OUTBOXES) == []


def test_messages_of_a_chats_offline_page_outlive_two_crashes(
    browser: Any, start_server: StartServer
):
    server = start_server()
    context, page = open_app(browser, server)
    send_message(page, "/echo first")
    expect_end(page)
    for number in (2, 3):
        server.kill()
        page.reload()
        expect(page.get_by_role("heading", name="You are offline")).to_be_visible()
        message_box(page).fill(f"/echo message {number}")
        page.get_by_role("button", name="Send later").click()
        page.reload()  # the app is started again, before the server is
        expect(page.locator("#waiting-list")).to_have_text(f"/echo message {number}")
        server.start()
        expect(page.locator(".turn")).to_have_count(number)
        expect_end(page)
    assert "turns: 3" in server.manage("shell", "-v0", "-c", COUNT)
    assert page.evaluate(OUTBOXES) == []
    context.close()


def delete_all_chats(server: ServerProcess) -> None:
    code = "from conversations.models import Conversation as C;"
    code += "[row.delete_softly() for row in C.objects.all()]"
    server.manage("shell", "-v0", "-c", code)


GONE = "This conversation no longer exists. Your message is still here"


@pytest.mark.parametrize("sockets", ["", NO_SOCKETS])
def test_what_is_sent_to_a_deleted_chat_comes_back_in_a_new_one(
    browser: Any, start_server: StartServer, sockets: str
):
    server = start_server()
    with signed_in(browser, server) as context:
        if sockets:
            context.add_init_script(sockets)
        page = context.new_page()
        page.goto("/")
        send_message(page, "/echo one")
        expect_end(page)
        delete_all_chats(server)
        message_box(page).fill("Written for long")
        message_box(page).press("Enter")
        page.wait_for_url(server.url + "/")
        expect(message_box(page)).to_have_value("Written for long")
        expect(page.locator("#composer-errors")).to_contain_text(GONE)
        assert page.evaluate(OUTBOXES) == []


def test_what_was_kept_offline_for_a_deleted_chat_comes_back_in_a_new_one(
    browser: Any, start_server: StartServer
):
    server = start_server()
    context, page = open_app(browser, server)
    send_message(page, "/echo one")
    expect_end(page)
    context.set_offline(True)
    page.reload()
    message_box(page).fill("Written for long")
    page.get_by_role("button", name="Send later").click()
    delete_all_chats(server)
    context.set_offline(False)
    page.wait_for_url(server.url + "/")
    expect(message_box(page)).to_have_value("Written for long")
    expect(page.locator("#composer-errors")).to_contain_text(GONE)
    assert page.evaluate(OUTBOXES) == []
    context.close()
