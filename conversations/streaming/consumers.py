"""The WebSocket of one conversation: start, stop and subscribe to turns.

Channels passes a consumer its next message only after the handler of the previous one
has returned. So handlers start work and return; each subscription runs in its own task,
otherwise a client could not stop a turn while it streams.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from channels.consumer import get_handler_name
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.layers import get_channel_layer
from django.db import InterfaceError, OperationalError
from rest_framework.exceptions import APIException

from conversations import engine
from conversations.access import admission
from conversations.access.errors import TooFast
from conversations.access.session_user import Headers, session_key, user_from_session
from conversations.engine import (
    WRITE_EXTENSION,
    DirectSink,
    Entry,
    Write,
    message_bounds,
    notifications,
)
from conversations.engine.connection_revocation import (
    Connections,
    Credential,
    closing_tasks,
)
from conversations.engine.continuation import continue_message
from conversations.engine.database import disk_space
from conversations.engine.database.executor import is_database_unavailable
from conversations.engine.local_channel_layer import LocalLayer
from conversations.engine.notifications import group_of, group_of_user
from conversations.models import Conversation, Question, ToolCall, Turn
from conversations.turns.history import byte_length
from conversations.turns.input_checks import (
    MAX_DEPTH,
    InputError,
    check_no_nul,
    is_deeper,
)
from llm.concurrency.worker_thread import run_off_loop
from llm.db.compiled_queries import RegularUser
from llm.errors import LLMError
from llm.wire import bounded_json

logger = logging.getLogger(__name__)

_CHUNK_SIZE = 50  # entries
SIGNED_OUT = 4401  # close code


class InvalidMessage(Exception):
    """Send an object with a known type; see docs/websocket.md."""

    def __init__(self, message: str = "", param: str | None = None) -> None:
        super().__init__(message or self.__doc__)
        self.param = param


class SignedOut(Exception):
    """The session is over, or its user may not sign in any more."""


class ConversationConsumer(AsyncJsonWebsocketConsumer):
    _write: Write | None = None  # writes past ASGI, if the server supports it
    _unregister: Callable[[], None] | None = None  # leaves `Connections`

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Channels starts three tasks for each connection: one receives messages, one
        receives hints, and one waits for both. With `LocalLayer` this one task does
        all of it."""
        self._hints: list[dict[str, Any]] = []
        self._hint_task: asyncio.Task[None] | None = None
        self._is_busy = False
        self._group = ""
        self._user_group = ""
        if not isinstance(get_channel_layer(), LocalLayer):
            await super().__call__(scope, receive, send)
            return
        self.scope, self.base_send = scope, send
        del scope  # frees 2 KB for as long as the connection is open
        self.channel_layer = get_channel_layer()
        try:
            while True:
                message = await receive()
                self._is_busy = True
                await self.dispatch(message)
                await self._dispatch_hints()
                self._is_busy = False
        except StopConsumer:
            return
        finally:
            self._leave()

    def _queue_hint(self, hint: dict[str, Any]) -> None:
        """Dispatch the hint after the handler that is running, if there is one."""
        self._hints.append(hint)
        if not self._is_busy and (self._hint_task is None or self._hint_task.done()):
            self._hint_task = asyncio.ensure_future(self._dispatch_hints())

    async def _dispatch_hints(self) -> None:
        with suppress(OSError):  # the socket is closed already
            while self._hints:
                await self.dispatch(self._hints.pop(0))

    async def connect(self) -> None:
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._key: Any = None  # `key` of the client message being handled
        scope, self.scope = self.scope, {}
        self._write = scope.get("extensions", {}).get(WRITE_EXTENSION)
        conversation_id = scope["url_route"]["kwargs"]["conversation_id"]
        try:
            found = await engine.read(_look_up, scope["headers"], conversation_id)
        except (OperationalError, InterfaceError) as exc:
            if not (is_database_unavailable(exc) or disk_space.report_full(exc)):
                raise
            logger.warning("a WebSocket is refused: %s", type(exc).__name__)
            await self.close(code=4503)
            return
        if engine.is_draining():  # it may have begun to drain during the read
            await self.close(code=4503)
            return
        credential, bucket_owner, is_owner = found
        if credential is None:
            await self.close(code=SIGNED_OUT)
            return
        self._user_id, self._bucket_owner = credential.user_id, bucket_owner
        self._session_key = credential.session_key
        if not is_owner:
            await self.close(code=4404)
            return
        self._conversation_id: str = conversation_id
        self._group = group_of(conversation_id)
        self._user_group = group_of_user(self._user_id)
        notifications.open_pages[conversation_id] += 1
        for group in (self._group, self._user_group):
            if isinstance(self.channel_layer, LocalLayer):
                self.channel_layer.join(group, self._queue_hint)
            else:
                await self.channel_layer.group_add(group, self.channel_name)
        await self.accept()
        self._unregister = Connections.of_loop().add(credential, self._end_soon)

    def _end_soon(self) -> None:
        closing_tasks.start(self._end())

    async def _end(self) -> None:
        """Send nothing more, and close with SIGNED_OUT."""
        await self.disconnect(SIGNED_OUT)
        with suppress(OSError, RuntimeError):  # the socket is closed already
            await self.close(code=SIGNED_OUT)

    async def disconnect(self, code: int) -> None:
        for task in self._subscriptions.values():
            task.cancel()  # cancels the subscription; the turn continues
        await asyncio.gather(*self._subscriptions.values(), return_exceptions=True)
        groups = (self._group, self._user_group) if self._group else ()
        self._leave()
        if not isinstance(self.channel_layer, LocalLayer):
            for group in groups:
                await self.channel_layer.group_discard(group, self.channel_name)

    def _leave(self) -> None:
        """Leave the groups and `Connections`. Idempotent."""
        if self._unregister is not None:
            self._unregister()
        if not self._group:
            return
        notifications.remove_open_page(self._conversation_id)
        if isinstance(self.channel_layer, LocalLayer):
            self.channel_layer.leave(self._group, self._queue_hint)
            self.channel_layer.leave(self._user_group, self._queue_hint)
        self._group = ""

    async def websocket_disconnect(self, message: Any) -> None:
        await self.disconnect(message["code"])
        raise StopConsumer  # the rest of Channels' own handler is not needed

    async def dispatch(self, message: Any) -> None:
        """Unlike Channels' own, does not call `close_old_connections` in a thread for
        each message: the functions that read the database here do so themselves."""
        handler = getattr(self, get_handler_name(message), None)
        if handler is None:
            raise ValueError(f"No handler for messages of type {message['type']!r}.")
        await handler(message)

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None
    ) -> None:
        self._key = None
        try:
            size = byte_length(text_data or "") + len(bytes_data or b"")
            await admission.atake_user_request(self._bucket_owner, size)
            if not text_data:
                raise InvalidMessage("Send JSON in a text message that is not empty.")
            await super().receive(text_data=text_data)
        except SignedOut:
            await self._end()
        except TooFast as exc:
            # The message has not been parsed yet, so its key is not known.
            text = text_data or ""
            self._key = await run_off_loop(len(text), _key_of, text)
            await self._refuse_too_fast(exc)
        except InvalidMessage as exc:
            await self._refuse(str(exc), exc.param)
        except APIException as exc:
            await self._refuse_api(exc)
        except (OperationalError, InterfaceError) as exc:
            if disk_space.report_full(exc):
                await self._refuse(
                    disk_space.MESSAGE, code=disk_space.CODE, type="server_error"
                )
                return
            await self._refuse(
                "The database cannot be reached; try again in a moment.",
                code="database_unavailable",
                type="server_error",
            )
        except LLMError as exc:
            await self._refuse(
                str(exc),
                exc.param or "model",
                code=exc.openai_code or exc.code,
                type=exc.type,
            )

    @classmethod
    async def decode_json(cls, text_data: str) -> Any:
        return await run_off_loop(len(text_data), _parse, text_data)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        self._key = content.get("key") if isinstance(content, dict) else None
        match content:
            case {"type": "ping"}:
                await self.send_json({"type": "parley:pong"})
            case {"type": "turn.create"}:
                await self._create(content)
            case {"type": "turn.cancel", "turn": str(turn_id)}:
                turn = await self._turn(turn_id)
                await database_sync_to_async(engine.cancel)(turn)
            case {"type": "turn.follow", "turn": str(turn_id)}:
                after = _position(content.get("after"))
                await self._turn(turn_id)
                self._subscribe(turn_id, after)
            case {"type": "turn.continue", "turn": str(turn_id)}:
                await self._continue(await self._turn(turn_id))
            case {"type": "tool_call.cancel", "id": int(call_id)}:
                await database_sync_to_async(self._cancel_call)(call_id)
            case {"type": "tool_call.cancel"}:
                raise InvalidMessage(
                    "tool_call.cancel needs the id of a tool call.", "id"
                )
            case {"type": "question.answer", "id": str(question_id)}:
                await database_sync_to_async(self._answer)(question_id, content)
            case {"type": "question.answer"}:
                raise InvalidMessage(
                    "question.answer needs the id of a question.", "id"
                )
            case {"type": "turn.cancel" | "turn.follow" | "turn.continue" as kind}:
                raise InvalidMessage(f"{kind} needs the id of a turn.", "turn")
            case {"type": str(kind)}:
                raise InvalidMessage(f"The type {kind[:64]!r} is not known.", "type")
            case _:
                raise InvalidMessage

    async def turn_queued(self, hint: dict[str, Any]) -> None:
        """Channel-layer hint: a turn was opened in this conversation."""
        if hint["turn"] not in self._subscriptions:
            queued = {"type": "parley:turn.queued", "turn": hint["turn"]}
            await self.send_json(queued)

    async def conversation_renamed(self, hint: dict[str, Any]) -> None:
        """Channel-layer hint: one of the user's conversations has a new title."""
        renamed = {"type": "parley:conversation.renamed"}
        await self.send_json({**renamed, "conversation": hint["conversation"]})

    async def _create(self, fields: dict[str, Any]) -> None:
        turn = await engine.open(partial(self._open_turn, fields))
        await self._subscribe_new(turn)

    async def _continue(self, halted: Turn) -> None:
        turn = await database_sync_to_async(self._open_continuation)(halted)
        await self._subscribe_new(turn)

    def _open_continuation(self, halted: Turn) -> Turn:
        from conversations.api.errors import NothingToContinueConflict

        try:
            return continue_message(halted, self._check_session())
        except message_bounds.CannotContinue as exc:
            raise NothingToContinueConflict from exc

    async def _subscribe_new(self, turn: Turn) -> None:
        queued = {"type": "parley:turn.queued", "turn": turn.pk, "key": self._key}
        await self.send_json(queued)
        self._subscribe(turn.pk, None)

    def _cancel_call(self, call_id: int) -> None:
        self._check_session()
        calls = ToolCall.objects.filter(turn__conversation=self._conversation_id)
        call = calls.filter(pk=call_id).first() if abs(call_id) < 2**63 else None
        if call is None:
            raise InvalidMessage(
                "There is no such tool call in this conversation.", "id"
            )
        engine.cancel_call(call)

    def _open_turn(self, fields: dict[str, Any]) -> Turn:
        # REST's serializer, so that both endpoints return the same errors.
        from conversations.api.serializers import TurnRequestSerializer

        data = {k: v for k, v in fields.items() if k not in ("type", "key")}
        # Read again: it may have been changed or deleted since the connection.
        self._check_session()
        requester = RegularUser(self._user_id)
        found = Conversation.objects.find(requester, self._conversation_id)
        if found is None or not found.owner.is_active:
            raise InvalidMessage("This conversation is gone.", "conversation")
        serializer = TurnRequestSerializer(
            data=data,
            context={
                "conversation": found,
                "user": found.owner,  # with current permissions
                "idempotency_key": fields.get("key"),
            },
        )
        serializer.is_valid(raise_exception=True)
        turn: Turn = serializer.save()
        return turn

    def _answer(self, question_id: str, fields: dict[str, Any]) -> None:
        from conversations.api.tool_calls import AnswerSerializer, answer_question

        user = self._check_session()
        question = self._question(user, question_id)
        if question is None:
            raise InvalidMessage("There is no such question for you here.", "id")
        data = {k: v for k, v in fields.items() if k not in ("type", "id", "key")}
        serializer = AnswerSerializer(data=data)
        serializer.is_valid(raise_exception=True)
        answer_question(question, user, **serializer.validated_data)

    def _question(self, user: Any, question_id: str) -> Question | None:
        questions = Question.objects.answerable_by(user).filter(
            tool_call__turn__conversation=self._conversation_id
        )
        return questions.filter(pk=question_id).first()

    async def _turn(self, turn_id: str) -> Turn:
        turn: Turn | None = await database_sync_to_async(self._find_turn)(turn_id)
        if turn is None:
            raise InvalidMessage("There is no such turn in this conversation.", "turn")
        return turn

    def _find_turn(self, turn_id: str) -> Turn | None:
        self._check_session()
        turns = Turn.objects.filter(conversation=self._conversation_id, pk=turn_id)
        return turns.first()

    def _check_session(self) -> Any:
        """The session's user, read from the database. Raises SignedOut."""
        user = user_from_session(self._session_key)
        if user.pk != self._user_id:
            raise SignedOut
        return user

    def _subscribe(self, turn_id: str, after: str | None) -> None:
        if task := self._subscriptions.pop(turn_id, None):
            task.cancel()
        self._subscriptions[turn_id] = asyncio.ensure_future(
            self._forward(turn_id, after)
        )

    async def _forward(self, turn_id: str, after: str | None) -> None:
        # While the server shuts down this ends early; the server closes with 1012.
        sink = DirectSink(Entry.ws_frame, self._write) if self._write else None
        try:
            batches = engine.subscribe(turn_id, after, sink)
        except engine.NotRunning:  # the server shuts down and closes with 1012
            return
        try:
            async for entries in batches:
                await self._send_entries(entries, sink)
                del entries  # the next batch may take long; free this one
        except OSError:
            pass  # the socket is closed already
        finally:
            if self._subscriptions.get(turn_id) is asyncio.current_task():
                del self._subscriptions[turn_id]
            await batches.aclose()

    async def _send_entries(
        self, entries: list[Entry], sink: DirectSink | None
    ) -> None:
        for chunk in _chunks(entries):
            if sink and sink.write_entries(chunk):
                continue
            for entry in chunk:
                await self._send_text(entry.ws)

    async def _send_text(self, text: str) -> None:
        """Like `self.send`. Raises OSError where the socket is closed or closing."""
        try:
            await self.base_send({"type": "websocket.send", "text": text})
        except RuntimeError as exc:  # uvicorn, after the client's close frame
            raise ConnectionAbortedError from exc

    async def _refuse(
        self,
        message: str,
        param: str | None = None,
        *,
        code: str = "invalid_message",
        type: str = "invalid_request_error",
    ) -> None:
        await self._send_error(
            {"type": type, "code": code, "message": message, "param": param}
        )

    async def _refuse_too_fast(self, exc: TooFast) -> None:
        error = {"type": exc.type, "code": exc.openai_code or exc.code, "param": None}
        wait = math.ceil(exc.retry_after or 1)
        await self._send_error({**error, "message": str(exc), "retry_after": wait})

    async def _refuse_api(self, exc: APIException) -> None:
        from conversations.api.errors import error_object

        await self._send_error(error_object(exc))

    async def _send_error(self, error: dict[str, Any]) -> None:
        """Send the error with the `key` of the client message, if it had one."""
        key = {"key": self._key} if isinstance(self._key, str) else {}
        await self.send_json({"type": "error", "error": error, **key})


def _look_up(
    headers: Headers, conversation_id: str
) -> tuple[Credential | None, str, bool]:
    """The session's credential, or None; the owner of the user's rate-limit buckets;
    and whether the conversation belongs to the user."""
    key = session_key(headers) or ""
    user = user_from_session(key)
    if not user.is_authenticated:
        return None, "", False
    credential = Credential.of_session(user, key)
    bucket_owner = admission.user_bucket_owner(user)
    return (
        credential,
        bucket_owner,
        Conversation.objects.find(user, conversation_id) is not None,
    )


def _parse(text: str) -> Any:
    """Raises InvalidMessage."""
    try:
        body = text.encode()
        message = bounded_json.loads(body)  # no NaN, no half surrogate pairs
    except bounded_json.TooManyValues as exc:
        raise InvalidMessage(f"The message is too large: {exc.msg}.") from exc
    except ValueError as exc:
        raise InvalidMessage("The message is not valid JSON.") from exc
    if is_deeper(message):
        problem = f"The message is nested more than {MAX_DEPTH} levels deep."
        raise InvalidMessage(problem)
    try:
        check_no_nul(message, body)
    except InputError as exc:
        raise InvalidMessage(str(exc), exc.param) from exc
    return message


def _key_of(text: str) -> str | None:
    """The `key` of a message that is rejected unread, or None."""
    with suppress(ValueError):
        message = bounded_json.loads(text.encode())
        key = message.get("key") if isinstance(message, dict) else None
        return key if isinstance(key, str) else None
    return None


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Chunks of some kilobytes, so that a long answer is not in memory twice."""
    for first in range(0, len(entries), _CHUNK_SIZE):
        yield entries[first : first + _CHUNK_SIZE]


def _position(after: Any) -> str | None:
    if after is None:
        return None
    try:
        return str(engine.Position.parse(after))
    except (ValueError, AttributeError) as exc:
        raise InvalidMessage(
            "'after' must be a position such as '1-42'.", "after"
        ) from exc
