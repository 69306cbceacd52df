"""Complete bodies in which the host does not say that it has ended the answer.

A proxy that collects a stream sends such a body when the stream breaks off.
"""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from llm.errors import CutOff
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.delta_reader import decode_body
from llm.wire.deltas import FinishDelta, TextDelta

TEXT = "All is"
CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": TEXT},
    "finish_reason": "stop",
}
PART = {"type": "output_text", "text": TEXT, "annotations": []}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [PART],
}
#: The codec, a body that is ended, and the object and name of what says so.
BODIES: dict[str, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {
    "chat": (
        OpenAIChatCodec(),
        {"id": "c", "model": "m", "choices": [CHOICE]},
        ("choices", 0, "finish_reason"),
    ),
    "anthropic": (
        AnthropicCodec(),
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "content": [{"type": "text", "text": TEXT}],
            "stop_reason": "end_turn",
        },
        ("stop_reason",),
    ),
    "gemini": (
        GeminiCodec(),
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": TEXT}]},
                    "finishReason": "STOP",
                }
            ]
        },
        ("candidates", 0, "finishReason"),
    ),
    "responses": (
        OpenAIResponsesCodec(),
        {"id": "resp_1", "object": "response", "status": "completed"}
        | {"output": [MESSAGE]},
        ("status",),
    ),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("is_null", [True, False])
def test_an_answer_that_its_host_has_not_ended_is_cut_off(name: str, is_null: bool):
    codec, body, path = BODIES[name]
    deltas = list(codec.decode(orjson.dumps(body)))
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == TEXT
    assert isinstance(deltas[-1], FinishDelta)
    changed = copy.deepcopy(body)
    *way, last = path
    place: Any = changed
    for step in way:
        place = place[step]
    if is_null:
        place[last] = None
    else:
        del place[last]
    deltas, error = decode_body(codec.decode, orjson.dumps(changed))
    assert isinstance(error, CutOff)
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == TEXT


def test_an_empty_finish_reason_is_one():
    """Snowflake's Chat Completions have no other."""
    codec, body, _ = BODIES["chat"]
    choices = [{**CHOICE, "finish_reason": ""}]
    deltas = list(codec.decode(orjson.dumps({**body, "choices": choices})))
    assert deltas[-1] == FinishDelta("stop", "")
