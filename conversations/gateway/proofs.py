"""Encrypted reasoning for clients that keep their own history.

`include: ["reasoning.encrypted_content"]` requests it. The provider's proof is sealed
into the field that OpenAI uses. When the client sends it back, it goes only to the
model that made it, whatever the client's API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from conversations.gateway.sealed import seal, unseal
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event, Item

if TYPE_CHECKING:
    from conversations.gateway.light import Answer

_FIELD = "encrypted_content"


def wanted(body: Mapping[str, Any]) -> bool:
    return "reasoning.encrypted_content" in (body.get("include") or ())


def proven(items: Sequence[Item], given: Any, user_id: int) -> list[Item]:
    """`items`, which were parsed from `raw_input`, with sealed proofs restored."""
    sealed = [item.get(_FIELD) for item in _reasoning(given)]
    places = [n for n, item in enumerate(items) if item.get("type") == "reasoning"]
    told = list(items)
    if len(sealed) != len(places):
        return told  # the proofs cannot be matched with the items
    for place, text in zip(places, sealed, strict=True):
        if (proof := unseal("proof", user_id, text)) is not None:
            told[place] = {**told[place], "provider_data": proof}
    return told


def _reasoning(given: Any) -> Iterable[Mapping[str, Any]]:
    for item in given if isinstance(given, list) else ():
        if isinstance(item, dict) and item.get("type") == "reasoning":
            yield item


class ProvingWriter(ResponsesWriter):
    """Adds the sealed proof to each reasoning item that has one."""

    def __init__(self, answer: Answer, user_id: int, **told: Any) -> None:
        super().__init__(**told)
        self._answer = answer
        self._user_id = user_id
        self._seals: dict[str, str] = {}  # by item id

    def feed(self, events: Iterable[Event]) -> list[Event]:
        return super().feed(map(self._proven, events))

    def whole(self, response: Mapping[str, Any]) -> dict[str, Any]:
        output = [self._item(item) for item in response["output"]]
        return super().whole({**response, "output": output})

    def _proven(self, event: Event) -> Event:
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
