"""Each switch of a host changes what is sent, of Parley's own requests and of a body
of Chat Completions that a client has written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from llm.adaptation.forwarding import forwards
from llm.capabilities import Capabilities
from llm.errors import BadRequest
from llm.provider import Endpoint, Route
from llm.providers import all_providers
from llm.wire.codecs.openai_chat.quirks import QUIRKS
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.request import Request

ADDRESS = "https://pictures.test/a.png"
INLINE = "data:image/png;base64,aGk="
SCHEMA = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}},
    "$defs": {"A": {"type": "string"}},
}
FUNCTION = {"name": "f", "parameters": SCHEMA, "strict": True}
FILE = {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}
BODY: dict[str, Any] = {
    "max_tokens": 20,
    "stream": True,
    "n": 2,
    "messages": [
        {"role": "system", "content": "A"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "B"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
}


def a_message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


OWN = Request(
    model="m",
    items=[
        a_message("system", {"type": "input_text", "text": "A"}),
        a_message("user", {"type": "input_text", "text": "hi"}),
        a_message("system", {"type": "input_text", "text": "B"}),
    ],
    tools=[{"type": "function", **FUNCTION}],
    tool_choice="required",
    max_output_tokens=20,
    stream=True,
)
IMAGE = a_message("user", {"type": "input_image", "image_url": ADDRESS})
PDF = a_message("user", {"type": "input_file", **FILE})


def codec_with(**quirks: bool) -> Any:
    return all_providers()["openai_compatible"].codec("", {"quirks": quirks})


def encoded(codec: Any, request: Request) -> str:
    try:
        return json.dumps(codec.encode(request))
    except BadRequest as exc:
        return str(exc)


def forwarded(body: dict[str, Any], **quirks: bool) -> dict[str, Any] | None:
    """What the host gets of the body; None if it is written anew for it."""
    codec = codec_with(**quirks)
    host = all_providers()["openai_compatible"]
    endpoint = Endpoint(provider=host, codec=codec, base_url="https://a.test/v1")
    route = Route(name="p/m", model="m", endpoint=endpoint, capabilities=Capabilities())
    if not forwards("openai_chat", body, route):
        return None
    sent = ForwardedBody(api="openai_chat", fields=body, convert=lambda route: None)
    return dict(codec.forward(Request(model="m", items=(), forwarded=sent)))


@pytest.mark.parametrize("name", [name for name in QUIRKS if "think" not in name])
def test_a_switch_changes_parleys_own_requests(name: str):
    items = {"image_urls": [IMAGE], "files": [PDF]}.get(name, OWN.items)
    request = replace(OWN, items=items)
    on, off = (encoded(codec_with(**{name: is_on}), request) for is_on in (True, False))
    assert on != off


def test_an_answer_may_lack_the_tag_that_the_prompt_has():
    said = {"message": {"content": "Hm.\n</think>Yes."}, "finish_reason": "stop"}
    answer = json.dumps({"choices": [said]}).encode()
    on, off = (
        list(codec_with(think_begun=is_on).decode(answer)) for is_on in (True, False)
    )
    texts = [type(delta).__name__ for delta in on if hasattr(delta, "text")]
    assert texts == ["ReasoningDelta", "TextDelta"]
    assert [d.text for d in off if hasattr(d, "text")] == ["Hm.\n</think>Yes."]


def test_think_tags_change_how_an_answer_is_read():
    said = {"message": {"content": "<think>Hm.</think>Yes."}, "finish_reason": "stop"}
    answer = json.dumps({"id": "r", "choices": [said]}).encode()
    on, off = (
        list(codec_with(think_tags=is_on).decode(answer)) for is_on in (True, False)
    )
    assert on != off


def roles(body: dict[str, Any] | None) -> list[str]:
    assert body is not None
    return [message["role"] for message in body["messages"]]


@pytest.mark.parametrize("sent", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("is_on", [True, False])
def test_a_clients_limit_gets_the_name_that_is_switched(sent: str, is_on: bool):
    limit = {sent: 20}
    body = {name: value for name, value in BODY.items() if name != "max_tokens"}
    found = forwarded(body | limit, max_completion_tokens=is_on) or {}
    wanted = "max_completion_tokens" if is_on else "max_tokens"
    assert {name: found[name] for name in found if name.startswith("max_")} == {
        wanted: 20
    }
    assert found["n"] == 2


def test_a_clients_instructions_get_the_role_that_is_switched():
    assert roles(forwarded(BODY, developer_role=True))[0] == "developer"
    assert roles(forwarded(BODY, developer_role=False))[0] == "system"
    assert roles(forwarded(BODY, one_system_message=True)) == ["system", "user"]


def test_a_clients_tools_lose_strict_where_that_is_switched_off():
    for quirks, strict in (({}, True), ({"strict_tools": False}, None)):
        found = forwarded(BODY, **quirks) or {}
        assert found["tools"][0]["function"].get("strict") is strict


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tool_choice", {"tool_choice": "required"}),
        (
            "image_urls",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": ADDRESS}}
                        ],
                    }
                ]
            },
        ),
        (
            "files",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": FILE}]}
                ]
            },
        ),
    ],
)
def test_a_clients_body_with_what_is_switched_off_is_written_anew(
    name: str, change: dict[str, Any]
):
    body = BODY | change
    assert forwarded(body, **{name: False}) is None
    assert forwarded(BODY, **{name: False}) is not None
    for untouched in (forwarded(body), forwarded(body, **{name: True})):
        assert untouched is not None
        assert all(untouched[field] == change[field] for field in change)


def test_an_inline_image_is_no_address():
    part = {"type": "image_url", "image_url": {"url": INLINE}}
    body = {"messages": [{"role": "user", "content": [part]}]}
    assert forwarded(body, image_urls=False) is not None


@pytest.mark.parametrize(
    "odd",
    [
        {"messages": 7},
        {"messages": [7, {"content": [None, {"image_url": 7}]}]},
        {"tools": [{"function": 7}, 7], "messages": []},
    ],
)
def test_odd_bodies_are_for_the_host_to_judge(odd: dict[str, Any]):
    quirks = dict.fromkeys(QUIRKS, False)
    found = forwarded(odd, **quirks) or {}
    assert {name: found[name] for name in odd} == odd
