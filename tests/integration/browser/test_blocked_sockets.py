"""Pages behind a proxy that lets no WebSocket through: they show what others do."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.integration.browser.test_chat import (
    NO_SOCKETS,
    NUMBERS,
    Open,
    answer,
    asking,
    browser,
    chat_address,
    expect_end,
    open_page,
    send_message,
    signed_in,
    watched,
)
from tests.integration.browser.test_queue import waiting
from tests.integration.browser.thinking_host import ROWS, ThinkingHost
from tests.serving import ServerProcess

__all__ = ["asking", "browser", "open_page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Sockets work until `window.isBlocked`; then each is closed, and none opens.
BLOCKED_LATER = """
const Real = window.WebSocket;
window.isBlocked = false;
window.refused = 0;
window.sockets = [];
window.WebSocket = new Proxy(Real, {
  construct(Socket, given) {
    if (window.isBlocked) {
      window.refused += 1;
      const refused = { readyState: 3, close() {} };
      setTimeout(() => refused.onclose?.({ code: 1006 }), 0);
      return refused;
    }
    const socket = new Socket(...given);
    window.sockets.push(socket);
    return socket;
  },
});
"""


#: `setHidden(true)` makes the page act as in a tab behind others.
HIDEABLE = """
window.setHidden = (isHidden) => {
  const configurable = true;
  Object.defineProperty(document, "hidden", { get: () => isHidden, configurable });
  document.dispatchEvent(new Event("visibilitychange"));
};
"""
#: A proxy answers messages in words of its own, until `letThrough()`.
REFUSING = """() => {
  const real = window.fetch;
  const refused = () => new Response("<title>Too large</title>", { status: 413 });
  const isMessage = (url, options) =>
    options?.method === "POST" && String(url).endsWith("/turns/");
  window.fetch = async (url, options) =>
    isMessage(url, options) ? refused() : real(url, options);
  window.letThrough = () => (window.fetch = real);
}"""
LOOKS = re.compile(r"/changes/$")


def blocked(open_page: Open) -> Page:
    """A chat with one answer, whose page gets no WebSocket."""
    page = open_page("/", NO_SOCKETS)
    send_message(page, "/echo one")
    expect_end(page)
    return page


def wait_until(page: Page, condition: str) -> None:
    """`Page.wait_for_function` needs eval, which the pages' policy forbids."""
    page.evaluate(
        f"""() => new Promise((resolve) => {{
          const look = () => ({condition}) ? resolve() : setTimeout(look, 20);
          look();
        }})"""
    )


def test_messages_and_titles_of_another_device_arrive(open_page: Open):
    page = blocked(open_page)
    other = open_page(chat_address(page))
    send_message(other, f"/long {NUMBERS}")
    expect(answer(page)).to_contain_text("5 6")
    expect_end(page)
    expect(page.locator(".turn")).to_have_count(2)
    row = other.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    other.get_by_role("dialog").get_by_label("Title").fill("Named elsewhere")
    other.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page).to_have_title(re.compile("^Named elsewhere"))
    expect(page.locator(".row.is-current .row-link")).to_contain_text("Named elsewhere")


def test_another_chat_gets_its_new_title(open_page: Open):
    first = blocked(open_page)
    page = open_page("/", NO_SOCKETS)
    send_message(page, "/echo second")
    expect_end(page)
    expect(page.locator(".row", has_text="/echo one").first).to_be_visible()
    row = first.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    first.get_by_role("dialog").get_by_label("Title").fill("First, renamed")
    first.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator(".row-link", has_text="First, renamed")).to_be_visible()


def test_waiting_messages_change_as_another_device_changes_them(open_page: Open):
    page = blocked(open_page)
    send_message(page, f"/long {10 * NUMBERS}")
    expect(answer(page)).to_contain_text("1 2 3")
    send_message(page, "Second")
    send_message(page, "Third")
    expect(waiting(page)).to_have_text(["Second", "Third"])
    other = open_page(chat_address(page))
    expect(waiting(other)).to_have_text(["Second", "Third"])
    other.get_by_label("Send earlier").last.click()
    expect(waiting(page)).to_have_text(["Third", "Second"])
    other.locator(".queued summary").last.click()
    other.get_by_label("Waiting message").last.fill("Second, better")
    other.get_by_role("button", name="Save").last.click()
    expect(waiting(page)).to_have_text(["Third", "Second, better"])
    other.get_by_label("Remove from the queue").first.click()
    expect(waiting(page)).to_have_text(["Second, better"])
    send_message(other, "Fourth")
    expect(waiting(page)).to_have_text(["Second, better", "Fourth"])


def test_a_decision_made_elsewhere_shows_while_another_is_open(
    browser: Browser, asking: ServerProcess
):
    with ThinkingHost() as host, signed_in(browser, asking) as context:
        asking.manage("shell", "-c", ROWS.replace("{url}", host.url))
        page = watched(context, asking.url, faults := [])
        page.add_init_script(NO_SOCKETS)
        page.goto("/")
        send_message(page, "calculate 6 * 7; 6 * 8")
        expect(page.locator(".question")).to_have_count(2)
        other = watched(context, asking.url, faults)
        other.goto(chat_address(page))
        other.locator(".question").first.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("button", name="Approve")).to_have_count(1)
        other.locator(".question").last.get_by_role("button", name="Approve").click()
        expect_end(page)
        assert faults == []


def test_a_page_goes_on_when_its_network_begins_to_refuse_sockets(open_page: Open):
    page = open_page("/", BLOCKED_LATER)
    send_message(page, "/echo one")
    expect_end(page)
    page.reload()
    wait_until(page, "sockets[0]?.readyState === 1")
    page.evaluate("isBlocked = true; sockets[0].close()")
    other = open_page(chat_address(page))
    send_message(other, "/echo from elsewhere")
    expect(answer(page)).to_have_text("from elsewhere")
    expect(page.locator("#banner")).to_be_hidden()
    send_message(page, "/echo from here")
    expect(answer(page)).to_have_text("from here")


def test_a_page_that_was_cut_off_shows_what_changed_meanwhile(open_page: Open):
    page = open_page("/", BLOCKED_LATER)
    send_message(page, "/echo one")
    expect_end(page)
    page.reload()
    wait_until(page, "sockets[0]?.readyState === 1")
    other = open_page(chat_address(page))
    send_message(other, f"/long {10 * NUMBERS}")
    expect(answer(other)).to_contain_text("1 2 3")
    send_message(other, "Second")
    expect(waiting(page)).to_have_text(["Second"])
    page.route(LOOKS, lambda route: route.abort("internetdisconnected"))
    page.evaluate("isBlocked = true; sockets[0].close()")
    expect(page.locator("#banner")).to_be_visible()
    other.locator(".queued summary").last.click()
    other.get_by_label("Waiting message").last.fill("Second, better")
    other.get_by_role("button", name="Save").last.click()
    row = other.locator(".row.is-current")
    row.locator("summary").click()
    row.get_by_role("link", name="Rename", exact=True).click()
    other.get_by_role("dialog").get_by_label("Title").fill("Named elsewhere")
    other.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(other).to_have_title(re.compile("^Named elsewhere"))
    page.evaluate("isBlocked = false")
    expect(waiting(page)).to_have_text(["Second, better"])
    expect(page).to_have_title(re.compile("^Named elsewhere"))


def test_a_page_looks_on_after_answers_of_a_captive_portal(open_page: Open):
    page = blocked(open_page)
    portal = "<!doctype html><title>Sign in to this network</title>"
    page.route(
        LOOKS, lambda route: route.fulfill(content_type="text/html", body=portal)
    )
    with page.expect_response(LOOKS), page.expect_response(LOOKS):
        pass
    expect(page.locator("#banner")).to_be_visible()
    page.unroute(LOOKS)
    send_message(open_page(chat_address(page)), "/echo from elsewhere")
    expect(answer(page)).to_have_text("from elsewhere")
    expect(page.locator("#banner")).to_be_hidden()


def test_a_message_that_a_proxy_refuses_holds_up_no_other(open_page: Open):
    page = blocked(open_page)
    page.evaluate(REFUSING)
    send_message(page, "/echo large")
    expect(page.get_by_text("The message was refused.")).to_be_visible()
    expect(page.get_by_label("Message", exact=True)).to_have_value("/echo large")
    page.evaluate("() => window.letThrough()")
    send_message(page, "/echo small")
    expect(answer(page)).to_have_text("small")


def test_a_change_that_could_not_be_shown_is_shown_later(open_page: Open):
    page = blocked(open_page)
    broken: list[str] = []

    def break_first(route: Route) -> None:
        if len(broken) == 2:
            route.fallback()
            return
        broken.append(route.request.url)
        route.fulfill(content_type="text/html", body="<p>Nothing here</p>")

    page.route(re.compile(r"/chat/[^/]+/\?branch="), break_first)
    send_message(open_page(chat_address(page)), "/echo from elsewhere")
    expect(answer(page)).to_have_text("from elsewhere")
    assert len(broken) == 2


def test_a_page_obeys_who_wants_to_be_left_alone_and_shows_no_lost_connection(
    browser: Browser, shared_server: ServerProcess
):
    with signed_in(browser, shared_server) as context:
        page = watched(context, shared_server.url, [])
        page.add_init_script(NO_SOCKETS)
        page.goto("/")
        send_message(page, "/echo one")
        expect_end(page)
        page.clock.install()
        looks: list[str] = []

        def refuse(route: Route) -> None:
            looks.append(route.request.url)
            route.fulfill(status=429, headers={"Retry-After": "120"}, json={})

        with page.expect_response(lambda seen: seen.status == 429):
            page.route(LOOKS, refuse)
            page.clock.run_for(4_000)
        page.clock.run_for(90_000)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.clock.run_for(20_000)
        assert len(looks) == 1
        expect(page.locator("#banner")).to_be_hidden()
        with page.expect_response(LOOKS):
            page.clock.run_for(20_000)


def test_a_hidden_tab_looks_rarely_and_at_once_when_it_is_shown(open_page: Open):
    page = open_page("/", NO_SOCKETS + HIDEABLE)
    send_message(page, "/echo one")
    expect_end(page)
    page.clock.install()
    page.evaluate("setHidden(true)")
    page.clock.run_for(10_000)  # a look that was due
    looks: list[str] = []
    page.on("request", lambda sent: LOOKS.search(sent.url) and looks.append(sent.url))
    page.clock.run_for(119_000)
    assert len(looks) <= 2
    with page.expect_response(LOOKS):
        page.evaluate("setHidden(false)")
        page.clock.run_for(100)


def test_sockets_that_work_again_are_used_and_no_event_is_lost_or_doubled(
    open_page: Open,
):
    page = open_page("/", BLOCKED_LATER)
    send_message(page, "/echo one")
    expect_end(page)
    page.reload()
    wait_until(page, "sockets[0]?.readyState === 1")
    page.clock.install()
    page.evaluate("isBlocked = true; sockets[0].close()")
    other = open_page(chat_address(page))
    send_message(other, f"/long {3 * NUMBERS}")
    expect(answer(page)).to_contain_text("1 2 3")
    page.evaluate("isBlocked = false")
    page.clock.fast_forward("05:00")
    wait_until(page, "sockets[1]?.readyState === 1")
    expect(answer(page)).not_to_contain_text(str(3 * NUMBERS))  # the answer runs on
    expect_end(page)
    numbers = " ".join(str(number) for number in range(1, 3 * NUMBERS + 1))
    expect(answer(page)).to_have_text(numbers)
    page.route(LOOKS, lambda route: route.abort("internetdisconnected"))
    send_message(other, "/echo over the socket")
    expect(answer(page)).to_have_text("over the socket")
    send_message(page, "/echo from here")
    expect(answer(page)).to_have_text("from here")
    expect(page.locator(".turn")).to_have_count(4)


def test_a_page_checks_once_at_a_time_whether_its_network_refuses_sockets(
    open_page: Open,
):
    page = open_page("/", BLOCKED_LATER)
    send_message(page, "/echo one")
    expect_end(page)
    page.reload()
    wait_until(page, "sockets[0]?.readyState === 1")
    waiting_checks: list[Route] = []
    page.route(LOOKS, lambda route: waiting_checks.append(route))
    page.evaluate("isBlocked = true; sockets[0].close()")
    wait_until(page, "refused >= 4")
    assert len(waiting_checks) == 1
    page.evaluate("isBlocked = false")
    wait_until(page, "sockets[1]?.readyState === 1")
    waiting_checks[0].continue_()
    page.unroute(LOOKS)
    send_message(page, "/echo from here")
    expect(answer(page)).to_have_text("from here")
    assert page.evaluate("sockets.length") == 2
