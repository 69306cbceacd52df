"""What people and programs do while versions are replaced. Each function does one such
thing, and returns the laws that were broken, a sentence each."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from llm.wire.sse import SSEDecoder
from tests.chaos import checker
from tests.chaos.person import Person
from tests.chaos.provider import ChaosProvider
from tests.chaos.scenarios import ONLY_ON
from tests.chaos.wires import WIRES
from tests.chaos.wish import Wish
from tests.integration.clients import Screen
from tests.integration.following import whole

from .doors import Doors

FAST, AT_HUMAN_PACE = "demo-fast", "demo"
SCENARIOS = ("plain", "think", "loop", "parallel", "background", "hosted")
LOOK = 0.2  # seconds between looks at rows, which send no event
MESSAGES = 4  # of a chat
TAGS = "x-parley-tags"


@dataclass
class Scene:
    doors: Doors
    provider: ChaosProvider
    notes: Path  # of the chaos tools
    dice: random.Random
    #: How many model calls are to be on record, by the turns' ids or by a tag.
    calls: dict[tuple[str, ...], int] = field(default_factory=dict)

    async def send(self, conversation: str, text: str, model: str) -> str:
        """Repeated with the same key where a connection is lost."""
        key = uuid.uuid4().hex
        while True:
            try:
                return await self.doors.create_turn(
                    conversation, text, model=model, key=key
                )
            except httpx.TransportError:
                await asyncio.sleep(0.1)

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        async with self.doors.http() as http:
            return await http.post(path, json=body, headers=headers)


Act = Callable[[Scene, str], Awaitable[list[str]]]


async def ask(scene: Scene, id: str, **wish: Any) -> list[str]:
    """A message whose answer may call tools, followed through all processes."""
    scenario = scene.dice.choice(SCENARIOS)
    wire = scene.dice.choice([*ONLY_ON.get(scenario, WIRES)])
    return await _ask(scene, Wish(id=id, scenario=scenario, words=20, work=20), wire)


async def ask_at_length(scene: Scene, id: str) -> list[str]:
    """As `ask`, with an answer of many seconds."""
    wish = Wish(id=id, scenario="loop", words=40, pace=0.1, work=500)
    return await _ask(scene, wish, "anthropic")


async def _ask(scene: Scene, wish: Wish, wire: str) -> list[str]:
    person = Person([scene.doors], wish, wire)
    record = await person.live()
    ledger = scene.provider.ledger
    requests = ledger.of(wish)
    found = checker.violations(record, requests)
    found += checker.effects(scene.notes, wish.id, record.calls)
    ids = tuple(turn["id"] for turn in record.turns)
    scene.calls[ids] = len(requests)
    ledger.forget(wish)
    return found


async def chat(scene: Scene, id: str) -> list[str]:
    """Each message sees the ones before it, whichever version has answered them."""
    found, before = [], 0
    conversation = await scene.doors.conversation()
    for number in range(MESSAGES):
        text = f"{id}-{number}"
        turn = await scene.send(conversation, f"/echo {text}", FAST)
        screen = await whole(scene.doors, turn)
        row = await scene.doors.turn(turn)
        used = row["usage"]["input_tokens"]
        found += _differences(row, "completed", screen.text, text)
        if used <= before:
            found.append(f"message {number} had {used} tokens of input after {before}")
        before = used
        scene.calls[turn,] = 1
    return found


async def stop(scene: Scene, id: str) -> list[str]:
    """Of an answer that another process gives."""
    conversation, screen = await scene.doors.conversation(), Screen()
    turn = await scene.send(conversation, "/long 3000", AT_HUMAN_PACE)
    async with aclosing(scene.doors.follow(turn)) as events:
        async for position, event in events:
            screen.show(position, event)
            if screen.text:
                break
    await scene.doors.cancel(turn)
    await whole(scene.doors, turn, screen)
    row = await scene.doors.turn(turn)
    output = row["response"]["output"]
    written = output[0]["content"][0]["text"] if output else ""
    scene.calls[turn,] = 1
    return _differences(row, "cancelled", screen.text, written)


async def approve(scene: Scene, id: str) -> list[str]:
    return await decide(scene, await wait_for_approval(scene))


async def wait_for_approval(scene: Scene) -> str:
    """A turn that waits for a person's word."""
    conversation = await scene.doors.conversation()
    turn = await scene.send(conversation, "What is the weather in Paris?", FAST)

    while (await scene.doors.turn(turn))["status"] != "waiting":
        await asyncio.sleep(LOOK)
    return turn


async def decide(scene: Scene, turn: str) -> list[str]:
    async with scene.doors.http() as http:
        questions = (await http.get("/api/questions/open/")).json()["results"]
    (question,) = [each["id"] for each in questions if each["turn"] == turn]
    path = f"/api/questions/{question}/answer/"
    answer = await scene.post(path, {"action": "accept"})
    if answer.status_code != 200:
        return [f"the approval was answered {answer.status_code}: {answer.text[:200]}"]
    screen = await whole(scene.doors, turn)
    row = await scene.doors.turn(turn)
    scene.calls[turn,] = 2
    found = _differences(row, "completed", screen.text, screen.text)
    states = [call["state"] for call in row["tool_calls"]]
    if states != ["completed"]:
        found.append(f"the approved call is {states}")
    return found


def _differences(row: Any, status: str, shown: str, text: str) -> list[str]:
    found = []
    if row["status"] != status:
        found.append(f"a turn is {row['status']} ({row['error']})")
    if shown != text:
        found.append(f"{shown[:60]!r} is shown of {text[:60]!r}")
    return found


# Programs at `/v1`


def _message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


#: What a request says and how long its answer may be, by path.
BODIES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "/v1/chat/completions": _message,
    "/v1/messages": lambda text: {**_message(text), "max_tokens": 500},
    "/v1/responses": lambda text: {"input": text, "store": False},
}


async def request(scene: Scene, id: str) -> list[str]:
    """One that stores nothing, as a stream or not; repeated with its key elsewhere."""
    path, stream = scene.dice.choice([*BODIES]), scene.dice.random() < 0.5
    body = {"model": FAST, "stream": stream, **BODIES[path](f"/echo {id}")}
    headers = {TAGS: id, "Idempotency-Key": id}
    first, again = [await scene.post(path, body, **headers) for _ in range(2)]
    scene.calls[id,] = 1
    found = []
    if first.status_code != 200 or again.content != first.content:
        found.append(f"{path}: {first.status_code}, {again.status_code} with its key")
    text = _streamed(first.content) if stream else first.text
    if id not in text:
        found.append(f"{path} answered {text[:200]!r}")
    return found


def _streamed(content: bytes) -> str:
    text = ""
    for event in SSEDecoder().feed(content):
        if event.data == b"[DONE]":
            continue
        data = event.json()
        delta = (data.get("choices") or [data])[0].get("delta") or ""
        if isinstance(delta, dict):
            delta = delta.get("content") or delta.get("text") or ""
        text += delta
    return text


async def respond(scene: Scene, id: str) -> list[str]:
    """Three stored responses, each of which continues the one before."""
    found: list[str] = []
    previous = None
    ways: list[dict[str, Any]] = [{}, {"background": True}, {"stream": True}]
    for number, way in enumerate(ways):
        text = f"{id}-{number}"
        body = {"model": FAST, "input": f"/echo {text}", "store": True, **way}
        body |= {"previous_response_id": previous} if previous else {}
        answer = await scene.post("/v1/responses", body)
        if answer.status_code != 200:
            return [*found, f"a response: {answer.status_code} {answer.text[:200]}"]
        previous = _id_of(answer)
        found += await finish_response(scene, previous, text)
    return found


def _id_of(answer: httpx.Response) -> str:
    if answer.headers["content-type"].startswith("application/json"):
        return str(answer.json()["id"])
    return str(SSEDecoder().feed(answer.content)[0].json()["response"]["id"])


async def begin_response(scene: Scene, words: int) -> str:
    """In the background, at a human pace."""
    body = {"model": AT_HUMAN_PACE, "input": f"/long {words}", "background": True}
    answer = await scene.post("/v1/responses", body)
    return str(answer.raise_for_status().json()["id"])


async def finish_response(scene: Scene, id: str, text: str) -> list[str]:
    response: dict[str, Any] = {"status": "queued"}
    while response.get("status") in ("queued", "in_progress"):
        await asyncio.sleep(LOOK)
        async with scene.doors.http() as http:
            response = (await http.get(f"/v1/responses/{id}")).json()
    said = "".join(
        part["text"]
        for item in response.get("output", ())
        for part in item.get("content") or ()
    )
    if (response.get("status"), said) != ("completed", text):
        return [f"a stored response is {response.get('status')}, {said[:60]!r}"]
    return []


#: How often each is done, and the turns that it makes.
ACTS: Mapping[Act, tuple[int, int]] = {
    ask: (8, 1),
    chat: (2, MESSAGES),
    request: (6, 1),
    respond: (1, 3),
    stop: (1, 1),
    approve: (1, 1),
}


def build_acts(dice: random.Random, turns: int) -> list[Act]:
    """So many turns, in random order; each act at least once."""
    weights = Counter({act: often for act, (often, _) in ACTS.items()})
    chosen, left = [*ACTS], turns - sum(made for _, made in ACTS.values())
    while left > 0:
        (act,) = dice.choices([*weights], [*weights.values()])
        chosen.append(act)
        left -= ACTS[act][1]
    dice.shuffle(chosen)
    return chosen
