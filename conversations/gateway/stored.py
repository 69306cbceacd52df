"""Handlers for stored responses: turns of a conversation, run by the engine.

Any process can stream, cancel, retrieve and continue them. A disconnect cancels a
response in the foreground; one in the `background` goes on.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import orjson
from django.db import transaction

from conversations import engine
from conversations.engine import Entry
from conversations.gateway import stored_rows, token_access
from conversations.gateway.dialects import RESPONSES
from conversations.gateway.errors import ShuttingDown
from conversations.gateway.exchanges import explanation
from conversations.gateway.gateway_request import GatewayRequest, find_dropped_options
from conversations.gateway.http import (
    RETRY_WAIT,
    STATUS_WAIT,
    EventStream,
    queued_status_wait,
)
from conversations.gateway.loop_resources import Resources, resources
from conversations.gateway.request_context import RequestContext
from conversations.gateway.request_reading import read_request
from conversations.gateway.stored_rows import ResponseNotFound, StoredResponse
from conversations.http.continued_events import ContinuedEntries
from conversations.models import OpenedTurn, Turn
from conversations.models.gateway.answered_request import AnsweredRequest
from llm.errors import BadRequest, CutOff, LLMError
from llm.wire.facades.errors import openai_error_of, restore_error, retry_after
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event
from llm.wire.response_builder import TERMINAL

_STOP_TIMEOUT = 5.0  # seconds that a cancelled turn gets to end in order
_PAGE_SIZE = 20  # items
_JSON = ("content-type", "application/json")  # header of a saved answer
_WITHOUT_ANSWER = ("failed", "cancelled")  # such a request is answered anew
_DELTA = ".delta"  # the end of the types of deltas
_MAX_DIGITS = 15  # of an event's sequence number


async def create(context: RequestContext) -> None:
    body, resources = context.body, context.resources
    if body.get("stream") and body.get("starting_after") is not None:
        raise BadRequest(
            "'starting_after' can only be used with GET.", param="starting_after"
        )
    gateway_request = await read_request(
        body,
        context.dialect,
        context.token,
        resources.database,
        context.exchange.headers,
        context.exchange.id,
    )
    gateway_request = await token_access.apply_limits(
        gateway_request, resources.database, is_stored=True
    )
    dropped = find_dropped_options(gateway_request)
    context.exchange.response_headers |= gateway_request.headers(dropped)
    turn = await find_or_open_turn(gateway_request, resources, context.answered_request)
    if gateway_request.request.stream:
        answering = _send_stream(context, turn)
    elif body.get("background"):
        await context.exchange.answer(200, turn.unstarted_response("queued"))
        return
    else:
        answering = _send_whole(context, turn)
    try:
        await answering
    except asyncio.CancelledError:
        row = context.answered_request
        if not (turn.background or (row is not None and row.is_lost)):
            stored_rows.stop_soon(turn.id, resources.write_queue)
        raise


async def find_or_open_turn(
    gateway_request: GatewayRequest,
    resources: Resources,
    answered_request: AnsweredRequest | None,
) -> StoredResponse:
    """As `open_turn`, or the response that the same request opened in a process that
    was lost, which another one continues."""
    if answered_request is not None and answered_request.turn_id:
        key = gateway_request.token, answered_request.turn_id
        with suppress(ResponseNotFound):  # it was deleted
            found = await resources.database.read(stored_rows.find, *key)
            if found.current_response["status"] not in _WITHOUT_ANSWER:
                return found
    return await open_turn(gateway_request, resources, answered_request)


async def open_turn(
    gateway_request: GatewayRequest,
    resources: Resources,
    answered_request: AnsweredRequest | None = None,
) -> StoredResponse:
    """Store the request as a turn and queue it. Raises LLMError.

    `answered_request`: the row of its Idempotency-Key, which a background response
    needs even if its client leaves. Raises ClaimLost.
    """
    is_background = gateway_request.body.get("background")
    responses: list[StoredResponse] = []

    def open_turn() -> OpenedTurn:
        opened = stored_rows.open_turn(gateway_request)
        responses.append(stored_rows.response_of(opened.turn))
        return opened

    if is_background and answered_request is not None:
        open_turn = _with_answer(
            open_turn, responses, gateway_request, resources, answered_request
        )
    elif answered_request is not None:
        open_turn = _with_note(open_turn, answered_request)

    await engine.open(
        open_turn,
        gateway_request.token.user_id,
        slots=resources.openings,
        execute=resources.database.write,
        abandon=None if is_background else partial(_stop_opened, resources),
    )
    return responses[-1]


def _with_note(
    open_turn: Callable[[], OpenedTurn], answered_request: AnsweredRequest
) -> Callable[[], OpenedTurn]:
    @transaction.atomic(savepoint=False)
    def open_and_note() -> OpenedTurn:
        opened = open_turn()
        answered_request.note_turn(opened.turn.pk)
        return opened

    return open_and_note


def _with_answer(
    open_turn: Callable[[], OpenedTurn],
    responses: Sequence[StoredResponse],
    gateway_request: GatewayRequest,
    resources: Resources,
    answered_request: AnsweredRequest,
) -> Callable[[], OpenedTurn]:
    """`open_turn`, which saves the answer for the request's repetition with the turn
    itself: so a client that left in between does not open another one. A stream has no
    answer yet; its key is in use."""
    loop = asyncio.get_running_loop()
    answered_request.is_unstoppable = True

    @transaction.atomic(savepoint=False)
    def open_and_save() -> OpenedTurn:
        opened = open_turn()
        answered_request.note_turn(opened.turn.pk, stays_in_use=True)
        if not gateway_request.request.stream:
            body = orjson.dumps(responses[-1].unstarted_response("queued"))
            headers = [_JSON, ("content-length", str(len(body)))]
            answered_request.save_answer(200, headers, body)
        return opened

    def open_or_release() -> OpenedTurn:
        try:
            return open_and_save()
        except Exception:
            release = answered_request.release
            loop.call_soon_threadsafe(resources.write_queue.add, release)
            raise

    return open_or_release


def _stop_opened(resources: Resources, turn: Turn) -> None:
    """Stop a turn whose client disconnected while the turn was opened."""
    stored_rows.stop_soon(turn.pk, resources.write_queue)


async def retrieve(context: RequestContext) -> None:
    query = context.exchange.query
    starting_after = query.get("starting_after", "-1")
    if starting_after != "-1" and not _is_number(starting_after, _MAX_DIGITS):
        raise BadRequest(
            "'starting_after' must be the number of an event.", param="starting_after"
        )
    if (stream := query.get("stream", "false")) not in ("true", "false"):
        raise BadRequest("'stream' must be true or false.", param="stream")
    turn = await _find(context)
    if stream == "true":
        await _send_stream(context, turn, int(starting_after))
    else:
        await context.exchange.answer(200, turn.to_dict())


def _is_number(text: str, max_digits: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= max_digits


async def cancel(context: RequestContext) -> None:
    """Cancel a response and answer once it has stopped; no effect if it is over."""
    turn = await _find(context)
    if not turn.is_over:
        await _stop(context, turn)
        turn = await _find(context)
    await context.exchange.answer(200, turn.to_dict())


async def delete(context: RequestContext) -> None:
    turn = await _find(context)
    if not turn.is_over:
        await _stop(context, turn)  # its subscribers hear the end before the row goes
    delete_row = partial(stored_rows.delete, turn.id, context.token)
    await context.resources.database.write(delete_row)
    engine.forget(turn.id)
    body = {"id": turn.id, "object": "response", "deleted": True}
    await context.exchange.answer(200, body)


async def _stop(context: RequestContext, turn: StoredResponse) -> None:
    """Stop the turn and wait for its end, at most `_STOP_TIMEOUT` seconds."""
    await context.resources.database.write(stored_rows.stop, turn.id)
    # The turn ends as soon as its process notices.
    with suppress(TimeoutError, engine.TurnDeleted):
        async with asyncio.timeout(_STOP_TIMEOUT):
            await engine.response_of(turn.id)


async def list_input_items(context: RequestContext) -> None:
    turn = await _find(context)
    query = context.exchange.query
    limit = query.get("limit", str(_PAGE_SIZE))
    if not (_is_number(limit, max_digits=3) and 1 <= int(limit) <= 100):
        raise BadRequest("'limit' must be a number from 1 to 100.", param="limit")
    if (order := query.get("order", "desc")) not in ("asc", "desc"):
        raise BadRequest("'order' must be asc or desc.", param="order")
    items = list(turn.inputs)
    if order == "desc":
        items.reverse()
    if after := query.get("after"):
        indexes = [n for n, item in enumerate(items) if item["id"] == after]
        if not indexes:
            raise BadRequest(
                f"There is no input item {after[:80]!r} of this response.",
                param="after",
            )
        items = items[indexes[0] + 1 :]
    page = items[: int(limit)]
    body = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > len(page),
    }
    await context.exchange.answer(200, body)


async def _find(context: RequestContext) -> StoredResponse:
    key = context.token, context.path_params["id"]
    return await context.resources.database.read(stored_rows.find, *key)


# Streaming

#: The epoch of a turn's first run. Later runs and streams rebuilt from rows cut the
#: same text into other events, so their sequence numbers differ.
FIRST_EPOCH = 1


class StreamExpired(BadRequest):
    """The events of this response are no longer kept as they were sent."""

    code = "E_STREAM_GONE"


async def _send_whole(context: RequestContext, turn: StoredResponse) -> None:
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
        raise ShuttingDown
    body = turn.writer().whole(response)
    if response["status"] == "failed" and not body["output"]:
        raise error_of_response(response, error)
    context.exchange.has_failed = response["status"] == "failed"
    await context.exchange.answer(200, body)


def _status_wait(turn: StoredResponse) -> float:
    """The longest wait, because another process may run the turn."""
    return (
        STATUS_WAIT
        if turn.is_over
        else max(STATUS_WAIT + RETRY_WAIT, queued_status_wait())
    )


async def _send_stream(
    context: RequestContext, turn: StoredResponse, starting_after: int = -1
) -> None:
    writer = turn.writer(starting_after)
    stream = EventStream(
        context.exchange, writer.feed_bytes, partial(_status_wait, turn)
    )
    try:
        # A client that wants all receipts knows resets.
        continued = None if turn.receipts else ContinuedEntries(writer.is_shown)
        async with aclosing(_entries_of(turn, starting_after, continued)) as batches:
            async for entries in batches:
                # The writer can send a delta as the log has encoded it.
                events = [
                    entry if entry.type.endswith(_DELTA) else await _event(turn, entry)
                    for entry in entries
                ]
                has_failed = entries[-1].type == "response.failed"
                context.exchange.has_failed = has_failed
                if has_failed and not stream.exchange.started and starting_after < 0:
                    _check_failure([each for each in events if isinstance(each, dict)])
                if stream.exchange.started or any(map(_has_output, entries)):
                    await stream.write(events)
                else:
                    stream.buffer(events)
        if not writer.ended:
            # Another process continues the turn; `starting_after` streams the rest.
            raise ShuttingDown
        await stream.end()
    except (CutOff, ShuttingDown, ResponseNotFound) as exc:
        if not stream.exchange.started:
            raise
        context.exchange.has_failed = True
        error = RESPONSES.error(exc, "")["error"]
        await stream.end([{"type": "error", "sequence_number": 0, "error": error}])
    finally:
        stream.stop_heartbeats()


def _check_failure(events: Sequence[Event]) -> None:
    """Raises the error with which the last of the events ends a response without
    output."""
    response: Mapping[str, Any] = events[-1]["response"]
    if not response["output"]:
        errors = (each["error"] for each in events if each["type"] == "error")
        raise error_of_response(response, next(errors, None))


async def sent_events_of(
    turn: StoredResponse, writer: ResponsesWriter
) -> AsyncGenerator[list[Event], None]:
    """The events for a client that follows the turn. Raises CutOff as well."""
    continued = None if turn.receipts else ContinuedEntries(writer.is_shown)
    async with aclosing(_entries_of(turn, continued=continued)) as batches:
        async for entries in batches:
            yield [await _event(turn, entry) for entry in entries]


async def events_of(turn: StoredResponse) -> AsyncGenerator[list[Event], None]:
    """All events from the beginning, with the request's fields echoed. Raises
    ResponseNotFound if the response is deleted meanwhile."""
    async with aclosing(_entries_of(turn)) as batches:
        async for entries in batches:
            yield [await _event(turn, entry) for entry in entries]


async def _event(turn: StoredResponse, entry: Entry) -> Event:
    event = turn.add_echo(entry.event)
    if turn.explains and entry.is_last:
        return await _explained(turn, event)
    return event


async def _entries_of(
    turn: StoredResponse,
    starting_after: int = -1,
    continued: ContinuedEntries | None = None,
) -> AsyncGenerator[list[Entry], None]:
    """All entries of the log from the beginning; with `continued` for a client that
    cannot take back what it was sent.

    Raises StreamExpired if `starting_after` is set but the numbering has changed,
    ResponseNotFound if the response is deleted meanwhile, and CutOff if another process
    continues it for this client in other words.
    """
    must_match_numbers = starting_after >= 0
    try:
        async with aclosing(engine.subscribe(turn.id)) as batches:
            async for entries in batches:
                if must_match_numbers and entries[0].log_position.epoch > FIRST_EPOCH:
                    raise StreamExpired(
                        "The events of this response are no longer stored one by one."
                        " Leave out 'starting_after' to get the whole response.",
                        param="starting_after",
                    )
                must_match_numbers = False
                if continued is not None:
                    entries = continued.feed(entries)
                if entries:
                    yield entries
    except engine.TurnDeleted as exc:
        raise ResponseNotFound("This response has been deleted.") from exc


async def _explained(turn: StoredResponse, event: Event) -> Event:
    own = {explanation.FIELD: await resources().database.read(turn.explain)}
    return {**event, "response": {**event["response"], **own}}


def _has_output(entry: Entry) -> bool:
    return entry.type.startswith("response.output") or entry.is_last


def error_of_response(
    response: Mapping[str, Any], recorded_error: Mapping[str, Any] | None
) -> LLMError:
    """The exception for a failed turn, with the status of the same error elsewhere."""
    error = openai_error_of(response, recorded_error)
    stored = response.get("error") or {}
    code, message = str(stored.get("code")), stored.get("message") or error["message"]
    wait = retry_after(recorded_error or {})
    host = stored.get("host")
    raised = restore_error(code, message, error["param"], wait, host)
    raised.type, raised.openai_code = error["type"], error["code"]
    if explanation.FIELD in response:
        raised.explanation = response[explanation.FIELD]
    return raised
