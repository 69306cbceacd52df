"""Requests that may be answered from the cache, and which of them are equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llm.cache.request_digest import digest_of, is_cacheable
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.hosts import route

REQUEST = Request(model="a-model", items=[user_message("What is there?")])


def with_part(part: dict[str, Any]) -> Request:
    content = [{"type": "input_text", "text": "What is there?"}, part]
    message = {"type": "message", "role": "user", "content": content}
    return replace(REQUEST, items=[message])


@pytest.mark.parametrize(
    "request_",
    [
        with_part({"type": "input_image", "image_url": "https://a.test/webcam.png"}),
        with_part({"type": "input_file", "file_url": "http://a.test/x.pdf"}),
        with_part({"type": "input_file", "file_id": "file_1"}),
        replace(REQUEST, items=[{"type": "item_reference", "id": "msg_1"}]),
        replace(
            REQUEST,
            items=[{"type": "computer_call_output", "output": {"file_id": "file_1"}}],
        ),
        replace(REQUEST, tools=[{"type": "web_search"}]),
        replace(REQUEST, tools=[{"type": "function", "name": "pay"}]),
        replace(REQUEST, prefill="It is"),
    ],
)
def test_what_depends_on_more_than_the_request_is_not_cached(request_: Request):
    assert not is_cacheable(request_, {"look_up"})


def test_what_is_in_the_request_is_cached():
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    safe = replace(with_part(picture), tools=[{"type": "function", "name": "look_up"}])
    assert is_cacheable(safe, {"look_up"})


def test_only_equal_requests_of_one_owner_to_one_setting_have_one_digest():
    target = route()
    endpoint = target.endpoint
    settings = replace(endpoint, headers={"X-Team": "b"}, options={"tier": "b"})
    message = REQUEST.items[0]
    known = [
        digest_of(REQUEST, target, 1),
        digest_of(REQUEST, target, 2),
        digest_of(REQUEST, target, None),
        digest_of(REQUEST, target, 1, "temperature"),
        digest_of(REQUEST, route("b"), 1),
        digest_of(REQUEST, replace(target, endpoint=settings), 1),
        digest_of(REQUEST, route(capabilities={"vision": True}), 1),
        digest_of(replace(REQUEST, temperature=0.5), target, 1),
        digest_of(replace(REQUEST, safety_identifier="c"), target, 1),
        digest_of(replace(REQUEST, extra={"user": "c"}), target, 1),
        digest_of(
            replace(REQUEST, items=[{**message, "provider_data": {"raw": "x"}}]),
            target,
            1,
        ),
    ]
    assert None not in known
    assert len({*known}) == len(known)
    for same in (
        replace(REQUEST, items=[{**message, "id": "msg_2", "status": "completed"}]),
        replace(REQUEST, prompt_cache_key="c"),
        replace(REQUEST, stream=False),
    ):
        assert digest_of(same, target, 1) == known[0]
