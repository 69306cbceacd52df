"""The queue over REST and WebSocket: order, change, removal, steering, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client
from django.urls import reverse

from conversations.engine import claim_store
from conversations.models import Conversation, Turn
from conversations.turns import waiting_messages
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import text_of
from tests.conversations.scene import a_user, program, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = [TextDelta(0, "Done."), FinishDelta("stop")]


@pytest.fixture
def web(conversation: Conversation) -> Client:
    return signed_in(conversation.owner)


def path_of(conversation: Conversation, name: str) -> str:
    return f"/api/conversations/{conversation.pk}/{name}/"


def post(web: Client, path: str, **data: Any) -> Any:
    return web.post(path, data, content_type="application/json")


def send(web: Client, conversation: Conversation, text: str, **fields: Any) -> Any:
    sent = post(web, path_of(conversation, "turns"), input=text, **fields)
    assert sent.status_code == 202, sent.content
    return sent.json()


def patch(web: Client, turn: str, **data: Any) -> Any:
    return web.patch(f"/api/turns/{turn}/", data, content_type="application/json")


def texts(web: Client, conversation: Conversation) -> list[str]:
    found = web.get(path_of(conversation, "queue")).json()["data"]
    return [text_of(turn["items"][0]) for turn in found]


@pytest.fixture
def line(web: Client, conversation: Conversation) -> list[str]:
    """The ids of a running turn and of two messages that wait."""
    ids = [send(web, conversation, text)["id"] for text in ("a", "b", "c")]
    assert claim_store.claim(ids[0])
    return ids


def test_messages_change_order_and_text_and_leave(web, conversation, line):
    _, b, c = line
    assert texts(web, conversation) == ["b", "c"]
    found = post(web, path_of(conversation, "queue"), order=[c, b])
    assert [turn["id"] for turn in found.json()["data"]] == [c, b]
    changed = patch(web, b, input="better")
    assert (changed.status_code, text_of(changed.json()["items"][0])) == (200, "better")
    assert web.delete(f"/api/turns/{c}/").status_code == 204
    assert texts(web, conversation) == ["better"]


def test_what_was_sent_is_refused_with_one_clear_error(web, conversation, line):
    running = line[0]
    answers = [
        patch(web, running, input="late"),
        patch(web, running, when="steer"),
        web.delete(f"/api/turns/{running}/"),
    ]
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (409, "already_sent")
        assert error["message"] == "It has been sent already."
    refused = post(web, path_of(conversation, "queue"), order=[line[1]])
    assert refused.json()["error"]["code"] == "queue_changed"


@pytest.mark.parametrize(
    ("data", "param"),
    [
        ({}, None),
        ({"input": ""}, "input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
        ({"when": "soon"}, "when"),
        ({"text": "x"}, "text"),
        ({"input": "a\0b"}, "input"),
    ],
)
def test_bad_changes_are_refused_and_change_nothing(
    web, conversation, line, data, param
):
    refused = patch(web, line[1], **data)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param
    assert texts(web, conversation) == ["b", "c"]


def test_a_change_happens_as_a_whole_or_not(web, conversation, line):
    Turn.objects.filter(pk=line[0]).update(options={"gateway": {"echo": {}}})
    refused = patch(web, line[1], input="better", when="steer")
    assert refused.json()["error"]["code"] == "cannot_steer"
    assert texts(web, conversation) == ["b", "c"]


def test_rows_of_another_user_are_not_found(conversation, line):
    eve = program(a_user("eve"))
    answers = [
        eve.get(path_of(conversation, "queue")),
        post(eve, path_of(conversation, "queue"), order=line[1:]),
        patch(eve, line[1], input="mine"),
        eve.delete(f"/api/turns/{line[1]}/"),
    ]
    assert [answer.status_code for answer in answers] == [404] * 4


def test_a_message_may_steer_or_interrupt_at_once_or_later(web, conversation, line):
    steering = send(web, conversation, "d", when="steer")
    assert steering["steering"] == "asked"
    assert patch(web, line[1], when="steer").json()["steering"] == "asked"
    assert patch(web, line[1], when="queue").json()["steering"] == ""
    send(web, conversation, "now", when="interrupt")
    assert texts(web, conversation) == ["now", "b", "c", "d"]
    assert Turn.objects.get(pk=line[0]).cancel_requested


def test_a_message_that_the_running_turn_has_taken_cannot_be_stopped_alone(
    web, conversation, line
):
    """Its text is sent all the same; the running turn can be stopped."""
    assert patch(web, line[1], when="steer").status_code == 200
    waiting_messages.take(line[0], conversation.pk)
    answer = post(web, f"/api/turns/{line[1]}/cancel/")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "already_sent"
    page = reverse("stop", args=[conversation.pk, line[1]])
    assert web.post(page).status_code == 302
    assert not Turn.objects.get(pk=line[1]).cancel_requested
    assert post(web, f"/api/turns/{line[0]}/cancel/").status_code == 200
    assert Turn.objects.get(pk=line[0]).cancel_requested


def test_a_repeated_request_neither_interrupts_again_nor_revives(
    web, conversation, line
):
    def say() -> Any:
        data = {"input": "now", "when": "interrupt"}
        return web.post(
            path_of(conversation, "turns"),
            data,
            content_type="application/json",
            headers={"Idempotency-Key": "k1"},
        )

    first = say().json()["id"]
    Turn.objects.filter(pk=line[0]).update(cancel_requested=False)
    assert say().json()["id"] == first
    assert not Turn.objects.get(pk=line[0]).cancel_requested
    assert web.delete(f"/api/turns/{first}/").status_code == 204
    again = say()
    assert (again.status_code, again.json()["error"]["code"]) == (
        409,
        "message_removed",
    )
    assert texts(web, conversation) == ["b", "c"]


# The WebSocket of an open page


async def test_an_open_page_steers_and_hears_of_every_change(page, conversation, say):
    go = asyncio.Event()
    script = say([go, *ANSWER], ANSWER)
    await page.say(type="turn.create", input="Hi", key="1")
    turn = (await page.until("parley:turn.queued"))["turn"]
    await page.until("response.created")
    await page.say(type="turn.create", input="And that", key="2", when="steer")
    message = (await page.until("parley:turn.queued"))["turn"]
    web = await sync_to_async(signed_in)(conversation.owner)
    await sync_to_async(patch)(web, message, input="And this")
    await page.until("parley:queue.changed")
    go.set()
    added = await page.until("response.output_item.done")
    while added["item"].get("role") != "user":
        added = await page.until("response.output_item.done")
    assert text_of(added["item"]) == "And this"
    await page.until("response.completed")
    asked = [i for i in script.requests[-1].items if i.get("role") == "user"]
    assert [text_of(item) for item in asked] == ["Hi", "And this"]
    assert await Turn.objects.filter(conversation=conversation).acount() == 1
    assert turn != message


async def test_an_open_page_interrupts(page, conversation, say):
    from tests.conversations.script import HANG

    say([TextDelta(0, "Part"), HANG], ANSWER)
    await page.say(type="turn.create", input="Hi", key="1")
    first = (await page.until("parley:turn.queued"))["turn"]
    await page.until("response.output_text.delta")
    await page.say(type="turn.create", input="Now", key="2", when="interrupt")
    await page.until("response.incomplete")
    await page.until("response.completed")
    assert (await Turn.objects.aget(pk=first)).status == Turn.Status.CANCELLED
