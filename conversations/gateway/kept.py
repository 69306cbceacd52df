"""Handlers for stored responses: turns of a conversation, run by the engine.

Any process can stream, cancel, retrieve and continue them. A disconnect cancels a
response in the foreground; one in the `background` goes on.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from conversations import engine
from conversations.gateway import kept_rows, tokens
from conversations.gateway.asked import Asked, read
from conversations.gateway.dialects import RESPONSES
from conversations.gateway.door import Visit
from conversations.gateway.faults import GoingDown
from conversations.gateway.http import (
    PATIENCE,
    RETRIES,
    EventStream,
    queue_patience,
)
from conversations.gateway.kept_rows import Kept
from conversations.gateway.means import Means
from llm.errors import BadRequest, LLMError
from llm.wire.facades.errors import openai_error_of, recorded, retry_after
from llm.wire.items import Event
from llm.wire.response import TERMINAL

_STOPPING = 5.0  # seconds that a cancelled turn gets to end in order
_PAGE = 20  # items
_DIGITS = 15  # of an event's sequence number


async def create(visit: Visit) -> None:
    body, means = visit.body, visit.means
    if body.get("stream") and body.get("starting_after") is not None:
        raise BadRequest("'starting_after' is for GET.", param="starting_after")
    asked = await read(body, visit.dialect, visit.token, means.database)
    asked = await tokens.admit(asked, means.database, is_kept=True)
    visit.exchange.told |= asked.headers
    turn = await open_turn(asked, means)
    if asked.request.stream:
        answering = _stream(visit, turn)
    elif body.get("background"):
        await visit.exchange.answer(200, turn.response("queued"))
        return
    else:
        answering = _whole(visit, turn)
    try:
        await answering
    except asyncio.CancelledError:
        if not turn.background:
            kept_rows.stop_soon(turn.id, means.records)
        raise


async def open_turn(asked: Asked, means: Means) -> Kept:
    """Store the request as a turn and queue it. Raises LLMError."""
    turn = await means.database.write(kept_rows.open_turn, asked)
    engine.submit(turn.id, turn.conversation_id)
    return turn


async def retrieve(visit: Visit) -> None:
    query = visit.exchange.query
    after = query.get("starting_after", "-1")
    if after != "-1" and not (after.isdecimal() and len(after) <= _DIGITS):
        raise BadRequest(
            "'starting_after' must be the number of an event.", param="starting_after"
        )
    if (streams := query.get("stream", "false")) not in ("true", "false"):
        raise BadRequest("'stream' must be true or false.", param="stream")
    turn = await _found(visit)
    if streams == "true":
        await _stream(visit, turn, int(after))
    else:
        await visit.exchange.answer(200, turn.told())


async def cancel(visit: Visit) -> None:
    """Cancel a response and answer once it has stopped; no effect if it is over."""
    turn = await _found(visit)
    if not turn.is_over:
        await visit.means.database.write(kept_rows.stop, turn.id)
        async with asyncio.timeout(_STOPPING):
            await engine.response_of(turn.id)
        turn = await _found(visit)
    await visit.exchange.answer(200, turn.told())


async def delete(visit: Visit) -> None:
    turn = await _found(visit)
    await visit.means.database.write(kept_rows.delete, turn.id)
    engine.forget(turn.id)
    told = {"id": turn.id, "object": "response", "deleted": True}
    await visit.exchange.answer(200, told)


async def input_items(visit: Visit) -> None:
    turn = await _found(visit)
    query = visit.exchange.query
    limit = query.get("limit", str(_PAGE))
    if not (limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= 100):
        raise BadRequest("'limit' must be a number from 1 to 100.", param="limit")
    if (order := query.get("order", "desc")) not in ("asc", "desc"):
        raise BadRequest("'order' must be asc or desc.", param="order")
    items = list(turn.inputs)
    if order == "desc":
        items.reverse()
    if after := query.get("after"):
        places = [n for n, item in enumerate(items) if item["id"] == after]
        items = items[places[0] + 1 :] if places else []
    page = items[: int(limit)]
    told = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > len(page),
    }
    await visit.exchange.answer(200, told)


async def _found(visit: Visit) -> Kept:
    key = visit.token, visit.named["id"]
    return await visit.means.database.read(kept_rows.find, *key)


# Streaming

#: The epoch of a turn's first run. Later runs and streams rebuilt from rows cut the
#: same text into other events, so their sequence numbers differ.
FIRST_RUN = 1


class StreamGone(BadRequest):
    """The events of this response are no longer kept as they were sent."""

    code = "E_STREAM_GONE"


async def _whole(visit: Visit, turn: Kept) -> None:
    error: Mapping[str, Any] | None = None
    response: dict[str, Any] = {}
    async with aclosing(events_of(turn)) as batches:
        async for events in batches:
            for event in events:
                if event["type"] == "error":
                    error = event["error"]
            if events[-1]["type"] in TERMINAL:
                response = events[-1]["response"]
    if not response:
        raise GoingDown
    shown = turn.writer().whole(response)
    if response["status"] == "failed" and not shown["output"]:
        raise as_error(response, error)
    await visit.exchange.answer(200, shown)


def _patience(turn: Kept) -> float:
    """The longest wait, because another process may run the turn."""
    return PATIENCE if turn.is_over else max(PATIENCE + RETRIES, queue_patience())


async def _stream(visit: Visit, turn: Kept, starting_after: int = -1) -> None:
    writer = turn.writer(starting_after)
    stream = EventStream(visit.exchange, partial(_patience, turn))
    error: Mapping[str, Any] | None = None
    try:
        async with aclosing(events_of(turn, starting_after)) as batches:
            async for events in batches:
                if not stream.begun and events[-1]["type"] == "response.failed":
                    error = next((e["error"] for e in events if "error" in e), None)
                    if not events[-1]["response"]["output"] and starting_after < 0:
                        raise as_error(events[-1]["response"], error)
                frames = writer.feed_bytes(events)
                if stream.begun or any(map(_says_something, events)):
                    await stream.write(frames)
                else:
                    stream.hold(frames)
        if not writer.ended and not stream.begun:
            raise GoingDown
        if not writer.ended:
            # Another process continues the turn; `starting_after` streams the rest.
            error = RESPONSES.error(GoingDown(), "")["error"]
            told = {"type": "error", "sequence_number": 0, "error": error}
            await stream.write(writer.feed_bytes([told]))
        await stream.end(b"")
    finally:
        stream.stop()


async def events_of(
    turn: Kept, starting_after: int = -1
) -> AsyncGenerator[list[Event], None]:
    """All events from the beginning, with the request's fields echoed.

    Raises StreamExpired if `starting_after` is set but the numbering has changed.
    """
    counts = starting_after >= 0
    async with aclosing(engine.follow(turn.id)) as batches:
        async for entries in batches:
            if counts and entries[0].place.epoch > FIRST_RUN:
                raise StreamGone(
                    "The events of this response are no longer kept as they were sent."
                    " Leave out 'starting_after' to be sent it all.",
                    param="starting_after",
                )
            counts = False
            yield [turn.echoed(entry.event) for entry in entries]


def _says_something(event: Event) -> bool:
    kind = event["type"]
    return kind.startswith("response.output") or kind in TERMINAL


def as_error(response: Mapping[str, Any], told: Mapping[str, Any] | None) -> LLMError:
    """The exception for a failed turn, with the status of the same error elsewhere."""
    error = openai_error_of(response, told)
    code = str((response.get("error") or {}).get("code"))
    wait = retry_after(told or {})
    raised = recorded(code, error["message"], error["param"], wait)
    raised.type, raised.openai_code = error["type"], error["code"]
    return raised
