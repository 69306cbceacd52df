"""A conversation that people share, with their pages open, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.conftest import StartServer
from tests.integration.browser.test_chat import (
    NO_SOCKETS,
    STREAM,
    answer,
    browser,
    chat_address,
    expect_end,
    last,
    send_message,
    session,
    signed_in,
    watched,
)
from tests.integration.browser.test_queue import choose, waiting
from tests.integration.browser.thinking_host import ROWS, ThinkingHost
from tests.serving import PASSWORD, ServerProcess

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PEOPLE = (("bob", "writer"), ("carol", "approver"), ("dan", "viewer"))
#: Before the first test: the people, and a tool that asks.
PREPARE = f"""
from django.contrib.auth.models import User
from tools.models import Tool
Tool.objects.filter(name="calculator").update(approval="always")
for name, _ in {PEOPLE}:
    User.objects.create_user(name, password="{PASSWORD}")
"""
JOIN = f"""
from django.contrib.auth.models import User
from django.utils import timezone
from conversations.models import Conversation
row = Conversation.objects.get(pk="{{chat}}")
for name, role in {PEOPLE}:
    user = User.objects.get(username=name)
    row.participants.create(
        user=user, name=name, role=role, accepted_at=timezone.now()
    )
"""
LEAVE = """
from django.utils import timezone
from conversations.models import Participant
bob = Participant.objects.filter(name="bob", conversation="{chat}")
bob.update(revoked_at=timezone.now())
"""
LONG = "hold it at length 40"


@dataclass
class Scene:
    """A chat with one answer; `open(name)` opens it as another participant."""

    owner: Page
    host: ThinkingHost
    server: ServerProcess
    browser: Browser
    open_contexts: ExitStack
    faults: list[str] = field(default_factory=list)

    def open(self, name: str, script: str = "0") -> Page:
        context = self.browser.new_context(
            base_url=self.server.url,
            storage_state=session(self.browser, self.server, name),
        )
        self.open_contexts.callback(context.close)
        page = watched(context, self.server.url, self.faults)
        page.add_init_script(script)
        page.goto(chat_address(self.owner))
        expect(page.locator(".turn .turn-foot")).to_be_visible()
        return page


@pytest.fixture(scope="module")
def module_host() -> Iterator[ThinkingHost]:
    with ThinkingHost() as host:
        yield host


@pytest.fixture(scope="module")
def site(start_module_server: StartServer, module_host: ThinkingHost) -> ServerProcess:
    """A server with the people, who share a new chat in each test."""
    server = start_module_server()
    rows = ROWS.replace("{url}", module_host.url)
    server.manage("shell", "--no-imports", "-c", rows + PREPARE)
    return server


@pytest.fixture
def scene(
    browser: Browser, site: ServerProcess, module_host: ThinkingHost
) -> Iterator[Scene]:
    module_host.begin_anew()
    with signed_in(browser, site) as context, ExitStack() as contexts:
        faults: list[str] = []
        owner = watched(context, site.url, faults)
        owner.goto("/")
        send_message(owner, "begin")
        expect_end(owner)
        chat = chat_address(owner).rstrip("/").rpartition("/")[2]
        site.manage("shell", "--no-imports", "-c", JOIN.replace("{chat}", chat))
        owner.reload()
        yield Scene(owner, module_host, site, browser, contexts, faults)
        assert faults == []
    module_host.go_on.set()  # what a test has not let end


def test_people_see_who_else_is_there_also_without_a_websocket(scene: Scene):
    bob, carol = scene.open("bob", NO_SOCKETS), scene.open("carol")
    for page, names in (
        (bob, "admin, carol"),
        (scene.owner, "bob, carol"),
        (carol, "admin, bob"),
    ):
        expect(page.locator("#present [data-slot=names]")).to_have_text(names)


def run_long(page: Page) -> None:
    send_message(page, LONG)
    expect(last(page).locator(".said")).to_contain_text("-2")


@pytest.mark.parametrize("script", [pytest.param("0", id="socket"), STREAM])
def test_two_people_queue_behind_one_answer(scene: Scene, script: str):
    owner, bob = scene.owner, scene.open("bob", script)
    run_long(owner)
    expect(bob.locator("#stop")).to_be_visible()
    send_message(bob, "bob's")
    expect(waiting(owner)).to_have_text(["bob's"])
    send_message(owner, "owner's")
    for page in (owner, bob):
        expect(waiting(page)).to_have_text(["bob's", "owner's"])
    # Each may change only what they wrote.
    assert owner.locator(".queued .queued-actions").count() == 1
    bob.locator(".queued summary").first.click()
    bob.get_by_label("Waiting message").fill("bob's, better")
    bob.get_by_role("button", name="Save").last.click()
    expect(waiting(owner)).to_have_text(["bob's, better", "owner's"])
    owner.get_by_label("Send earlier").last.click()
    expect(waiting(bob)).to_have_text(["owner's", "bob's, better"])
    owner.get_by_label("Remove from the queue").click()
    expect(waiting(bob)).to_have_text(["bob's, better"])
    scene.host.go_on.set()
    for page in (owner, bob):
        expect(page.locator(".turn:visible .turn-foot")).to_have_count(3)
        expect(page.locator("#queue")).to_be_hidden()
    texts = owner.locator(".turn:visible .asked-text")
    expect(texts).to_have_text(["begin", LONG, "bob's, better"])
    if script != "0":
        scene.faults.clear()  # the stream of a message that was removed ends with 404


def test_somebody_else_interrupts(scene: Scene):
    owner, bob = scene.owner, scene.open("bob")
    run_long(owner)
    choose(bob, "no, this", "Interrupt")
    for page in (owner, bob):
        expect(page.locator(".turn:visible .turn-foot")).to_have_count(3)
        expect(page.locator(".turn:visible").nth(1)).to_contain_text("Stopped")
        expect(last(page).locator(".asked-text")).to_have_text("no, this")


def test_a_message_steers_a_turn_that_waits_and_the_others_see_it(scene: Scene):
    owner, bob = scene.owner, scene.open("bob")
    send_message(owner, "calculate 6 * 7")
    expect(owner.locator(".question")).to_be_visible()
    choose(owner, "in German, please", "Steer")
    expect(bob.locator(".queued-text")).to_have_text("in German, please")
    expect(bob.locator(".queued-state")).to_have_text("Joins at the next step")
    owner.get_by_role("button", name="Approve").click()
    for page in (owner, bob):
        expect_end(page)
        steered = last(page).locator(".answer .is-steering .asked-text")
        expect(steered).to_have_text("in German, please")
        expect(page.locator(".turn:visible")).to_have_count(2)
    sent = scene.host.requests[-1]["messages"]
    assert [each["role"] for each in sent][-1] == "user"


@pytest.mark.parametrize("script", [pytest.param("0", id="socket"), STREAM])
def test_an_approver_decides_and_others_see_it(scene: Scene, script: str):
    owner, carol = scene.owner, scene.open("carol", script)
    bob = scene.open("bob", script)
    send_message(owner, "calculate 6 * 7; 6 * 8")
    for page in (owner, carol):
        expect(page.get_by_role("button", name="Approve")).to_have_count(2)
    expect(bob.locator(".question")).to_have_count(2)
    expect(bob.get_by_role("button", name="Approve")).to_have_count(0)
    carol.get_by_role("button", name="Approve").first.click()
    expect(owner.get_by_role("button", name="Approve")).to_have_count(1)
    expect(bob.locator(".question[data-state=open]")).to_have_count(1)
    owner.get_by_role("button", name="Decline").click()
    for page in (owner, carol, bob):
        expect_end(page)
        expect(page.locator(".question")).to_have_count(0)
    last(owner).locator(".called > summary").first.click()
    expect(last(owner).locator(".called").first).to_contain_text("Approved by carol")


def test_cards_stand_in_the_order_of_the_calls(scene: Scene):
    """Whichever is answered first."""
    owner = scene.owner
    requests: list[Route] = []

    def delay_first(route: Route) -> None:
        requests.append(route)
        if len(requests) > 1:
            route.continue_()

    owner.route(re.compile(r"/questions/[^/]+/$"), delay_first)
    send_message(owner, "calculate 6 * 7; 6 * 8")
    cards = owner.locator(".question")
    expect(cards).to_have_count(1)
    expect(cards).to_contain_text("6 * 8")
    requests[0].continue_()
    expect(cards).to_contain_text(["6 * 7", "6 * 8"])


@pytest.mark.parametrize("way", ["button", "key"])
def test_a_waiting_call_is_stopped_for_all(scene: Scene, way: str):
    owner, carol = scene.owner, scene.open("carol")
    send_message(owner, "calculate 6 * 7; 6 * 8")
    expect(carol.get_by_role("button", name="Approve")).to_have_count(2)
    if way == "key":
        carol.keyboard.press("Escape")
    else:
        carol.get_by_role("button", name="Stop the answer").click()
    for page in (owner, carol):
        expect_end(page, "cancelled")
        expect(page.locator(".question")).to_have_count(0)
    send_message(owner, "go on")
    for page in (owner, carol):
        expect(page.locator(".turn")).to_have_count(3)
        expect_end(page)


def test_a_viewer_sees_but_changes_nothing(scene: Scene):
    owner, dan = scene.owner, scene.open("dan")
    run_long(owner)
    send_message(owner, "waits")
    expect(waiting(dan)).to_have_text(["waits"])
    assert dan.locator(".queued button:visible").count() == 0
    assert dan.locator("#stop:visible").count() == 0
    dan.keyboard.press("Escape")
    assert "Stopping" not in last(dan).inner_text()
    scene.host.go_on.set()
    expect(dan.locator(".turn:visible .turn-foot")).to_have_count(3)
    text = answer(owner).inner_text()
    expect(answer(dan)).to_have_text(text)
    expect(dan.get_by_label("Message", exact=True)).to_be_hidden()


def test_somebody_removed_leaves_the_page(scene: Scene):
    bob = scene.open("bob", NO_SOCKETS)
    scene.faults.clear()
    chat = chat_address(bob).rstrip("/").rpartition("/")[2]
    scene.server.manage("shell", "--no-imports", "-c", LEAVE.replace("{chat}", chat))
    expect(bob.locator(".turn")).to_have_count(0)
    scene.faults.clear()  # the console reports each 404
