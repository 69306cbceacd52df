"""Open pages of participants: what they may send, and when they are closed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings

from conversations import engine
from conversations.access import participation
from conversations.access.participation import invite
from conversations.engine import connection_revocation, notifications
from conversations.engine.connection_revocation import (
    REVOKED,
    Credential,
    invalid,
    open_connections,
)
from conversations.http import polling_presence
from conversations.http.polling_presence import PollingPages
from conversations.models import Conversation, Participant
from conversations.requests.participant_removal import remove_participant
from conversations.streaming.consumers import ConversationConsumer
from llm import router
from llm.concurrency.per_loop import PerLoop
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tests.conversations.scene import a_user, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = [TextDelta(0, "Done."), FinishDelta("stop")]


class Page:
    """A browser of a user who is signed in."""

    def __init__(self, user: Any, conversation: Conversation) -> None:
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        name = settings.SESSION_COOKIE_NAME
        cookie = f"{name}={signed_in(user).cookies[name].value}".encode()
        self.scope = {
            "headers": [(b"cookie", cookie)],
            "url_route": {
                "args": (),
                "kwargs": {"conversation_id": conversation.pk},
            },
        }

    async def open(self) -> dict[str, Any]:
        """The first thing that the browser gets."""
        self.serving = asyncio.ensure_future(
            ConversationConsumer()(self.scope, self.inbox.get, self.sent.put)
        )
        self.inbox.put_nowait({"type": "websocket.connect"})
        return await self.get()

    async def get(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return await self.sent.get()

    async def hear(self, kind: str) -> dict[str, Any]:
        """The next message of this type."""
        while True:
            message = orjson.loads((await self.get())["text"])
            if message["type"] == kind:
                return message

    async def closed(self) -> int:
        """The code with which the server closes the page, after whatever it sent."""
        while (message := await self.get())["type"] != "websocket.close":
            pass
        return message["code"]

    def say(self, **message: Any) -> None:
        text = json.dumps(message)
        self.inbox.put_nowait({"type": "websocket.receive", "text": text})

    async def leave(self) -> None:
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await self.serving


@pytest.fixture(autouse=True)
def no_periodic_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_revocation, "INTERVAL", 10_000.0)


@pytest.fixture
def bob(conversation: Conversation) -> Any:
    return a_user("bob")


def join(conversation: Conversation, user: Any, role: str = "writer") -> Participant:
    row = invite(conversation, user.get_username(), role)
    row.accept()
    row.refresh_from_db()
    return row


async def test_a_removed_participant_s_page_is_closed_at_once(
    conversation: Conversation, running: None, bob: Any
):
    row = await sync_to_async(join)(conversation, bob, "viewer")
    theirs = await sync_to_async(Page)(bob, conversation)
    own = await sync_to_async(Page)(conversation.owner, conversation)
    for page in (theirs, own):
        assert (await page.open())["type"] == "websocket.accept"
    await sync_to_async(remove_participant)(row)
    assert await theirs.closed() == 4404
    own.say(type="ping")
    await own.hear("parley:pong")
    await own.leave()


async def test_another_process_closes_it_when_it_hears_of_it(
    conversation: Conversation, running: None, bob: Any
):
    row = await sync_to_async(join)(conversation, bob, "viewer")
    page = await sync_to_async(Page)(bob, conversation)
    await page.open()
    await sync_to_async(participation.remove)(row)
    notifications.dispatch(REVOKED)
    assert await page.closed() == 4404


async def test_a_lost_notification_is_made_up_for_by_the_periodic_check(
    conversation: Conversation, running: None, bob: Any
):
    row = await sync_to_async(join)(conversation, bob, "viewer")
    page = await sync_to_async(Page)(bob, conversation)
    await page.open()
    await sync_to_async(participation.remove)(row)
    await open_connections().check()
    assert await page.closed() == 4404


@pytest.mark.parametrize(
    "message",
    [
        {"type": "turn.create", "input": "Hi"},
        {"type": "turn.follow", "turn": "resp_1"},
        {"type": "turn.cancel", "turn": "resp_1"},
        {"type": "turn.continue", "turn": "resp_1"},
        {"type": "tool_call.cancel", "id": 1},
    ],
)
async def test_what_a_removed_participant_still_sends_is_not_carried_out(
    conversation: Conversation, running: None, bob: Any, message: dict[str, Any]
):
    row = await sync_to_async(join)(conversation, bob, "approver")
    opened = await sync_to_async(conversation.open_turn)([user_message("Mine")])
    turn = opened.turn
    page = await sync_to_async(Page)(bob, conversation)
    await page.open()
    await sync_to_async(participation.remove)(row)  # nobody has checked yet
    page.say(**{**message, **({"turn": turn.pk} if "turn" in message else {})})
    answer = await page.get()
    if answer["type"] == "websocket.close":
        assert answer["code"] == 4404
    else:
        assert orjson.loads(answer["text"])["type"] == "error"
        await page.leave()
    await sync_to_async(turn.refresh_from_db)()
    assert not turn.cancel_requested
    assert await conversation.turns.acount() == 1


async def test_strangers_and_the_invited_do_not_get_in(
    conversation: Conversation, running: None, bob: Any
):
    page = await sync_to_async(Page)(bob, conversation)
    assert (await page.open())["code"] == 4404
    await sync_to_async(invite)(conversation, "bob", "approver")
    page = await sync_to_async(Page)(bob, conversation)
    assert (await page.open())["code"] == 4404


async def test_a_viewer_follows_but_is_told_not_to_write(
    conversation: Conversation, running: None, bob: Any, say: Any
):
    say(ANSWER)
    await sync_to_async(join)(conversation, bob, "viewer")
    page = await sync_to_async(Page)(bob, conversation)
    await page.open()
    page.say(type="turn.create", input="Hi", key="k")
    error = await page.hear("error")
    assert "not write" in error["error"]["message"]
    opened = await sync_to_async(conversation.open_turn)([user_message("Mine")])
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    page.say(type="turn.cancel", turn=turn.pk)
    assert "not write" in (await page.hear("error"))["error"]["message"]
    page.say(type="turn.follow", turn=turn.pk)
    await page.hear("response.completed")
    await page.leave()


async def test_a_writer_s_turn_uses_nothing_of_the_owner(
    conversation: Conversation,
    running: None,
    bob: Any,
    say: Any,
    offer: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    """Neither keys (routes are resolved for the author), nor what tools may read."""
    callers, routed, real = [], [], router.route_of

    async def dig(context: Any, arguments: Any) -> str:
        callers.append(context.user_id)
        return "found"

    def route_of(model: Any, *, user: Any = None) -> Any:
        routed.append(user)
        return real(model, user=user)

    monkeypatch.setattr(router, "route_of", route_of)
    call = [ToolCallDelta(0, "c1", "dig", "{}"), FinishDelta("tool_calls")]
    say(call, ANSWER, ANSWER)
    offer(dig, blocking=False)
    await sync_to_async(join)(conversation, bob)
    page = await sync_to_async(Page)(bob, conversation)
    await page.open()
    page.say(type="turn.create", input="Dig", key="k")
    await page.hear("response.completed")
    opened = await page.hear("parley:turn.queued")  # for the result
    page.say(type="turn.follow", turn=opened["turn"])
    await page.hear("response.completed")
    await page.leave()
    assert callers == [bob.pk]
    assert routed
    assert set(routed) == {bob}
    authors = [turn.author_id async for turn in conversation.turns.all()]
    assert authors == [bob.pk, bob.pk]


async def test_a_turn_of_somebody_removed_fails_without_a_call(
    conversation: Conversation, running: None, bob: Any, say: Any
):
    script = say(ANSWER)

    def open_and_remove() -> Any:
        row = join(conversation, bob)
        turn = conversation.open_turn([user_message("Hi")], author=bob).turn
        row.revoke()
        return turn

    turn = await sync_to_async(open_and_remove)()
    engine.submit(turn.pk, conversation.pk)
    response = await engine.response_of(turn.pk)
    assert response["status"] == "failed"
    assert script.requests == []


async def test_streams_of_participants_are_checked_by_conversation(
    conversation: Conversation, bob: Any
):
    """The credential that REST's streams register, with a token."""

    def check() -> None:
        row = join(conversation, bob, "viewer")
        ours = Credential(bob.pk, conversation_id=conversation.pk)
        assert invalid([ours]) == set()
        row.revoke()
        assert invalid([ours]) == {ours}

    await sync_to_async(check)()


async def test_people_see_who_else_has_the_conversation_open(
    conversation: Conversation, running: None, bob: Any
):
    owner = conversation.owner.get_username()
    own = await sync_to_async(Page)(conversation.owner, conversation)
    await own.open()  # before anybody else takes part
    await sync_to_async(join)(conversation, bob, "viewer")
    theirs = await sync_to_async(Page)(bob, conversation)
    await theirs.open()
    assert (await own.hear("parley:presence"))["people"] == ["bob"]
    assert (await theirs.hear("parley:presence"))["people"] == [owner]
    await theirs.leave()
    assert (await own.hear("parley:presence"))["people"] == []
    await own.leave()


class Poller:
    """A user's page without a WebSocket."""

    def __init__(self, user: Any, conversation: Conversation) -> None:
        self._client = signed_in(user)
        self._path = f"/api/conversations/{conversation.pk}/changes/"

    async def present(self) -> Any:
        return (await sync_to_async(self._client.get)(self._path)).json()["present"]

    async def see(self, people: list[str]) -> None:
        """Poll until they are present: they answer later."""
        async with asyncio.timeout(60):
            while await self.present() != people:
                await asyncio.sleep(0)


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function after which polls reach a process that has had none."""

    def begin() -> None:
        monkeypatch.setattr(polling_presence, "pages", PerLoop(PollingPages))

    begin()
    return begin


async def test_people_without_a_websocket_see_who_is_there_and_are_seen(
    conversation: Conversation, running: None, bob: Any, another_process: Any
):
    """Their polls may reach any of several processes."""
    owner = conversation.owner.get_username()
    await sync_to_async(join)(conversation, bob, "viewer")
    own = await sync_to_async(Page)(conversation.owner, conversation)
    await own.open()
    poller = await sync_to_async(Poller)(bob, conversation)
    assert await poller.present() is None  # nobody can have answered
    await poller.see([owner])
    assert (await own.hear("parley:presence"))["people"] == ["bob"]
    another_process()
    assert await poller.present() is None
    await poller.see([owner])
    await own.leave()
    await poller.see([])


async def test_who_no_longer_polls_is_gone_without_anybody_else_s_poll(
    conversation: Conversation,
    running: None,
    bob: Any,
    monkeypatch: pytest.MonkeyPatch,
    another_process: Any,
):
    await sync_to_async(join)(conversation, bob, "viewer")
    own = await sync_to_async(Page)(conversation.owner, conversation)
    await own.open()
    monkeypatch.setattr(polling_presence, "GONE_AFTER", 0.0)
    await (await sync_to_async(Poller)(bob, conversation)).present()
    assert (await own.hear("parley:presence"))["people"] == ["bob"]
    assert (await own.hear("parley:presence"))["people"] == []
    await own.leave()


@pytest.mark.parametrize("how", ["removed", "deactivated"])
async def test_who_may_no_longer_see_the_conversation_is_gone_at_once(
    conversation: Conversation, running: None, bob: Any, how: str, another_process: Any
):
    row = await sync_to_async(join)(conversation, bob, "viewer")
    own = await sync_to_async(Page)(conversation.owner, conversation)
    await own.open()
    await (await sync_to_async(Poller)(bob, conversation)).present()
    assert (await own.hear("parley:presence"))["people"] == ["bob"]
    if how == "removed":
        await sync_to_async(remove_participant)(row)
    else:
        bob.is_active = False
        await bob.asave()
        await open_connections().check()
    assert (await own.hear("parley:presence"))["people"] == []
    await own.leave()


async def test_a_full_process_names_nobody_and_has_no_page_poll_sooner(
    conversation: Conversation,
    running: None,
    bob: Any,
    monkeypatch: pytest.MonkeyPatch,
    another_process: Any,
):
    await sync_to_async(join)(conversation, bob, "viewer")
    monkeypatch.setattr(polling_presence, "MAX_PAGES", 0)
    poller = await sync_to_async(Poller)(bob, conversation)
    # With None a page polls again at once.
    assert [await poller.present() for _ in range(2)] == [[], []]


async def test_who_is_alone_in_a_conversation_is_not_announced(
    conversation: Conversation, running: None
):
    own = await sync_to_async(Page)(conversation.owner, conversation)
    await own.open()
    client = await sync_to_async(signed_in)(conversation.owner)
    path = f"/api/conversations/{conversation.pk}/changes/"
    assert (await sync_to_async(client.get)(path)).json()["present"] == []
    await own.leave()
