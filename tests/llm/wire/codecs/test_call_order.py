"""Histories that one API allows, and how every host takes them."""

from __future__ import annotations

import hashlib
from itertools import permutations
from typing import Any

import orjson
import pytest

from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.call_order import NOT_RUN, pair_calls
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.items import Issuer, Item, call_ids, message, user_message
from llm.wire.request import Request
from tests.llm.strict import chat, gemini, messages, responses
from tests.llm.strict.rules import TOOL, refusal

ISSUER: Issuer = {"provider": "openai", "model": "m", "route": "1:1"}
HOSTS = pytest.mark.parametrize(
    ("codec", "host"),
    [
        (OpenAIChatCodec(), chat),
        (GeminiCodec(), gemini),
        (AnthropicCodec(), messages),
        (OpenAIResponsesCodec(), responses),
    ],
    ids=["chat", "gemini", "messages", "responses"],
)
ASKED = user_message("Look.")


def call(id: str) -> Item:
    arguments = '{"at": "north"}'
    fields = {"call_id": id, "name": "look", "arguments": arguments}
    return {"type": "function_call", **fields}


def output(id: str) -> Item:
    return {"type": "function_call_output", "call_id": id, "output": f"found {id}"}


CUSTOM = {"type": "custom_tool_call", "call_id": "a", "name": "look", "input": "north"}
CUSTOM_OUTPUT = {**output("a"), "type": "custom_tool_call_output"}
HURRY, BRIEF = user_message("Hurry."), message("developer", "Be brief.")
MID, END = message("assistant", "One moment."), user_message("And?")
#: What is sent in the Responses API's order, and as other APIs want it.
CASES = {
    "a user speaks between": ([call("a"), HURRY, output("a")], "a> a HURRY"),
    "an instruction comes between": ([call("a"), BRIEF, output("a")], "a> a BRIEF"),
    "one output is late": (
        [call("a"), call("b"), output("a"), MID, output("b")],
        "a> b> a b MID",
    ),
    "a call follows before the output of another": (
        [call("a"), call("b"), output("b"), call("c"), output("a"), output("c")],
        "a> b> a b c> c",
    ),
    "a call has no output": ([call("a"), HURRY], "a> a? HURRY"),
    "one of two has no output": (
        [call("a"), call("b"), output("b"), MID],
        "a> b> a? b MID",
    ),
    "the last call has no output": ([call("a")], "a> a?"),
    "an id is used again": (
        [call("a"), HURRY, output("a"), MID, call("a"), BRIEF, output("a")],
        "a> a HURRY MID a> a BRIEF",
    ),
    "an output comes before its call": (
        [output("a"), call("a"), call("b"), HURRY, output("b")],
        "a> b> a b HURRY",
    ),
    "the first call with an id has no output": (
        [call("a"), HURRY, call("a"), output("a")],
        "a> a? HURRY a> a",
    ),
}
NAMES = {id(HURRY): "HURRY", id(BRIEF): "BRIEF", id(MID): "MID"}


def shown(items: Any) -> str:
    words = []
    for item in items:
        if item["type"].endswith("_call"):
            words.append(f"{item['call_id']}>")
        elif "call_id" in item:
            is_missing = item["output"] == NOT_RUN
            words.append(item["call_id"] + ("?" if is_missing else ""))
        else:
            words.append(NAMES[id(item)])
    return " ".join(words)


def paired(items: list[Item], *, moves: bool = True) -> Any:
    return pair_calls(items, call_ids(items)[1], moves=moves)


@pytest.mark.parametrize("case", CASES)
def test_outputs_follow_the_calls_of_their_round(case: str):
    items, expected = CASES[case]
    assert shown(paired(items)) == expected
    assert paired(paired(items)) == paired(items)


def test_the_output_of_a_custom_call_is_moved_too():
    assert paired([CUSTOM, HURRY, CUSTOM_OUTPUT]) == [CUSTOM, CUSTOM_OUTPUT, HURRY]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([output("a"), call("a"), HURRY, output("a")], "a a> a HURRY"),
        ([output("a"), HURRY, call("a")], "a HURRY a> a?"),  # of an earlier turn
    ],
)
def test_an_earlier_output_is_taken_only_where_it_must_be_the_calls(
    items: list[Item], expected: str
):
    assert shown(paired(items)) == expected


def test_the_responses_api_gets_an_early_output_behind_its_call():
    items = [output("a"), call("a"), HURRY]
    assert shown(paired(items, moves=False)) == "a> a HURRY"


def test_outputs_of_one_id_go_to_the_last_round_first():
    outputs = [output("a") for _ in range(3)]
    items = paired([call("a"), call("a"), HURRY, call("a"), *outputs])
    assert shown(items) == "a> a> a a HURRY a> a"
    assert items[-1] is outputs[0]
    assert items[2] is outputs[1]


@pytest.mark.parametrize("case", CASES)
@HOSTS
def test_every_host_takes_them(codec: Codec, host: Any, case: str):
    items = [ASKED, *CASES[case][0], END]
    request = Request(model="m", items=items, tools=[TOOL])
    body = orjson.loads(orjson.dumps(codec.encode(request)))
    assert refusal(host.RULES, body, ISSUER) is None
    assert b"found a" in orjson.dumps(body) or "no output" in case


@HOSTS
def test_any_order_of_outputs_and_words_will_do(codec: Codec, host: Any):
    rest = [output("a"), output("b"), HURRY, MID, BRIEF]
    for order in permutations(rest):
        items = [ASKED, call("a"), call("b"), *order, END]
        request = Request(model="m", items=items, tools=[TOOL])
        body = orjson.loads(orjson.dumps(codec.encode(request)))
        assert refusal(host.RULES, body, ISSUER) is None, order
        sent = orjson.dumps(body)
        assert all(
            each in sent for each in (b"found a", b"found b", b"Hurry", b"brief")
        )
        assert NOT_RUN.encode() not in sent


@pytest.mark.parametrize(
    "items",
    [
        [ASKED, call("a"), call("b"), output("b"), output("a"), MID],
        [ASKED, MID, call("a"), MID, call("b"), output("a"), output("b"), END],
        [ASKED, CUSTOM, MID, END],  # of xAI's own
        [ASKED, output("a"), END],
    ],
)
def test_what_every_host_takes_is_left_alone(items: list[Item]):
    assert paired(items) is items


@HOSTS
def test_ids_that_repeat_are_numbered_on(
    codec: Codec, host: Any, monkeypatch: pytest.MonkeyPatch
):
    """Numbered from the beginning, 4,000 of them stopped the process for 17 s."""
    hashed = []
    digest = hashlib.sha256
    monkeypatch.setattr(
        hashlib, "sha256", lambda data: hashed.append(data) or digest(data)
    )
    many = 60
    items = [ASKED, *([call("a"), HURRY] * many), *([output("a")] * many), END]
    codec.encode(Request(model="m", items=items, tools=[TOOL]))
    assert len(hashed) <= 3 * many


def test_the_responses_api_gets_the_clients_order():
    items = [call("a"), call("b"), HURRY, output("a")]
    assert shown(paired(items, moves=False)) == "a> b> b? HURRY a"
