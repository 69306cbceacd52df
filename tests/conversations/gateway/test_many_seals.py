"""A client may return thousands of sealed texts: each item is read a few times only."""

from __future__ import annotations

from typing import Any

from conversations.gateway.encrypted_reasoning import restore_proofs
from conversations.gateway.sealed_values import seal
from llm.wire.forwarding.sealed_text import PREFIX

COUNT = 200


class CountedItem(dict[str, Any]):
    reads = 0

    def __getitem__(self, name: str) -> Any:
        CountedItem.reads += 1
        return super().__getitem__(name)


def test_the_work_grows_with_the_items_and_not_with_their_square():
    named = {"type": "mcp_call", "of": "", "length": 0, "raw": {"x": 1}}
    sealed = {"answer": "resp_1", "issuer": {}, "entries": [{"at": 0, **named}]}
    text = PREFIX + seal("answer_proofs", 1, sealed)
    numbers = range(COUNT)
    calls = [CountedItem(type="web_search_call", id=f"ws_{n}") for n in numbers]
    thoughts = [
        CountedItem(type="reasoning", id=f"rs_{n}", encrypted_content=text)
        for n in numbers
    ]
    restore_proofs([*calls, *thoughts], [*calls, *thoughts], 1, [])
    assert CountedItem.reads < 20 * COUNT
