"""Encrypted reasoning for clients that keep their own history.

`include: ["reasoning.encrypted_content"]` requests it. The provider's proof is sealed
into the field that OpenAI uses. When the client sends it back, it goes only to the
model that made it, whatever the client's API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from conversations.gateway.sealed_values import seal, unseal
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event, Issuer, Item
from llm.wire.response import ResponseBuilder

_FIELD = "encrypted_content"


class ProvenAnswer(Protocol):
    """A response with the proofs of its items and the issuer of the proofs."""

    @property
    def builder(self) -> ResponseBuilder: ...

    @property
    def issuer(self) -> Issuer: ...


def wants_encrypted_reasoning(body: Mapping[str, Any]) -> bool:
    return "reasoning.encrypted_content" in (body.get("include") or ())


def restore_proofs(items: Sequence[Item], raw_input: Any, user_id: int) -> list[Item]:
    """`items`, which were parsed from `raw_input`, with sealed proofs restored."""
    sealed = [item.get(_FIELD) for item in _reasoning(raw_input)]
    indexes = [n for n, item in enumerate(items) if item.get("type") == "reasoning"]
    restored = list(items)
    if len(sealed) != len(indexes):
        return restored  # the proofs cannot be matched with the items
    for index, text in zip(indexes, sealed, strict=True):
        if (proof := unseal("proof", user_id, text)) is not None:
            restored[index] = {**restored[index], "provider_data": proof}
    return restored


def _reasoning(raw_input: Any) -> Iterable[Mapping[str, Any]]:
    for item in raw_input if isinstance(raw_input, list) else ():
        if isinstance(item, dict) and item.get("type") == "reasoning":
            yield item


class EncryptedReasoningWriter(ResponsesWriter):
    """Adds the sealed proof to each reasoning item that has one."""

    def __init__(self, answer: ProvenAnswer, user_id: int, **options: Any) -> None:
        super().__init__(**options)
        self._answer = answer
        self._user_id = user_id
        self._seals: dict[str, str] = {}  # by item id

    def feed(self, events: Iterable[Event]) -> list[Event]:
        return super().feed(map(self._add_proof, events))

    def whole(self, response: Mapping[str, Any]) -> dict[str, Any]:
        output = [self._item(item) for item in response["output"]]
        return super().whole({**response, "output": output})

    def _add_proof(self, event: Event) -> Event:
        if event["type"] == "response.output_item.done":
            return {**event, "item": self._item(event["item"])}
        return event

    def _item(self, item: Item) -> Item:
        raw = self._answer.builder.proofs.get(item["id"])
        if item["type"] != "reasoning" or raw is None:
            return item
        if item["id"] not in self._seals:
            proof = {"issuer": self._answer.issuer, "raw": raw}
            self._seals[item["id"]] = seal("proof", self._user_id, proof)
        return {**item, _FIELD: self._seals[item["id"]]}
