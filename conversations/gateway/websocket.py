"""The WebSocket form of `/v1/responses`: a message per request, an event per message.

A separate task answers the requests one after another, so that a disconnect is noticed
at any time. With `store: false` the history is kept only in this connection's memory.

Source: https://www.openresponses.org/specification#websocket
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import orjson
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import timezone

from conversations import engine
from conversations.access import overload
from conversations.access.errors import TooManyConnections, Unauthorized
from conversations.engine.connection_revocation import (
    Credential,
    closing_tasks,
    open_connections,
)
from conversations.gateway import preset_models, stored, stored_rows, token_access
from conversations.gateway.dialects import RESPONSES
from conversations.gateway.endpoints.create import check_stateless, is_stored
from conversations.gateway.errors import (
    InternalServerError,
    ShuttingDown,
    unavailable_error,
)
from conversations.gateway.exchanges import sent_events
from conversations.gateway.exchanges.request_logging import SocketLog
from conversations.gateway.exchanges.sent_events import SentEvents
from conversations.gateway.gateway_request import (
    GatewayRequest,
    find_dropped_options,
)
from conversations.gateway.http import RequestTooLarge
from conversations.gateway.input_references import resolve_input
from conversations.gateway.loop_resources import resources
from conversations.gateway.previous_responses import (
    check_outputs,
    load_history,
    with_history,
)
from conversations.gateway.request_reading import read_request
from conversations.gateway.stateless import StatelessResponse
from conversations.models.access_token import AccessToken
from llm.concurrency.worker_thread import run_off_loop
from llm.db.outages import UNREACHABLE
from llm.errors import BadRequest, LLMError
from llm.wire import bounded_json
from llm.wire.items import Event, Item
from llm.wire.sanitize import replace_nul

logger = logging.getLogger(__name__)

MAX_REMEMBERED_RESPONSES = 100  # responses whose history one connection keeps
MAX_QUEUED_MESSAGES = 2  # waiting requests; when the queue is full, no message is read
_HTTP_ONLY = ("stream_options", "background")
#: What belongs to the message and not to the request; `stream` is implied here.
_ENVELOPE = ("type", "stream", "stream_id", *_HTTP_ONLY)
_MAX_STREAM_ID = 256  # characters
_MAX_REFUSED = 65_536  # characters of a message in which a refusal looks for the id


class ResponsesConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self._messages: asyncio.Queue[str] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._answer_task: asyncio.Task[None] | None = None
        self._unregister: Callable[[], None] | None = None  # ends the revocation watch
        self._items_by_response: dict[
            str, list[Item]
        ] = {}  # by response id: the whole history
        self._prepared: set[str] = set()  # those of them that no model has answered
        self._headers = dict(self.scope["headers"])
        self._recording: SentEvents | None = None  # of the request being answered
        self._log: SocketLog | None = None  # of the same
        self._stream_id: str | None = None  # of the same, which its events repeat
        try:
            token = await resources().tokens.authenticate(self._headers)
            await self._admit_request(token)
        except LLMError as exc:
            if exc.status in (401, 403):
                client, _port = self.scope.get("client") or ("", 0)
                logger.warning("refused a WebSocket from %s: %s", client, exc.code)
            await self.close(code=4000 + exc.status)
            return
        except UNREACHABLE as exc:
            if (error := unavailable_error(exc)) is None:
                raise
            logger.warning("a WebSocket was refused: %s", error.code)
            await self.close(code=4000 + error.status)
            return
        if engine.is_draining():  # checked last, right before accepting
            await self.close(code=4000 + ShuttingDown.status)
            return
        await self.accept()
        credential = Credential(token.user_id, token_id=token.pk)
        try:
            self._unregister = open_connections().add(credential, self._end_soon)
        except TooManyConnections as exc:
            await self.close(code=4000 + exc.status, reason=str(exc))
            raise StopConsumer from exc
        self._answer_task = asyncio.ensure_future(self._answer_all())

    def _end_soon(self) -> None:
        closing_tasks.start(self._end())

    async def _end(self) -> None:
        """Close the socket after its token was revoked or has expired, or its user was
        deactivated."""
        await self._stop_answering()
        with suppress(OSError, RuntimeError):  # the socket is closed already
            await self.close(code=4000 + Unauthorized.status)

    async def disconnect(self, code: int) -> None:
        if self._unregister is not None:
            self._unregister()
        await self._stop_answering()

    async def _stop_answering(self) -> None:
        if self._answer_task is not None:
            self._answer_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._answer_task

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None
    ) -> None:
        """Queue a message.

        Channels reads the next message once this returns, so a full queue makes the
        client wait.
        """
        assert self._answer_task is not None, "a connection that was accepted"
        waiting = asyncio.ensure_future(self._messages.put(text_data or ""))
        try:
            await asyncio.wait(
                {waiting, self._answer_task}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()  # no effect unless the answer task has ended

    async def _answer_all(self) -> None:
        while True:
            message = await self._messages.get()
            self._stream_id = None
            try:
                await self._answer(message)
            except LLMError as exc:
                await self._refuse(exc, message)
            except OSError:  # the client has disconnected
                return
            except Exception as exc:  # the connection serves its next message
                if error := unavailable_error(exc):
                    logger.warning("an error was sent over a WebSocket: %s", error.code)
                    await self._refuse(error, message)
                    continue
                logger.exception("a response over a WebSocket failed")
                await self._refuse(InternalServerError(), message)
            finally:
                if (log := self._log) is not None:
                    self._log = None
                    log.write(resources().write_queue)

    async def _answer(self, message: str) -> None:
        if engine.is_draining():
            raise ShuttingDown
        overload.check_room()
        # Checked with each request: a token can be revoked during the connection.
        token = await resources().tokens.authenticate(self._headers)
        if token.logs_requests_until and token.logs_requests_until > timezone.now():
            self._log = SocketLog(token, message, self._headers)
        await self._admit_request(token)
        sent = await run_off_loop(len(message), _parse_message, message)
        self._stream_id = _stream_id_of(sent)
        body = _body_of(sent)
        if self._log is not None:
            self._log.model = str(body.get("model") or "")
        if (key := body.pop(sent_events.FIELD, None)) is None:
            await self._respond(body, token)
            return
        self._recording = await sent_events.repeat_or_record(
            key, body, token.pk, resources(), self._send_text
        )
        if self._recording is not None:
            try:
                await self._recording.run(self._respond({**body}, token))
            finally:
                self._recording = None

    async def _respond(self, body: dict[str, Any], token: AccessToken) -> None:
        body["input"] = await resolve_input(body, token, resources().database)
        previous = body.get("previous_response_id")
        try:
            if body.pop("generate", None) is False:
                await self._prepare(body, token)
            elif is_stored(body, token):
                await self._respond_stored(body, token)
            else:
                await self._respond_stateless(body, token)
        except BaseException:
            self._items_by_response.pop(str(previous), None)
            raise

    async def _admit_request(self, token: AccessToken) -> None:
        peer = (self.scope.get("client") or [""])[0]
        await token_access.admit_request(token, peer, self._headers, anthropic=False)

    async def _prepare(self, body: dict[str, Any], token: AccessToken) -> None:
        """Answer without calling the model: a later message continues this one."""
        body = {**body, "store": False}
        await self._add_history(body, token)
        gateway_request = await read_request(
            body, RESPONSES, token, resources().database, self._headers
        )
        answer = StatelessResponse(gateway_request, resources().write_queue)
        writer = RESPONSES.writer(gateway_request, answer, "")
        events = [*answer.builder.start(), *answer.builder.complete()]
        await self._send_events(writer.feed(events))
        self._remember(answer.builder.response(), gateway_request)
        self._prepared.add(answer.builder.response()["id"])

    async def _add_history(self, body: dict[str, Any], token: AccessToken) -> None:
        if (previous := body.get("previous_response_id")) is not None:
            before = self._items_by_response.get(str(previous))
            if before is None:
                before = await resources().database.read(load_history, token, previous)
            body["input"] = with_history(before, body["input"])

    def _remember(
        self, response: Mapping[str, Any], gateway_request: GatewayRequest
    ) -> None:
        while len(self._items_by_response) >= MAX_REMEMBERED_RESPONSES:
            oldest = next(iter(self._items_by_response))
            del self._items_by_response[oldest]
            self._prepared.discard(oldest)
        self._items_by_response[response["id"]] = [
            *gateway_request.request.items,
            *response["output"],
        ]

    async def _respond_stateless(self, body: dict[str, Any], token: Any) -> None:
        check_stateless(body)
        previous = body.get("previous_response_id")
        await self._add_history(body, token)
        gateway_request = await read_request(
            body, RESPONSES, token, resources().database, self._headers
        )
        check_outputs(gateway_request.request.items)
        if (use := gateway_request.chain.preset) is not None:
            request = await preset_models.with_context(
                use, gateway_request.request, token
            )
            gateway_request = replace(gateway_request, request=request)
        gateway_request = await token_access.apply_limits(
            gateway_request, resources().database
        )
        answer = StatelessResponse(gateway_request, resources().write_queue)
        writer = RESPONSES.writer(gateway_request, answer, "")
        await self._send_degraded(gateway_request)
        async with aclosing(answer.events()) as batches:
            async for events in batches:
                await self._send_events(writer.feed(events))
        if answer.builder.error:
            self._items_by_response.pop(str(previous), None)
            return
        self._remember(answer.builder.response(), gateway_request)

    async def _respond_stored(self, body: dict[str, Any], token: Any) -> None:
        if str(body.get("previous_response_id")) in self._prepared:  # it has no row
            await self._add_history(body, token)
            del body["previous_response_id"]
        gateway_request = await read_request(
            body, RESPONSES, token, resources().database, self._headers
        )
        gateway_request = await token_access.apply_limits(
            gateway_request, resources().database, is_stored=True
        )
        row = self._recording.row if self._recording is not None else None
        turn = await stored.find_or_open_turn(gateway_request, resources(), row)
        writer = turn.writer()
        await self._send_degraded(gateway_request)
        try:
            async with aclosing(stored.sent_events_of(turn, writer)) as batches:
                async for events in batches:
                    await self._send_events(writer.feed(events))
        except (asyncio.CancelledError, OSError):  # or the client has gone
            if row is None or not row.is_lost:
                stored_rows.stop_soon(turn.id, resources().write_queue)
            raise
        if not writer.ended:
            raise ShuttingDown

    async def _send_degraded(self, gateway_request: GatewayRequest) -> None:
        """Send what an HTTP answer says in the header `x-parley-degraded`."""
        dropped = find_dropped_options(gateway_request)
        if options := gateway_request.dropped_names(dropped):
            event = {"type": "parley:request.degraded", "options": options}
            await self._send_events([event])

    async def _send_events(self, events: list[Event]) -> None:
        for event in events:
            text = orjson.dumps(event)
            if self._log is not None and not self._log.response_id:
                self._log.response_id = str(event.get("response", {}).get("id", ""))
            if self._recording is None:
                await self._send_text(text)
            else:
                await self._recording.send(text, event["type"])

    async def _send_text(self, text: bytes) -> None:
        if self._log is not None:
            self._log.status = 200
            self._log.note(text)
        await self.send(text_data=self._addressed(text))

    def _addressed(self, text: bytes) -> str:
        """An event as the client gets it, which routes it by its `stream_id`."""
        if self._stream_id is None:
            return text.decode()
        address = orjson.dumps({"stream_id": self._stream_id})
        return (text[:-1] + b"," + address[1:]).decode()

    async def _refuse(self, exc: LLMError, message: str) -> None:
        if self._stream_id is None:  # refused before it was read
            self._stream_id = _find_stream_id(message)
        error: Mapping[str, Any] = RESPONSES.error(exc, "")["error"]
        event = {"type": "error", "status": exc.status, "error": error}
        text = orjson.dumps(event)
        if self._log is not None:
            self._log.status = exc.status
            self._log.note(text)
        await self.send(text_data=self._addressed(text))


def _parse_message(message: str) -> dict[str, Any]:
    """Raises BadRequest."""
    try:
        data = bounded_json.loads(replace_nul(message.encode()))
    except bounded_json.TooManyValues as exc:
        raise RequestTooLarge(f"The message is too large: {exc.msg}.") from exc
    except orjson.JSONDecodeError as exc:
        raise BadRequest("The message is not valid JSON.") from exc
    if not isinstance(data, dict) or data.get("type") != "response.create":
        raise BadRequest("Send {'type': 'response.create', …}.", param="type")
    return data


def _stream_id_of(data: dict[str, Any]) -> str | None:
    """Raises BadRequest."""
    id = data.get("stream_id")
    if id is not None and not (isinstance(id, str) and len(id) <= _MAX_STREAM_ID):
        raise BadRequest(
            f"'stream_id' must be a string of at most {_MAX_STREAM_ID} characters.",
            param="stream_id",
        )
    return id


def _find_stream_id(message: str) -> str | None:
    """The id that a refused message has, if it is short and valid."""
    if len(message) > _MAX_REFUSED:
        return None
    with suppress(BadRequest, bounded_json.TooManyValues, orjson.JSONDecodeError):
        data = bounded_json.loads(message.encode())
        return _stream_id_of(data) if isinstance(data, dict) else None
    return None


def _body_of(data: dict[str, Any]) -> dict[str, Any]:
    """What HTTP has in the body. Raises BadRequest."""
    for name in _HTTP_ONLY:
        if data.get(name):
            raise BadRequest(f"{name!r} cannot be used over a WebSocket.", param=name)
    fields = {n: v for n, v in data.items() if n not in _ENVELOPE}
    return {**fields, "stream": True}


WebSocketApp = Callable[[Any, Any, Any], Awaitable[None]]
_consumer: WebSocketApp = ResponsesConsumer.as_asgi()


def route_gateway_first(browser_app: WebSocketApp) -> WebSocketApp:
    """An app that routes `/v1/responses` to the gateway and all else to `browser_app`.

    Gateway clients authenticate by token and send no `Origin` header, so this stands
    before the origin check. The consumer's awaitable is returned instead of awaited, so
    that no frame of this router stays in memory while the socket is open.
    """

    def route(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        is_gateway = scope["path"].rstrip("/") == "/v1/responses"
        return (_consumer if is_gateway else browser_app)(scope, receive, send)

    return route
