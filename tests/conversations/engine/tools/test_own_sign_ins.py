"""Turns whose tools act with the user's own account at an MCP server: a real server of
the SDK with its authorization server, over loopback, and the pages of the sign-in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.engine import question_store
from conversations.models import Conversation, Item, Participant, Question, Turn
from llm.http import client as http_client
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.deltas import Delta, FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tests.conversations.script import Script
from tests.tools.mcp.oauth_server import SignInServer, sign_in_server
from tests.tools.mcp.own_sign_in import agree, store_server
from tools.models import McpServer, McpSignIn, McpUserSignIn

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER: list[Delta] = [TextDelta(0, "Done."), FinishDelta("stop")]
BACK = reverse("signed-in-at-server")


def calling(*call_ids: str) -> list[Delta]:
    calls = [
        ToolCallDelta(number, call_id, "notes__whoami", "{}")
        for number, call_id in enumerate(call_ids)
    ]
    return [*calls, FinishDelta("tool_calls")]


@pytest.fixture
def server() -> Iterator[SignInServer]:
    with sign_in_server(revokes=True) as server:
        yield server


@pytest.fixture
def row(server: SignInServer) -> McpServer:
    """A reviewed server: a member of staff has signed in, for himself."""
    return store_server(server.url, User.objects.create_superuser("root"))


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def conversation(ada: User, row: McpServer) -> Conversation:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    return Conversation.objects.create(owner=ada, language_model=model)


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    def say(*calls: list[Delta]) -> Script:
        script = Script(*calls)
        monkeypatch.setattr(http_client, "stream", script)
        return script

    return say


@pytest.fixture
async def running(settings: Any) -> AsyncIterator[None]:
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()


def signed_in(user: User) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


async def submit(conversation: Conversation, author: User | None = None) -> Turn:
    opened = await sync_to_async(conversation.open_turn)(
        [user_message("Who am I?")], author=author
    )
    engine.submit(opened.turn.pk, conversation.pk)
    turn: Turn = opened.turn
    return turn


async def events_until(turn: Turn, last: str) -> list[dict[str, Any]]:
    found = []
    async for batch in engine.subscribe(turn.pk):
        for entry in batch:
            found.append(entry.event)
            if entry.type == last:
                return found
    raise AssertionError(f"no {last} in {[event['type'] for event in found]}")


async def asked(turn: Turn) -> list[dict[str, Any]]:
    events = await events_until(turn, "parley:turn.waiting")
    kind = "parley:approval.requested"
    return [event["question"] for event in events if event["type"] == kind]


async def outputs_of(turn: Turn) -> list[str]:
    await events_until(turn, "response.completed")
    rows = Item.objects.filter(turn=turn, type="function_call_output")
    return [json.dumps(row.payload["output"]) async for row in rows]


def sign_in(browser: Client, question_id: str, person: str = "Ada") -> Any:
    """From the card to the authorization server and back."""
    page = browser.get(reverse("question-sign-in", args=[question_id]))
    return browser.get(agree(page["Location"], person))


async def test_the_turn_goes_on_with_the_users_own_account(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1"), ANSWER)
    turn = await submit(conversation)
    [question] = await asked(turn)
    assert (question["kind"], question["server"]) == ("sign_in", "Team notes")
    assert question["url"] == reverse("question-sign-in", args=[question["id"]])
    browser = await sync_to_async(signed_in)(ada)
    page = await sync_to_async(browser.get)(
        reverse("conversation", args=[conversation.pk])
    )
    assert f'href="{question["url"]}"' in page.content.decode()
    assert "Sign in to Team notes" in page.content.decode()
    assert "Waiting for a sign-in" in page.content.decode()
    assert "waiting approval" not in page.content.decode()
    back = await sync_to_async(sign_in)(browser, question["id"])
    assert back["Location"].endswith(f"#turn-{turn.pk}")
    [output] = await outputs_of(turn)
    assert "Ada" in output
    found = await Question.objects.select_related("decided_by").aget()
    assert (found.state, found.decided_by) == ("accepted", ada)


async def test_who_is_signed_in_is_not_asked_again(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1"), ANSWER, calling("c2"), ANSWER)
    turn = await submit(conversation)
    [question] = await asked(turn)
    await sync_to_async(sign_in)(await sync_to_async(signed_in)(ada), question["id"])
    await outputs_of(turn)
    assert "Ada" in (await outputs_of(await submit(conversation)))[0]
    assert await Question.objects.acount() == 1


async def test_one_sign_in_answers_parallel_calls(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1", "c2"), ANSWER)
    turn = await submit(conversation)
    first, _second = await asked(turn)
    await sync_to_async(sign_in)(await sync_to_async(signed_in)(ada), first["id"])
    assert all("Ada" in output for output in await outputs_of(turn))
    assert len(await outputs_of(turn)) == 2


async def test_a_decline_is_told_to_the_model(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1"), ANSWER)
    turn = await submit(conversation)
    [question] = await asked(turn)
    browser = await sync_to_async(signed_in)(ada)
    url = reverse("question", args=[question["id"]])
    await sync_to_async(browser.post)(url, {"action": "decline", "note": "Not now"})
    [output] = await outputs_of(turn)
    assert "the user declined to sign in at Team notes: Not now" in output


async def test_a_refusal_at_the_server_leaves_the_question_open(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1"), ANSWER)
    turn = await submit(conversation)
    [question] = await asked(turn)
    browser = await sync_to_async(signed_in)(ada)
    page = await sync_to_async(browser.get)(question["url"])
    back = await sync_to_async(agree)(page["Location"], kind="Refuse")
    shown = await sync_to_async(browser.get)(back)
    assert "access was denied" in shown.content.decode()
    assert (await Question.objects.aget()).state == "open"
    await sync_to_async(sign_in)(browser, question["id"])
    assert "Ada" in (await outputs_of(turn))[0]


async def test_words_do_not_replace_the_sign_in(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1"), ANSWER)
    [question] = await asked(await submit(conversation))
    browser = await sync_to_async(signed_in)(ada)
    answer = reverse("api:answer", args=[question["id"]])
    for action in ("accept", "cancel"):
        refused = await sync_to_async(browser.post)(
            answer, {"action": action}, content_type="application/json"
        )
        assert refused.status_code == 400
    listed = await sync_to_async(browser.get)(reverse("api:open-questions"))
    [shown] = listed.json()["results"]
    assert (shown["kind"], shown["server"]) == ("sign_in", "Team notes")
    assert shown["url"] == f"http://testserver{question['url']}"


async def test_stop_ends_the_call_that_waits(
    conversation: Conversation, say: Any, running: None
):
    say(calling("c1"))
    turn = await submit(conversation)
    await asked(turn)
    await sync_to_async(engine.cancel)(turn)
    await events_until(turn, "response.incomplete")
    assert (await turn.tool_calls.aget()).state == "cancelled"
    assert (await Question.objects.aget()).state == "cancelled"


async def test_it_survives_a_restart(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1"), ANSWER)
    turn = await submit(conversation)
    [question] = await asked(turn)
    await engine.drain()
    await engine.start()
    await sync_to_async(sign_in)(await sync_to_async(signed_in)(ada), question["id"])
    assert "Ada" in (await outputs_of(turn))[0]


async def test_without_a_sign_in_in_time_the_turn_fails(
    conversation: Conversation, say: Any, running: None
):
    say(calling("c1"))
    turn = await submit(conversation)
    await asked(turn)
    await Question.objects.aupdate(expires_at=timezone.now() - timedelta(seconds=1))
    for turn_id in await sync_to_async(question_store.expire_questions)():
        engine.submit(turn_id, conversation.pk)
    events = await events_until(turn, "response.failed")
    error = events[-1]["response"]["error"]
    assert error["code"] == "E_APPROVAL_EXPIRED"


async def test_tokens_that_the_server_refuses_ask_again_in_the_same_turn(
    conversation: Conversation,
    ada: User,
    server: SignInServer,
    say: Any,
    running: None,
):
    say(calling("c1"), ANSWER, calling("c2"), calling("c3"), ANSWER)
    turn = await submit(conversation)
    [question] = await asked(turn)
    browser = await sync_to_async(signed_in)(ada)
    await sync_to_async(sign_in)(browser, question["id"])
    await outputs_of(turn)
    server.accounts.access.clear()
    server.accounts.refresh.clear()
    turn = await submit(conversation)
    [question] = await asked(turn)
    await sync_to_async(sign_in)(browser, question["id"])
    refused, output = await outputs_of(turn)
    assert "the user is asked to sign in" in refused
    assert "Ada" in output


async def test_a_writer_uses_his_own_account_only(
    conversation: Conversation, ada: User, say: Any, running: None
):
    bo = await User.objects.acreate(username="bo")
    await Participant.objects.acreate(
        conversation=conversation,
        user=bo,
        name="bo",
        role="writer",
        accepted_at=timezone.now(),
    )
    owner = await sync_to_async(signed_in)(ada)
    writer = await sync_to_async(signed_in)(bo)
    say(calling("c1"), ANSWER, calling("c2"), ANSWER)
    [question] = await asked(first := await submit(conversation))
    assert (await sync_to_async(writer.get)(question["url"])).status_code == 404
    await sync_to_async(sign_in)(owner, question["id"])
    await outputs_of(first)

    [question] = await asked(second := await submit(conversation, author=bo))
    for url in (question["url"], reverse("api:question", args=[question["id"]])):
        assert (await sync_to_async(owner.get)(url)).status_code == 404
    declined = await sync_to_async(owner.post)(
        reverse("question", args=[question["id"]]), {"action": "decline"}
    )
    assert declined.status_code == 403
    await sync_to_async(sign_in)(writer, question["id"], "Bo")
    assert "Bo" in (await outputs_of(second))[0]


async def test_nobody_completes_the_sign_in_of_another(
    conversation: Conversation, ada: User, say: Any, running: None
):
    say(calling("c1"), ANSWER)
    [question] = await asked(await submit(conversation))
    browser = await sync_to_async(signed_in)(ada)
    page = await sync_to_async(browser.get)(question["url"])
    back = await sync_to_async(agree)(page["Location"])
    bo = await User.objects.acreate(username="bo")
    await sync_to_async(browser.logout)()
    anonymous = await sync_to_async(browser.get)(back)
    assert "code" not in anonymous["Location"]
    await sync_to_async(browser.force_login)(bo)  # in the same browser
    shown = await sync_to_async(browser.get)(back)
    assert "there is no such sign-in in this browser" in shown.content.decode()
    other = await sync_to_async(signed_in)(ada)  # another session of the same user
    shown = await sync_to_async(other.get)(back)
    assert "in another session" in shown.content.decode()
    again = await sync_to_async(other.get)(back)  # it was used up
    assert "there is no such sign-in" in again.content.decode()
    assert not await McpUserSignIn.objects.exclude(user__username="root").aexists()


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Purpose": "prefetch"}]
)
async def test_other_sites_begin_no_sign_in(
    conversation: Conversation, ada: User, say: Any, running: None, headers: Any
):
    say(calling("c1"), ANSWER)
    [question] = await asked(await submit(conversation))
    browser = await sync_to_async(signed_in)(ada)
    page = await sync_to_async(browser.get)(question["url"], headers=headers)
    assert page["Location"] == reverse("question", args=[question["id"]])
    assert not await McpSignIn.objects.aexists()


async def test_signing_out_revokes_and_holds_at_once(
    conversation: Conversation,
    ada: User,
    server: SignInServer,
    say: Any,
    running: None,
):
    say(calling("c1"), ANSWER, calling("c2"), ANSWER)
    turn = await submit(conversation)
    [question] = await asked(turn)
    browser = await sync_to_async(signed_in)(ada)
    await sync_to_async(sign_in)(browser, question["id"])
    await outputs_of(turn)
    page = await sync_to_async(browser.get)(reverse("sign-ins"))
    assert "Team notes" in page.content.decode()
    listed = await sync_to_async(browser.get)(reverse("api:sign-ins"))
    [shown] = listed.json()["results"]
    assert shown["server"] == "notes"
    assert "Ada" in server.accounts.people.values()
    other = await sync_to_async(signed_in)(await User.objects.acreate(username="bo"))
    url = reverse("sign-out-of-server", args=[shown["id"]])
    assert (await sync_to_async(other.post)(url)).status_code == 404
    api = reverse("api:sign-in", args=[shown["id"]])
    assert (await sync_to_async(other.delete)(api)).status_code == 404
    assert (await sync_to_async(browser.post)(url)).status_code == 302
    held = {server.accounts.people[token] for token in server.accounts.access}
    assert held == {"Root"}
    assert (await asked(await submit(conversation)))[0]["kind"] == "sign_in"


async def test_all_users_share_one_registered_client(
    conversation: Conversation,
    ada: User,
    server: SignInServer,
    say: Any,
    running: None,
):
    say(calling("c1"), ANSWER)
    [question] = await asked(await submit(conversation))
    bo = await User.objects.acreate(username="bo")
    begun = [await sync_to_async(signed_in)(user) for user in (ada, bo)]
    await sync_to_async(begun[0].get)(question["url"])
    before = len(server.accounts.clients)
    row = await McpServer.objects.aget()
    url = reverse("sign-in-at-server", args=[row.pk])
    pages = await asyncio.gather(*(sync_to_async(each.get)(url) for each in begun))
    assert all(page.status_code == 302 for page in pages)
    assert len(server.accounts.clients) == before
