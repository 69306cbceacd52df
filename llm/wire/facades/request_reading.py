"""Helpers of the readers: the assistant's items, unread fields, and a common error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llm.errors import BadRequest
from llm.wire.deltas import Delta
from llm.wire.items import Issuer, Item
from llm.wire.response_builder import ResponseBuilder


class _HistoryBuilder(ResponseBuilder):
    """Leaves the ids of calls as they are, long or equal ones: the output that the
    client sends next names the same id. The codecs shorten both alike, and
    `separate_equal_ids` renames both."""

    __slots__ = ()

    def _unique(self, call_id: str) -> str:
        return call_id


def assistant_items(deltas: Iterable[Delta], issuer: Issuer | None) -> list[Item]:
    """The items of one answer. Proofs are dropped if there is no `issuer`."""
    builder = _HistoryBuilder(id="", model="")
    builder.begin_call()
    builder.feed(list(deltas))
    builder.end_call()
    return [_with_proof(item, builder.proofs, issuer) for item in builder.output]


def unread_fields(body: Mapping[str, Any], read: Iterable[str]) -> dict[str, Any]:
    """The fields of `body` that are not in `read`."""
    known = set(read)
    return {name: v for name, v in body.items() if name not in known and v is not None}


def unknown_value(what: str, param: str) -> BadRequest:
    return BadRequest(f"This format does not support {what}.", param=param)


def _with_proof(item: Item, proofs: Mapping[str, Any], issuer: Issuer | None) -> Item:
    raw = proofs.get(item["id"])
    if raw is None or issuer is None:
        return item
    return {**item, "provider_data": {"issuer": issuer, "raw": raw}}
