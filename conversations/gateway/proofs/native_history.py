"""Turns the sealed answers in a body's history back into the messages of their host.

Where tools of this server have run during an answer, the client got one message for
several of the host's, with the proofs sealed. In a body that is forwarded, the host
gets its own messages again: the calls of the tools, their outputs and the proofs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from conversations.gateway.dialects import UNREADABLE, Dialect, unreadable_body
from conversations.gateway.proofs.sealed_answers import open_seal
from llm.provider import Route
from llm.wire.facades.losses import has_seals
from llm.wire.forwarding.codec import ForwardingCodec
from llm.wire.items import Issuer, Item, function_call_output, user_message
from llm.wire.request import Request

_CALLS = frozenset({"custom_tool_call", "function_call"})
_OUTPUTS = frozenset({"custom_tool_call_output", "function_call_output"})


def unseal_history(
    body: Mapping[str, Any], dialect: Dialect, route: Route, user_id: int
) -> Mapping[str, Any]:
    """`body`, which is to be forwarded, with those sealed messages opened that come
    from the model of `route`. Raises BadRequest."""
    codec, messages = route.endpoint.codec, body.get("messages")
    if not isinstance(codec, ForwardingCodec) or not isinstance(messages, list):
        return body
    opener = partial(open_seal, user_id, [], dialect.proof_field)
    opened: list[Any] = []
    try:
        for message in messages:
            items: list[Item] = []
            if has_seals(dialect.name, {"messages": [message]}):
                few = {**_required_fields(body), "messages": [message]}
                items = [*dialect.request_of(few, route, opener).items]
            if any(_is_proven(item, route.issuer) for item in items):
                opened += _encode(items, codec, route)
            else:
                opened.append(message)
    except UNREADABLE as exc:
        raise unreadable_body(exc) from exc
    return {**body, "messages": opened}


def _required_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """What the reader of a body needs beside its messages."""
    names = ("max_tokens", "model", "thinking", "tools")
    return {name: body[name] for name in names if name in body}


def _is_proven(item: Item, issuer: Issuer) -> bool:
    data = item.get("provider_data")
    return isinstance(data, dict) and data["issuer"] == issuer


def _encode(items: list[Item], codec: ForwardingCodec, route: Route) -> list[Any]:
    """The host's messages of `items`.

    A codec wants an output for each call. Those of the client's calls follow later in
    the body, so empty ones are encoded here and removed again.
    """
    answered = {item.get("call_id") for item in items if item["type"] in _OUTPUTS}
    waiting = [
        item["call_id"]
        for item in items
        if item["type"] in _CALLS and item["call_id"] not in answered
    ]
    outputs = [function_call_output(id, "") for id in waiting]
    request = Request(
        model=route.model,
        items=[user_message("?"), *items, *outputs],
        issuer=route.issuer,
    )
    encoded = [*codec.encode(request)["messages"]][1:]
    while encoded and encoded[-1]["role"] != "assistant":
        encoded.pop()
    return [_without_marks(message) for message in encoded]


def _without_marks(message: dict[str, Any]) -> dict[str, Any]:
    """Without marks for the cache, which are the client's to set."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    blocks: Iterable[Any] = (
        {name: value for name, value in block.items() if name != "cache_control"}
        if isinstance(block, dict)
        else block
        for block in content
    )
    return {**message, "content": list(blocks)}
