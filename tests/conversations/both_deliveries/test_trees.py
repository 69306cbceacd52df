"""One tree of turns built over REST and over the gateway: models are sent the same."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from conversations.models import Conversation
from llm.models import LanguageModel
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import text_of
from llm.wire.request import Request
from project.server.application import application
from tests.conversations.scene import a_user, bearer, signed_in
from tests.conversations.script import Script

pytestmark = pytest.mark.django_db(transaction=True)

#: What is asked, and what it follows: None begins anew.
TREE = {
    "root": None,
    "left": "root",
    "leftmost": "left",
    "right": "root",
    "rightmost": "right",
    "left again": "root",
    "between": "left",
    "another root": None,
    "another leaf": "another root",
}
Ask = Callable[[str, str | None], Awaitable[str]]


class Talk:
    """Asks over one of the APIs. Every answer names its question."""

    def __init__(self, http: httpx.AsyncClient, script: Script, model: str) -> None:
        self._http, self.model = http, model
        self.script = script

    def rest(self, conversation: str, field: str) -> Ask:
        url = f"/api/conversations/{conversation}/turns/"

        async def ask(text: str, before: str | None) -> str:
            body = {"input": text, field: before, "wait": True}
            return await self._post(url, text, body)

        return ask

    async def gateway(self, text: str, before: str | None) -> str:
        body: dict[str, Any] = {"model": self.model, "input": text}
        if before is not None:
            body["previous_response_id"] = before
        return await self._post("/v1/responses", text, body)

    async def _post(self, url: str, text: str, body: dict[str, Any]) -> str:
        self.script.calls = [[TextDelta(0, f"You ask {text}"), FinishDelta("stop")]]
        answer = await self._http.post(url, json=body)
        assert answer.status_code == 200, answer.text
        response = answer.json()
        assert response["status"] == "completed", response
        id: str = response["id"]
        return id


@pytest.fixture
async def http(conversation: Conversation, running: None) -> AsyncIterator[Any]:
    await LanguageModel.objects.aupdate(is_default=True)
    headers = await sync_to_async(bearer)(conversation.owner)
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as client:
        yield client


@pytest.fixture
def talk(http: httpx.AsyncClient, say: Any, conversation: Conversation) -> Talk:
    model = conversation.language_model
    assert model
    return Talk(http, say([FinishDelta("stop")]), model.public_name)


async def build(ask: Ask) -> dict[str, str]:
    """Ids by question."""
    ids: dict[str, str] = {}
    for text, before in TREE.items():
        ids[text] = await ask(text, ids[before] if before else None)
    return ids


def sent(request: Request) -> list[tuple[str, str]]:
    return [(item["role"], text_of(item)) for item in request.items]


def expected(text: str) -> list[tuple[str, str]]:
    before = TREE[text]
    said = []
    if before is not None:
        said = [*expected(before), ("assistant", f"You ask {before}")]
    return [*said, ("user", text)]


@pytest.mark.parametrize("field", ["parent", "previous_response_id"])
async def test_both_ways_send_the_same(
    talk: Talk, conversation: Conversation, field: str
):
    ask = talk.rest(conversation.pk, field)
    requests = talk.script.requests
    await build(ask)
    await build(talk.gateway)
    over_rest, over_gateway = requests[: len(TREE)], requests[len(TREE) :]
    assert [sent(each) for each in over_rest] == [expected(text) for text in TREE]
    assert list(map(sent, over_gateway)) == list(map(sent, over_rest))
    instructions = [each.instructions for each in over_rest]
    assert [each.instructions for each in over_gateway] == instructions


async def test_nobody_goes_on_from_a_turn_of_another_person(
    talk: Talk, http: httpx.AsyncClient, conversation: Conversation
):
    over_rest = await talk.rest(conversation.pk, "parent")("root", None)
    over_gateway = await talk.gateway("root", None)
    eve: User = await sync_to_async(a_user)("eve")
    http.headers.update(await sync_to_async(bearer)(eve))
    hers = await Conversation.objects.acreate(owner=eve)
    for before in (over_rest, over_gateway):
        body = {"input": "Go on", "previous_response_id": before}
        url = f"/api/conversations/{hers.pk}/turns/"
        refused = await http.post(url, json=body)
        assert refused.json()["error"]["code"] == "unknown_turn"
        body = {"model": talk.model, "input": "Go on", "previous_response_id": before}
        refused = await http.post("/v1/responses", json=body)
        assert refused.json()["error"]["code"] == "previous_response_not_found"
    assert not await hers.turns.aexists()


async def test_page_rest_and_gateway_agree_on_one_tree(
    talk: Talk, http: httpx.AsyncClient, conversation: Conversation
):
    ids = await build(talk.rest(conversation.pk, "parent"))
    browser = await sync_to_async(signed_in)(conversation.owner)
    for text in TREE:
        shown = await sync_to_async(on_page)(browser, conversation.pk, ids[text])
        url = f"/api/conversations/{conversation.pk}/turns/?branch={ids[text]}"
        listed = (await http.get(url)).json()["results"]
        assert shown == [(turn["id"], place_of(turn)) for turn in listed]
        assert ids[text] in [turn for turn, _ in shown]
    # The page goes on at the end of the branch that it shows, as the others do.
    body = {"text": "from the page", "branch": ids["right"]}
    talk.script.calls = [[TextDelta(0, "Yes."), FinishDelta("stop")]]
    await sync_to_async(browser.post)(f"/chat/{conversation.pk}/", body)
    added = await conversation.turns.order_by("-created_at", "-id").afirst()
    assert added
    turn = (await http.get(f"/api/turns/{added.pk}/")).json()
    assert turn["parent"] == ids["rightmost"]
    # REST names the same parents for turns that the gateway has opened.
    ids = await build(talk.gateway)
    for text, before in TREE.items():
        turn = (await http.get(f"/api/turns/{ids[text]}/")).json()
        assert turn["parent"] == (ids[before] if before else None)


def on_page(browser: Client, conversation: str, turn: str) -> list[tuple[str, str]]:
    """The turns that the page shows, with their places among their siblings."""
    page = browser.get(f"/chat/{conversation}/?branch={turn}").content.decode()
    found = []
    for article in page.split('<article class="turn')[1:]:
        id = re.search(r'data-turn="(\w+)"', article)
        place = re.search(r"</span>(\d+/\d+)</span>", article)
        if id:  # and not the template of a turn to come
            found.append((id[1], place[1] if place else "1/1"))
    return found


def place_of(turn: dict[str, Any]) -> str:
    siblings = turn["siblings"]
    return f"{siblings.index(turn['id']) + 1}/{len(siblings)}"
