"""The WebSocket of one conversation: start, stop and subscribe to turns.

Channels passes a consumer its next message only after the handler of the previous one
has returned. So handlers start work and return; each subscription runs in its own task,
otherwise a client could not stop a turn while it streams.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.layers import get_channel_layer
from django.utils import translation
from rest_framework.exceptions import APIException

from conversations import engine
from conversations.access import admission, overload
from conversations.access.errors import TooFast, TooManyConnections
from conversations.access.session_user import Headers, session_key, user_from_session
from conversations.access.user_language import accepted_languages, language_of
from conversations.engine import (
    WRITE_KEY,
    notifications,
)
from conversations.engine.connection_revocation import (
    Credential,
    closing_tasks,
    open_connections,
)
from conversations.engine.database import disk_space
from conversations.engine.database.executor import is_database_unavailable
from conversations.engine.notifications import group_of, group_of_user
from conversations.http.presence import Presence
from conversations.models import Conversation, Participant, Turn
from conversations.streaming.client_messages import (
    InvalidMessage,
    UnknownTurn,
    key_of,
    parse_message,
    position_of,
)
from conversations.streaming.conversation_access import (
    ConversationAccess,
    NotJoined,
    SignedOut,
)
from conversations.streaming.turn_subscriptions import TurnSubscriptions
from conversations.turns.error_texts import in_own_language, text_for_reader
from conversations.turns.history import byte_length
from llm.concurrency.worker_thread import run_off_loop
from llm.db.outages import UNREACHABLE
from llm.errors import LLMError

logger = logging.getLogger(__name__)

CLOSED_ABNORMALLY = 1006  # code of a connection that was lost
SIGNED_OUT = 4401  # close code
NOT_FOUND = 4404  # close code
TOO_MANY = 4429  # close code


#: Keys of a scope that nothing reads after the handshake. The server holds the scope as
#: long as the socket is open; these are 2 KB of it.
_OF_HANDSHAKE = ("headers", "state", "url_route", "extensions")


class ConversationConsumer(AsyncJsonWebsocketConsumer):
    # In slots they take 100 bytes, in the instance's dictionary 700.
    __slots__ = (
        "_access",
        "_bucket_owner",
        "_group",
        "_is_busy",
        "_key",
        "_language",
        "_name",
        "_notification_task",
        "_notifications",
        "_presence",
        "_subscriptions",
        "_unregister",
        "_user_group",
        "base_send",
        "channel_layer",
        "scope",
    )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Channels starts three tasks for each connection: one receives messages, one
        receives notifications, and one waits for both. Here one task does all of it."""
        self._notifications: list[dict[str, Any]] = []
        self._notification_task: asyncio.Task[None] | None = None
        self._is_busy = False
        self._group = ""
        self._user_group = ""
        self._presence: Presence | None = None
        # Leaves `open_connections`.
        self._unregister: Callable[[], None] | None = None
        self.scope, self.base_send = scope, send
        del scope  # frees 2 KB for as long as the connection is open
        self.channel_layer: Any = get_channel_layer()  # LocalLayer or a subclass
        try:
            while True:
                message = await receive()
                self._is_busy = True
                await self.dispatch(message)
                await self._dispatch_notifications()
                self._is_busy = False
        except StopConsumer:
            return
        except Exception as exc:
            await self._end_failed(exc)
        finally:
            self._leave()

    async def _end_failed(self, exc: Exception) -> None:
        """End the subscriptions and tell the other pages. Raises the error, unless it
        says that the socket is closed."""
        if hasattr(self, "_subscriptions"):
            await self.disconnect(CLOSED_ABNORMALLY)
        # The server's own error; those of the system, such as a full disk, have codes.
        if not isinstance(exc, OSError) or exc.errno is not None:
            raise exc

    def _queue_notification(self, notification: dict[str, Any]) -> None:
        """Dispatch it after the handler that is running, if there is one."""
        self._notifications.append(notification)
        task = self._notification_task
        if not self._is_busy and (task is None or task.done()):
            self._notification_task = asyncio.ensure_future(
                self._dispatch_notifications()
            )

    async def _dispatch_notifications(self) -> None:
        with suppress(OSError):  # the socket is closed already
            while self._notifications:
                await self.dispatch(self._notifications.pop(0))

    async def connect(self) -> None:
        self._key: Any = None  # `key` of the client message being handled
        scope, self.scope = self.scope, {}
        write = scope.get("state", {}).get(WRITE_KEY)
        self._subscriptions = TurnSubscriptions(self.base_send, write)
        conversation_id = scope["url_route"]["kwargs"]["conversation_id"]
        headers = scope["headers"]
        for name in _OF_HANDSHAKE:
            scope.pop(name, None)
        try:
            found = await engine.read(_look_up, headers, conversation_id)
        except UNREACHABLE as exc:
            if not (is_database_unavailable(exc) or disk_space.report_full(exc)):
                raise
            logger.warning("a WebSocket was refused: %s", type(exc).__name__)
            await self.close(code=4503)
            return
        if engine.is_draining():  # it may have begun to drain during the read
            await self.close(code=4503)
            return
        credential, bucket_owner, is_visible, is_shared, self._language = found
        if credential is None or not found[2]:
            reason = "no valid session" if credential is None else "not visible"
            logger.warning("refused the WebSocket of a page: %s", reason)
        if credential is None:
            await self.close(code=SIGNED_OUT)
            return
        self._bucket_owner = bucket_owner
        if not is_visible:
            await self.close(code=NOT_FOUND)
            return
        self._access = ConversationAccess(
            credential.session_key, credential.user_id, conversation_id
        )
        self._group = group_of(conversation_id)
        self._user_group = group_of_user(credential.user_id)
        notifications.open_pages[conversation_id] += 1
        for group in (self._group, self._user_group):
            self.channel_layer.join(group, self._queue_notification)
        await self.accept()
        try:
            self._unregister = open_connections().add(credential, self._end_soon)
        except TooManyConnections as exc:
            self._leave()
            await self.close(code=TOO_MANY, reason=str(exc))
            raise StopConsumer from exc  # nothing that it sent is read
        self._name = credential.name
        if is_shared:
            self._presence = Presence(self._name)
            await self._tell(self._presence.here(time.monotonic(), asks=True))

    async def _tell(self, notification: dict[str, Any]) -> None:
        """Tell the conversation's other pages."""
        if self._group:
            await self.channel_layer.group_send(self._group, notification)

    async def presence_here(self, notification: dict[str, Any]) -> None:
        """Channel-layer hint: another page of this conversation is open."""
        now = time.monotonic()
        if self._presence is None:  # the first participant has just come
            self._presence = Presence(self._name)
        if self._presence.receive(notification, now):
            await self._tell(self._presence.here(now))
        await self._show_present(now)

    presence_gone = presence_here

    async def _show_present(self, now: float) -> None:
        presence = self._presence
        if presence and (names := presence.changed_names(now)) is not None:
            await self.send_json({"type": "parley:presence", "people": names})

    async def _keep_present(self) -> None:
        """Announce this page again, if it is time, and forget those not heard of."""
        now = time.monotonic()
        if self._presence and self._presence.is_due(now):
            await self._tell(self._presence.here(now))
            await self._show_present(now)

    def _end_soon(self) -> None:
        closing_tasks.start(self._end_revoked())

    async def _end_revoked(self) -> None:
        """End as signed out, or as removed from the conversation."""
        await self.disconnect(SIGNED_OUT)  # before anything is awaited
        code = NOT_FOUND
        try:
            await engine.read(self._access.check_session)
        except (SignedOut, *UNREACHABLE):
            code = SIGNED_OUT
        await self._end(code)

    async def _end(self, code: int = SIGNED_OUT) -> None:
        """Send nothing more, and close."""
        await self.disconnect(code)
        with suppress(OSError, RuntimeError):  # the socket is closed already
            await self.close(code=code)

    async def disconnect(self, code: int) -> None:
        await self._subscriptions.end_all()  # the turns continue
        presence, self._presence = self._presence, None
        if presence:
            await self._tell(presence.gone())
        self._leave()

    def _leave(self) -> None:
        """Leave the groups and `open_connections`. Idempotent."""
        if self._unregister is not None:
            self._unregister()
        if not self._group:
            return
        notifications.remove_open_page(self._access.conversation_id)
        self.channel_layer.leave(self._group, self._queue_notification)
        self.channel_layer.leave(self._user_group, self._queue_notification)
        self._group = ""

    async def websocket_disconnect(self, message: Any) -> None:
        await self.disconnect(message["code"])
        raise StopConsumer  # the rest of Channels' own handler is not needed

    async def dispatch(self, message: Any) -> None:
        """Unlike Channels' own, does not call `close_old_connections` in a thread for
        each message: the functions that read the database here do so themselves."""
        name = message["type"].replace(".", "_")
        handler = None if name.startswith("_") else getattr(self, name, None)
        if handler is None:
            raise ValueError(f"There are no messages of type {message['type']!r}.")
        await handler(message)

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None
    ) -> None:
        self._key = None
        try:
            size = byte_length(text_data or "") + len(bytes_data or b"")
            await admission.atake_user_request(self._bucket_owner, size)
            if not text_data:
                raise InvalidMessage("Send a text message with JSON.")
            await super().receive(text_data=text_data)
        except SignedOut:
            await self._end()
        except NotJoined:
            await self._end(NOT_FOUND)
        except TooFast as exc:
            # The message has not been parsed yet, so its key is not known.
            text = text_data or ""
            self._key = await run_off_loop(len(text), key_of, text)
            await self._refuse_too_fast(exc)
        except InvalidMessage as exc:
            if self._key is None and text_data:
                self._key = await run_off_loop(len(text_data), key_of, text_data)
            await self._refuse(str(exc), exc.param)
        except APIException as exc:
            await self._refuse_api(exc)
        except UNREACHABLE as exc:
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
        return await run_off_loop(len(text_data), parse_message, text_data)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        self._key = content.get("key") if isinstance(content, dict) else None
        match content:
            case {"type": "ping"}:
                await self.send_json({"type": "parley:pong"})
                await self._keep_present()
            case {"type": "turn.create"}:
                await self._create(content)
            case {"type": "turn.cancel", "turn": str(turn_id)}:
                turn = await self._turn(turn_id, self._access.find_writable_turn)
                await database_sync_to_async(engine.cancel)(turn)
            case {"type": "turn.follow", "turn": str(turn_id)}:
                after = position_of(content.get("after"))
                await self._follow(turn_id, after)
            case {"type": "turn.continue", "turn": str(turn_id)}:
                find = self._access.find_writable_turn
                await self._continue(await self._turn(turn_id, find))
            case {"type": "tool_call.cancel", "id": int(call_id)}:
                await database_sync_to_async(self._access.cancel_call)(call_id)
            case {"type": "tool_call.cancel"}:
                raise InvalidMessage(
                    "tool_call.cancel needs the id of a tool call.", "id"
                )
            case {"type": "question.answer", "id": str(question_id)}:
                await database_sync_to_async(self._access.answer)(question_id, content)
            case {"type": "question.answer"}:
                raise InvalidMessage(
                    "question.answer needs the id of a question.", "id"
                )
            case {"type": "turn.cancel" | "turn.follow" | "turn.continue" as kind}:
                raise InvalidMessage(f"{kind} needs the id of a turn.", "turn")
            case {"type": str(kind)}:
                raise InvalidMessage(f"The type {kind[:64]!r} is unknown.", "type")
            case _:
                raise InvalidMessage

    async def turn_queued(self, hint: dict[str, Any]) -> None:
        """Channel-layer hint: a turn was opened in this conversation."""
        if hint["turn"] not in self._subscriptions:
            queued = {"type": "parley:turn.queued", "turn": hint["turn"]}
            await self.send_json(queued)

    async def queue_changed(self, hint: dict[str, Any]) -> None:
        """Channel-layer hint: the messages that wait in this conversation changed."""
        await self.send_json({"type": "parley:queue.changed"})

    async def question_decided(self, hint: dict[str, Any]) -> None:
        """Channel-layer hint: a person has answered a question of this conversation."""
        await self.send_json({"type": "parley:question.decided", "id": hint["id"]})

    async def branches_changed(self, hint: dict[str, Any]) -> None:
        """Channel-layer hint: branches were deleted, or a viewer chose another."""
        await self.send_json({"type": "parley:branches.changed"})

    async def conversation_renamed(self, hint: dict[str, Any]) -> None:
        """Channel-layer hint: one of the user's conversations has a new title, or this
        one, whose owner hears of it by the former hint."""
        if hint.get("owner") == self._access.user_id:
            return
        renamed = {"type": "parley:conversation.renamed"}
        await self.send_json({**renamed, "conversation": hint["conversation"]})

    async def _create(self, fields: dict[str, Any]) -> None:
        overload.check_room()
        opening = partial(self._access.open_turn, fields)
        turn = await engine.open(opening, self._access.user_id, is_page=True)
        await self._subscribe_new(turn)

    async def _continue(self, halted: Turn) -> None:
        overload.check_room()
        turn = await database_sync_to_async(self._access.open_continuation)(halted)
        await self._subscribe_new(turn)

    async def _follow(self, turn_id: str, after: str | None) -> None:
        try:
            await self._turn(turn_id, self._access.find_turn)
        except UnknownTurn as exc:
            await self._refuse(str(exc), exc.param, turn=turn_id)
        else:
            self._subscriptions.start(turn_id, after)

    async def _subscribe_new(self, turn: Turn) -> None:
        queued = {"type": "parley:turn.queued", "turn": turn.pk, "key": self._key}
        queued["parent"] = turn.parent_id
        await self.send_json(queued)
        self._subscriptions.start(turn.pk, None)

    async def _turn(self, turn_id: str, find: Callable[[str], Turn | None]) -> Turn:
        turn: Turn | None = await database_sync_to_async(find)(turn_id)
        if turn is None:
            raise UnknownTurn
        return turn

    async def _refuse(
        self,
        message: str,
        param: str | None = None,
        *,
        code: str = "invalid_message",
        type: str = "invalid_request_error",
        turn: str = "",
    ) -> None:
        """With the `turn` that a client subscribes to in vain."""
        error = {"type": type, "code": code, "message": message, "param": param}
        await self._send_error(error, **({"turn": turn} if turn else {}))

    async def _refuse_too_fast(self, exc: TooFast) -> None:
        error = {"type": exc.type, "code": exc.openai_code or exc.code, "param": None}
        wait = math.ceil(exc.retry_after or 1)
        with translation.override(self._language):
            message = text_for_reader(exc)
        await self._send_error({**error, "message": message, "retry_after": wait})

    async def _refuse_api(self, exc: APIException) -> None:
        from conversations.requests.errors import error_object

        await self._send_error(error_object(exc))

    async def _send_error(self, error: dict[str, Any], **fields: str) -> None:
        """Send the error in the user's language, with the `key` of the client message
        if it had one."""
        with translation.override(self._language):
            error["message"] = in_own_language(error["message"])
        key = {"key": self._key} if isinstance(self._key, str) else {}
        await self.send_json({"type": "error", "error": error, **key, **fields})


def _look_up(
    headers: Headers, conversation_id: str
) -> tuple[Credential | None, str, bool, bool, str]:
    """The session's credential, or None; the owner of the user's rate-limit buckets;
    whether the user may see the conversation; whether others may, too; and the user's
    language."""
    key = session_key(headers) or ""
    user = user_from_session(key)
    if not user.is_authenticated:
        return None, "", False, False, ""
    credential = Credential.of_session(user, key)
    bucket_owner = admission.user_bucket_owner(user)
    found = Conversation.objects.find_visible(user, conversation_id)
    if found is not None and found.owner_id != user.pk:
        credential = replace(credential, conversation_id=found.pk)
    is_shared = (
        found is not None
        and Participant.objects.joined().filter(conversation=found).exists()
    )
    credential = replace(credential, name=user.get_username())
    language = language_of(user.pk, accepted_languages(headers))
    return credential, bucket_owner, found is not None, is_shared, language
