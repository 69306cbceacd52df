"""What a change of models removes from a conversation is reported."""

from __future__ import annotations

from typing import Any

import pytest

from llm.adaptation.adapt import Adaptation
from llm.adaptation.dropped_input import (
    COMPACTION,
    PHASES,
    REASONING,
    RECEIPTS,
    SHOWN_LATER,
    SOURCES,
)
from llm.wire.hosted_tools import RECEIPTS as KINDS
from llm.wire.items import (
    SUMMARY,
    Item,
    function_call_output,
    id_prefix,
    message,
    new_id,
    user_message,
)
from llm.wire.request import Request
from tests.llm.hosts import route_at

GROQ = route_at("groq")
OPENAI = route_at("openai", model="gpt-5.6")
CLAUDE = route_at("anthropic", model="claude-opus-5-5")
GEMINI = route_at("gemini", model="gemini-3.8-flash")
WAYS = [GROQ, OPENAI, CLAUDE, GEMINI]
ELSEWHERE = {"provider": "elsewhere", "model": "m", "route": "9:9"}
CITED = {"type": "url_citation", "url": "https://a.test", "title": "A"}
CALL = {"type": "function_call", "call_id": "c1", "name": "draw", "arguments": "{}"}
DRAWN = function_call_output(
    "c1", [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]
)


def signed(item: dict[str, Any], issuer: Any = ELSEWHERE, raw: Any = None):
    return {**item, "provider_data": {"issuer": issuer, "raw": raw or {}}}


def degraded_in(route: Any, *items: Any) -> list[str]:
    issuer = route.endpoint.issuer(route.model)
    items_sent = [user_message("Hi"), *items, user_message("And now?")]
    request = Request(model=route.model, items=items_sent, issuer=issuer)
    return Adaptation(request, route).degraded


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


@pytest.mark.parametrize("route", WAYS, ids=lambda route: route.endpoint.codec.name)
@pytest.mark.parametrize(
    ("item", "lost"),
    [(signed(THOUGHT), REASONING), (signed(SEARCH), RECEIPTS)],
)
def test_items_signed_by_another_provider_are_not_sent(route, item, lost: str):
    assert degraded_in(route, item, message("assistant", "So.")) == [lost]


def test_items_returned_to_their_issuer_lose_nothing():
    raw = {"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": []}
    issuer = OPENAI.endpoint.issuer(OPENAI.model)
    answer = message("assistant", "So.")
    own = signed({**answer, "content": []}, issuer, answer)
    assert degraded_in(OPENAI, signed(THOUGHT, issuer, raw), own) == []


def test_a_plain_conversation_loses_nothing():
    for route in WAYS:
        assert degraded_in(route, message("assistant", "Hello.")) == []


def test_reasoning_that_nobody_signed_is_no_loss():
    """Else each answer of a host without signatures would report its own thoughts."""
    thought = {**THOUGHT, "content": [{"type": "reasoning_text", "text": "Hm."}]}
    for route in WAYS:
        assert degraded_in(route, thought, message("assistant", "So.")) == []


def test_phases_are_known_to_one_api_alone():
    answer = {**message("assistant", "Let me see."), "phase": "commentary"}
    assert [degraded_in(route, answer) for route in WAYS] == [
        [PHASES],
        [],
        [PHASES],
        [PHASES],
    ]


def test_sources_stay_with_the_text_they_were_found_for():
    answer = message("assistant", "So it is.")
    answer["content"][0]["annotations"] = [CITED]
    assert [degraded_in(route, answer) for route in WAYS] == [[SOURCES]] * 4


def test_images_of_tools_come_later_where_outputs_are_text():
    assert degraded_in(GROQ, CALL, DRAWN) == [SHOWN_LATER]
    assert degraded_in(CLAUDE, CALL, DRAWN) == []
    custom = {**CALL, "type": "custom_tool_call", "input": "a cat"}
    drawn = {**DRAWN, "type": "custom_tool_call_output"}
    assert degraded_in(GROQ, custom, drawn) == [SHOWN_LATER]


def receipt(kind: str) -> Item:
    """As a reader makes one of what a client sends."""
    return {"type": kind, "id": new_id(id_prefix(kind)), "status": "completed"}


#: Kinds of items that clients of the Responses API write themselves.
WRITTEN = {"local_shell_call", "local_shell_call_output", "mcp_approval_response"}


@pytest.mark.parametrize("route", WAYS, ids=lambda route: route.endpoint.codec.name)
@pytest.mark.parametrize("kind", sorted(KINDS - WRITTEN - {"compaction"}))
def test_receipts_that_a_client_sends_are_named(route, kind: str):
    item = receipt(kind)
    if kind == "computer_call":
        item["call_id"] = "c9"
    assert degraded_in(route, item) == [RECEIPTS]


@pytest.mark.parametrize("route", [GROQ, CLAUDE, GEMINI])
def test_what_only_the_responses_api_has_is_named(route):
    for kind in sorted(WRITTEN):
        assert degraded_in(route, receipt(kind)) == [RECEIPTS]


@pytest.mark.parametrize("route", WAYS, ids=lambda route: route.endpoint.codec.name)
def test_a_compaction_of_another_provider_is_named(route):
    told = {**receipt("compaction"), SUMMARY: "We chose red."}
    assert degraded_in(route, told) == [COMPACTION]
    issuer = route.endpoint.issuer(route.model)
    sealed = {**receipt("compaction"), "encrypted_content": "ZW5j"}
    assert degraded_in(route, signed(sealed)) == [COMPACTION]
    assert degraded_in(route, signed(sealed, issuer, {"content": []})) == []


def test_a_search_that_was_cut_off_has_nothing_to_lose():
    cut = {**receipt("web_search_call"), "status": "incomplete"}
    assert degraded_in(CLAUDE, cut) == []


def test_a_receipt_with_an_id_of_its_host_is_sent_to_it():
    assert degraded_in(OPENAI, SEARCH) == []


def test_each_loss_is_reported_once():
    assert degraded_in(GROQ, signed(THOUGHT), signed(THOUGHT)) == [REASONING]
