"""What a change of models costs a conversation is told."""

from __future__ import annotations

from typing import Any

import pytest

from llm.adapt import Adaptation
from llm.adaptation.dropped_input import (
    PHASES,
    REASONING,
    RECEIPTS,
    SHOWN_LATER,
    SOURCES,
)
from llm.wire.items import function_call_output, message, user_message
from llm.wire.request import Request

from .hosts import route_at

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


def told(way: Any, *items: Any) -> list[str]:
    issuer = way.endpoint.issuer(way.model)
    asked = [user_message("Hi"), *items, user_message("And now?")]
    request = Request(model=way.model, items=asked, issuer=issuer)
    return Adaptation(request, way).degraded


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.endpoint.codec.name)
@pytest.mark.parametrize(
    ("item", "lost"),
    [(signed(THOUGHT), REASONING), (signed(SEARCH), RECEIPTS)],
)
def test_what_somebody_else_has_signed_stays_here(way, item, lost: str):
    assert told(way, item, message("assistant", "So.")) == [lost]


def test_what_its_maker_gets_back_is_not_lost():
    raw = {"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": []}
    issuer = OPENAI.endpoint.issuer(OPENAI.model)
    said = message("assistant", "So.")
    own = signed({**said, "content": []}, issuer, said)
    assert told(OPENAI, signed(THOUGHT, issuer, raw), own) == []


def test_a_plain_conversation_loses_nothing():
    for way in WAYS:
        assert told(way, message("assistant", "Hello.")) == []


def test_phases_are_known_to_one_api_alone():
    said = {**message("assistant", "Let me see."), "phase": "commentary"}
    assert [told(way, said) for way in WAYS] == [[PHASES], [], [PHASES], [PHASES]]


def test_sources_stay_with_the_text_they_were_found_for():
    said = message("assistant", "So it is.")
    said["content"][0]["annotations"] = [CITED]
    assert [told(way, said) for way in WAYS] == [[SOURCES]] * 4


def test_images_of_tools_come_later_where_outputs_are_text():
    assert told(GROQ, CALL, DRAWN) == [SHOWN_LATER]
    assert told(CLAUDE, CALL, DRAWN) == []


def test_each_loss_is_told_once():
    assert told(GROQ, signed(THOUGHT), signed(THOUGHT)) == [REASONING]
