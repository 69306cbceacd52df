"""The WebSocket form of `/v1/responses`: a message per request, an event per message.

A separate task answers the requests one after another, so that a disconnect is noticed
at any time. With `store: false` the history is kept only in this connection's memory.

Source: https://www.openresponses.org/specification#websocket
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import orjson
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import InterfaceError, OperationalError

from conversations import engine
from conversations.gateway import kept, kept_rows, tokens
from conversations.gateway.asked import read
from conversations.gateway.create import check_unkept
from conversations.gateway.dialects import RESPONSES
from conversations.gateway.faults import Fault, GoingDown, unavailable
from conversations.gateway.given import input_of
from conversations.gateway.history import check_outputs, history_of, with_history
from conversations.gateway.http import TooLarge
from conversations.gateway.light import Answer
from conversations.gateway.means import means
from conversations.revocation import Connections, Credential, ending_tasks
from conversations.token_errors import Unauthorized
from conversations.tokens import AccessToken
from llm.errors import BadRequest, LLMError
from llm.off_loop import run_off_loop
from llm.wire import bounded_json
from llm.wire.items import Event, Item
from llm.wire.mending import without_nul

logger = logging.getLogger(__name__)

REMEMBERED = 100  # responses whose history one connection keeps
QUEUED = 2  # waiting requests; when the queue is full, no message is read
_HTTP_ONLY = ("stream", "stream_options", "background")


class ResponsesConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self._asked: asyncio.Queue[str] = asyncio.Queue(QUEUED)
        self._answering: asyncio.Task[None] | None = None
        self._forget: Callable[[], None] | None = None  # ends the revocation watch
        self._said: dict[str, list[Item]] = {}  # by response id: the whole history
        self._headers = dict(self.scope["headers"])
        try:
            token = await means().tokens.find(self._headers)
            await self._enter(token)
        except LLMError as exc:
            await self.close(code=4000 + exc.status)
            return
        except (OperationalError, InterfaceError) as exc:
            if (told := unavailable(exc)) is None:
                raise
            logger.warning("a WebSocket is refused: %s", told.code)
            await self.close(code=4000 + told.status)
            return
        if engine.is_draining():  # checked last, right before accepting
            await self.close(code=4000 + GoingDown.status)
            return
        await self.accept()
        self._answering = asyncio.ensure_future(self._answer_all())
        credential = Credential.of_token(token)
        self._forget = Connections.of_loop().add(credential, self._end_soon)

    def _end_soon(self) -> None:
        ending_tasks.start(self._end())

    async def _end(self) -> None:
        """Close the socket after its token was revoked or has expired, or its user was
        deactivated."""
        await self._stop_answering()
        with suppress(OSError, RuntimeError):  # the socket is closed already
            await self.close(code=4000 + Unauthorized.status)

    async def disconnect(self, code: int) -> None:
        if self._forget is not None:
            self._forget()
        await self._stop_answering()

    async def _stop_answering(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            with suppress(asyncio.CancelledError):
                await self._answering

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None
    ) -> None:
        """Queue a message.

        Channels reads the next message once this returns, so a full queue makes the
        client wait.
        """
        assert self._answering is not None, "a connection that was accepted"
        waiting = asyncio.ensure_future(self._asked.put(text_data or ""))
        try:
            await asyncio.wait(
                {waiting, self._answering}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()  # no effect unless the answer task has ended

    async def _answer_all(self) -> None:
        while True:
            message = await self._asked.get()
            try:
                await self._answer(message)
            except LLMError as exc:
                await self._refuse(exc)
            except Exception as exc:
                if told := unavailable(exc):
                    logger.warning("a WebSocket is told: %s", told.code)
                    await self._refuse(told)
                    continue
                logger.exception("a response over a WebSocket failed")
                await self._refuse(Fault())

    async def _answer(self, message: str) -> None:
        if engine.is_draining():
            raise GoingDown
        # Checked with each request: a token can be revoked during the connection.
        token = await means().tokens.find(self._headers)
        await self._enter(token)
        body = await run_off_loop(len(message), _body, message)
        body["input"] = await input_of(body, token, means().database)
        previous = body.get("previous_response_id")
        try:
            if body.get("store") is False:
                await self._unkept(body, token)
            else:
                await self._kept(body, token)
        except BaseException:
            self._said.pop(str(previous), None)
            raise

    async def _enter(self, token: AccessToken) -> None:
        peer = (self.scope.get("client") or [""])[0]
        await tokens.enter(token, peer, self._headers, anthropic=False)

    async def _unkept(self, body: dict[str, Any], token: Any) -> None:
        check_unkept(body)
        if (previous := body.get("previous_response_id")) is not None:
            before = self._said.get(str(previous))
            if before is None:
                before = await means().database.read(history_of, token, previous)
            body["input"] = with_history(before, body["input"])
        asked = await read(body, RESPONSES, token, means().database)
        check_outputs(asked.request.items)
        asked = await tokens.admit(asked, means().database)
        answer = Answer(asked, means().records)
        writer = RESPONSES.writer(asked, answer, "")
        async with aclosing(answer.events()) as batches:
            async for events in batches:
                await self._tell(writer.feed(events))
        if answer.builder.error:
            self._said.pop(str(previous), None)
            return
        while len(self._said) >= REMEMBERED:
            del self._said[next(iter(self._said))]
        response = answer.builder.response()
        self._said[response["id"]] = [*asked.request.items, *response["output"]]

    async def _kept(self, body: dict[str, Any], token: Any) -> None:
        asked = await read(body, RESPONSES, token, means().database)
        asked = await tokens.admit(asked, means().database, is_kept=True)
        turn = await kept.open_turn(asked, means())
        writer = turn.writer()
        try:
            async with aclosing(kept.events_of(turn)) as batches:
                async for events in batches:
                    await self._tell(writer.feed(events))
        except asyncio.CancelledError:
            kept_rows.stop_soon(turn.id, means().records)
            raise
        if not writer.ended:
            raise GoingDown

    async def _tell(self, events: list[Event]) -> None:
        for event in events:
            await self.send(text_data=orjson.dumps(event).decode())

    async def _refuse(self, exc: LLMError) -> None:
        error: Mapping[str, Any] = RESPONSES.error(exc, "")["error"]
        event = {"type": "error", "status": exc.status, "error": error}
        await self.send(text_data=orjson.dumps(event).decode())


def _body(message: str) -> dict[str, Any]:
    """Raises BadRequest."""
    try:
        told = bounded_json.loads(without_nul(message.encode()))
    except bounded_json.TooManyValues as exc:
        raise TooLarge(f"The message is too large: {exc.msg}.") from exc
    except orjson.JSONDecodeError as exc:
        raise BadRequest("The message is not valid JSON.") from exc
    if not isinstance(told, dict) or told.get("type") != "response.create":
        raise BadRequest("Send {'type': 'response.create', …}.", param="type")
    for name in _HTTP_ONLY:
        if told.get(name):
            raise BadRequest(f"{name!r} is not for WebSockets.", param=name)
    asked = {n: v for n, v in told.items() if n not in ("type", *_HTTP_ONLY)}
    return {**asked, "stream": True}
