"""Recorded answers with one field missing or of another kind: an answer or one error.

A decoder may reject an unknown shape; its output is always valid.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson
import pytest

from llm.management.commands.replay_recordings import body_of, endpoint_of
from llm.wire.delta_reader import DeltaReader, decode_body
from llm.wire.deltas import Delta
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sanitize import sanitize_json
from tests.llm.wire.test_recordings import FOLDER, GROUPS, RECORDINGS, failures

ANSWERS = {
    group: [id for id in ids if RECORDINGS[id]["response"]["status"] in range(300)]
    for group, ids in GROUPS.items()
}
DAMAGES: list[Any] = [None, "", "x", 0, 1.5, True, [], {}, [None], [{}]]
DAMAGED = 8  # places of each recording, one at a time

pytestmark = pytest.mark.skipif(not RECORDINGS, reason=f"no recordings in {FOLDER}")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of `value` with a key or index of it."""
    if isinstance(value, dict | list):
        for at in value if isinstance(value, dict) else range(len(value)):
            yield value, at
            yield from places(value[at])


def damaged(document: bytes, chance: random.Random) -> bytes:
    value = orjson.loads(document)
    container, at = chance.choice(list(places(value)))
    if chance.random() < 0.4:
        del container[at]
    else:
        container[at] = chance.choice(DAMAGES)
    return orjson.dumps(value)


def with_damage(
    body: bytes,
    *,
    stream: bool,
    chance: random.Random,
    damage: Callable[[bytes, random.Random], bytes] = damaged,
) -> bytes:
    if not stream:
        return damage(body, chance)
    lines = body.split(b"\n")
    data_lines = [n for n, line in enumerate(lines) if line.startswith(b"data: {")]
    at = chance.choice(data_lines)
    with suppress(orjson.JSONDecodeError):  # it was cut there when it was recorded
        lines[at] = b"data: " + damage(lines[at].removeprefix(b"data: "), chance)
    return b"\n".join(lines)


def read(recording: dict[str, Any], body: bytes) -> list[Delta]:
    endpoint = endpoint_of(recording)
    assert endpoint
    if recording["stream"]:
        reader = DeltaReader(endpoint.codec.decoder())
        return [*reader.feed(body), *reader.close()]
    return decode_body(endpoint.codec.decode, body)[0]


@pytest.mark.parametrize("group", ANSWERS)
def test_a_decoded_damaged_answer_can_be_published(group: str):
    assert failures(ANSWERS[group], _assert_can_be_sent) == {}


def _assert_can_be_sent(recording: dict[str, Any]) -> None:
    chance = random.Random(recording["id"])
    body = body_of(recording)
    if b"{" not in body:
        return  # nothing to damage
    for _ in range(DAMAGED):
        try:
            spoilt = with_damage(body, stream=recording["stream"], chance=chance)
        except (orjson.JSONDecodeError, IndexError):
            return  # no JSON when it was recorded
        builder = ResponseBuilder(id="resp_1", model="m")
        events = builder.start()
        builder.begin_call()
        events += builder.feed(read(recording, spoilt))
        events += builder.end_call()
        events += builder.complete()
        assert orjson.loads(orjson.dumps(events))


def littered(document: bytes, chance: random.Random) -> bytes:
    """With characters in one of its texts that no database stores."""
    value = orjson.loads(document)
    texts = [(box, at) for box, at in places(value) if isinstance(box[at], str)]
    if texts:
        container, at = chance.choice(texts)
        container[at] += "\0\ud800"
    return json.dumps(value).encode()


@pytest.mark.parametrize("group", ANSWERS)
def test_every_decoded_answer_can_be_stored(group: str):
    assert failures(ANSWERS[group], _assert_can_be_stored) == {}


def _assert_can_be_stored(recording: dict[str, Any]) -> None:
    chance = random.Random(recording["id"])
    body = body_of(recording)
    if b"{" not in body:
        return
    for _ in range(DAMAGED):
        try:
            spoilt = with_damage(
                body, stream=recording["stream"], chance=chance, damage=littered
            )
        except (orjson.JSONDecodeError, IndexError):
            return
        builder = ResponseBuilder(id="resp_1", model="m")
        builder.begin_call()
        events = builder.feed(read(recording, spoilt))
        events += builder.end_call()
        called = [builder.start_delta, builder.finish]
        encoded = orjson.dumps([events, builder.output, builder.proofs, called])
        assert sanitize_json(orjson.loads(encoded)) == orjson.loads(encoded)
