from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from conversations.gateway.encrypted_reasoning import (
    EncryptedReasoningWriter,
    restore_proofs,
)
from conversations.gateway.sealed_values import seal, unseal
from llm.wire.deltas import ProofDelta, ReasoningDelta, TextDelta
from llm.wire.facades import responses_request
from llm.wire.items import Item
from llm.wire.response_builder import ResponseBuilder

ISSUER = {"provider": "anthropic", "model": "claude", "route": "1:1"}
RAW = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def stream_of(*deltas: Any) -> tuple[list[Item], dict[str, Any]]:
    """The items as a stream has sent them, and the response at its end."""
    builder = ResponseBuilder(id="resp_1", model="m")
    answer: Any = SimpleNamespace(builder=builder, issuer=ISSUER)
    writer = EncryptedReasoningWriter(answer, 7)
    builder.begin_call()
    events = [*builder.start(), *builder.feed(list(deltas))]
    frames = writer.feed_bytes([*events, *builder.end_call(), *builder.complete()])
    lines = frames.splitlines()
    output = [orjson.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    items = [e["item"] for e in output if e["type"] == "response.output_item.done"]
    return items, output[-1]["response"]


def test_a_proof_goes_out_sealed_and_comes_back_as_it_was():
    items, response = stream_of(
        ReasoningDelta(0, "Hm."), ProofDelta(0, RAW), TextDelta(1, "Hi")
    )
    assert response["output"] == items
    assert "c2ln" not in str(items)
    items_sent = [{"type": "message", "role": "user", "content": "x"}, *items]
    request = responses_request.request_of({"model": "m", "input": items_sent})
    back = restore_proofs(request.items, items_sent, 7, [])
    assert [item.get("provider_data") for item in back] == [
        None,
        {"issuer": ISSUER, "raw": RAW},
        None,
    ]


def test_one_without_words_comes_back_too():
    items, _ = stream_of(ProofDelta(0, RAW), TextDelta(1, "Hi"))
    request = responses_request.request_of({"model": "m", "input": items})
    assert restore_proofs(request.items, items, 7, [])[0]["provider_data"]["raw"] == RAW


@pytest.mark.parametrize("user_id", [8, 70])
def test_other_users_cannot_use_an_encrypted_item(user_id: int):
    items, _ = stream_of(ReasoningDelta(0, "Hm."), ProofDelta(0, RAW))
    request = responses_request.request_of({"model": "m", "input": items})
    lost: list[str] = []
    [item] = restore_proofs(request.items, items, user_id, lost)
    assert "provider_data" not in item
    assert set(lost) == {"input.encrypted_content"}


def test_what_another_server_has_encrypted_is_named_where_its_host_is_not_asked():
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    items = [{"type": "message", "role": "user", "content": "x"}, thought]

    def lost_at(issuer: Any) -> list[str]:
        body = {"model": "m", "input": items}
        request = responses_request.request_of(body, issuer=issuer)
        lost: list[str] = []
        restore_proofs(request.items, items, 7, lost)
        return lost

    assert lost_at(None) == ["input.encrypted_content"]
    assert lost_at(ISSUER) == []


def test_an_item_encrypted_for_one_purpose_serves_no_other():
    text = seal("compaction", 7, "a summary")
    assert unseal("compaction", 7, text) == "a summary"
    assert unseal("proof", 7, text) is None
    assert unseal("compaction", 7, text[:-1]) is None
    assert unseal("compaction", 7, 4) is None
