"""The turn engine: runs turns and publishes their events, and survives the end of the
process.

The entry points use only these functions. `submit` and `cancel` are for synchronous
code in any thread; the others run on the server's event loop or hand over to it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import orjson
from channels.db import database_sync_to_async
from django.conf import settings

from conversations.engine.event_log import (
    WRITE_KEY,
    DirectSink,
    Entry,
    Position,
    TurnDeleted,
    Write,
)
from conversations.engine.process.fair_slots import FairSlots
from conversations.engine.process.turn_opening import Abandon, open_with_slot

if TYPE_CHECKING:
    from conversations.engine.background_store import ConcludedCall
    from conversations.engine.engine import Engine
    from conversations.models import Conversation, OpenedTurn, Question, ToolCall, Turn
    from conversations.models.access_token import AccessToken

P = ParamSpec("P")
T = TypeVar("T")

__all__ = [
    "WRITE_KEY",
    "DirectSink",
    "Entry",
    "NotRunning",
    "Position",
    "TurnDeleted",
    "Write",
    "announce_branches",
    "announce_decision",
    "announce_queue",
    "announce_rename",
    "cancel",
    "cancel_call",
    "continue_message",
    "dispatch_result",
    "drain",
    "forget",
    "is_at_end",
    "is_draining",
    "notify_decision",
    "notify_steering",
    "open",
    "publish_notification",
    "read",
    "refresh_status",
    "response_of",
    "start",
    "submit",
    "subscribe",
]

_engine: Engine | None = None
_draining: asyncio.Future[None] | None = None
#: Set while the engine drains: the server accepts no new work.
draining = threading.Event()


class NotRunning(Exception):
    """This process does not run turns; start a server with `manage.py serve`."""


async def start(*, is_worker: bool = True) -> None:
    """Start the engine on this event loop. Only a process with `is_worker` runs turns;
    scaled, the others subscribe to them, else they serve the gateway."""
    global _engine
    assert _engine is None, "one engine a process"
    if settings.IS_SCALED:
        from conversations.engine.scaled_engine import ScaledEngine

        _engine = ScaledEngine(is_worker=is_worker)
    else:
        from conversations.engine.embedded_engine import EmbeddedEngine, GatewayEngine

        _engine = EmbeddedEngine() if is_worker else GatewayEngine()
    try:
        await _engine.start()
    except BaseException:
        failed, _engine = _engine, None  # so that a later request may start another
        await failed.drain(0.0)
        raise


async def drain() -> None:
    """Take up no more turns; let running ones end, or release them to other processes.

    A second call waits for the first drain.
    """
    global _engine, _draining
    if _engine is None:
        return
    if _draining is None:
        _draining = asyncio.ensure_future(_engine.drain(settings.DRAIN_GRACE))
        draining.set()
    try:
        await asyncio.shield(_draining)
    finally:
        _engine = _draining = None
        draining.clear()


def is_draining() -> bool:
    return draining.is_set()


def submit(
    turn_id: str,
    conversation_id: str = "",
    opened: OpenedTurn | None = None,
    owner: int | None = None,
) -> None:
    """Run a committed turn. Without an engine in this process, a sweep of another
    process finds it. Owners, the users who send messages, are served in turn.

    A turn that was just `opened` is not read again if it can run at once. On the
    engine's own loop the turn is queued immediately, so a subscriber that comes next
    waits for its run instead of reading the rows.
    """
    if _engine is None:
        return
    running: asyncio.AbstractEventLoop | None = None
    with suppress(RuntimeError):
        running = asyncio.get_running_loop()
    if running is _engine.loop:
        _engine.submit(turn_id, conversation_id, opened, owner)
        return
    _engine.loop.call_soon_threadsafe(
        _engine.submit, turn_id, conversation_id, opened, owner
    )


async def open(
    open_turn: Callable[[], OpenedTurn],
    owner: int | None = None,
    *,
    slots: FairSlots | None = None,
    execute: Callable[[Callable[[], OpenedTurn]], Awaitable[OpenedTurn]] | None = None,
    abandon: Abandon | None = None,
    is_page: bool = False,
) -> Turn:
    """Call `open_turn` in a thread and submit the turn that it returns, to which the
    caller subscribes at once. Owners are served in turn.

    In one process the turn is opened and claimed in the same transaction. Otherwise
    `execute` calls `open_turn`, once `slots` has room: by default Channels' thread, at
    once. See `open_with_slot` for `abandon`. `is_page`: the caller is an open page.
    """
    if _engine is not None and not settings.IS_SCALED:
        return await _engine.open(open_turn, owner, abandon, is_page=is_page)

    async def open_here() -> Turn:
        opened = await (execute or _execute_on_channels_thread)(open_turn)
        submit(opened.turn.pk, opened.turn.conversation_id, opened, owner)
        return opened.turn

    return await open_with_slot(slots or FairSlots(1), owner, open_here, abandon)


async def _execute_on_channels_thread(
    open_turn: Callable[[], OpenedTurn],
) -> OpenedTurn:
    opened: OpenedTurn = await database_sync_to_async(open_turn)()
    return opened


async def read(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function`, which reads rows, in one of the engine's reader threads;
    Channels has a single thread."""
    if _engine is not None and not _engine.tasks.draining:
        return await _engine.read(function, *args, **kwargs)
    found: T = await database_sync_to_async(function)(*args, **kwargs)
    return found


def cancel(turn: Turn) -> None:
    """Stop the turn in any phase, and all turns and calls that its message has caused;
    does nothing for those that are over."""
    from conversations.engine import message_consequences

    stopped = message_consequences.halt(turn.pk)
    message_consequences.cancel_calls_of(turn.pk)
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.cancel_all, stopped)


def continue_message(
    turn: Turn,
    token: AccessToken | None = None,
    user: Any = None,
    *,
    admit: Callable[[], None] | None = None,
) -> Turn:
    """Open the turn that continues past the limit which the message of `turn` has
    reached, in the name of `user`. `admit` counts it, where it can continue.

    Raises `message_consequences.CannotContinue`.
    """
    from conversations.engine import message_consequences

    opened = message_consequences.continue_message(turn.pk, token, user, admit)
    submit(opened.pk, opened.conversation_id, owner=user.pk if user else None)
    return opened


def notify_decision(question: Question) -> None:
    """Notify a running turn that a person has answered its question."""
    turn_id = question.tool_call.turn_id
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.notify_decision, turn_id, question.pk)


def announce_decision(question: Question) -> None:
    """Show in the conversation's open pages that a person has answered a question."""
    conversation_id = question.tool_call.turn.conversation_id
    if _engine is not None:
        announce = _engine.announce_decision
        _engine.loop.call_soon_threadsafe(announce, conversation_id, question.pk)


def cancel_call(call: ToolCall) -> None:
    """Cancel a background call; does nothing if it is over."""
    from conversations.engine import message_consequences

    message_consequences.cancel_calls(type(call).objects.filter(pk=call.pk))
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.wake_background)


def dispatch_result(concluded: ConcludedCall) -> None:
    """Hand a background call's result, which was posted from outside, to the model."""
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.background.dispatch_result, concluded)


def forget(turn_id: str) -> None:
    """Drop the events of a finished turn whose rows have changed; from now on they are
    made from the rows."""
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.forget, turn_id)


def announce_rename(conversation: Conversation) -> None:
    """Show the conversation's new title in its owner's open pages."""
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(
            _engine.announce_rename, conversation.owner_id, conversation.pk
        )


def announce_queue(conversation_id: str) -> None:
    """Show the conversation's changed queue in its open pages."""
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.announce_queue, conversation_id)


def notify_steering(conversation_id: str) -> None:
    """Notify the conversation's run that a message is to join its turn."""
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.notify_result, conversation_id)


def announce_branches(conversation_id: str) -> None:
    """Show open pages of the conversation that its branches have changed."""
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.announce_branches, conversation_id)


def refresh_status() -> None:
    """Let this process report, and read what staff have changed, at once; others do
    within seconds."""
    if _engine is not None:
        asyncio.run_coroutine_threadsafe(_engine.status_report.report(), _engine.loop)


def publish_notification(kind: str) -> None:
    """Notify all other processes that something of this kind has changed; see
    `notifications.on`."""
    if _engine is not None:
        _engine.loop.call_soon_threadsafe(_engine.publish_notification, kind)


def subscribe(
    turn_id: str, after: str | Position | None = None, sink: DirectSink | None = None
) -> AsyncGenerator[list[Entry], None]:
    """Yield the turn's entries after a position, in the batches in which they were
    appended.

    With a `sink`, entries that it could write directly are not yielded; the last entry
    always is. Raises ValueError for a malformed position, NotRunning without an engine;
    iterating raises TurnDeleted.
    """
    position = Position.parse(after) if isinstance(after, str) else after
    return require_engine().subscribe(turn_id, position, sink)


async def is_at_end(turn_id: str, after: str) -> bool:
    """True if the turn is over and has no events after `after`."""
    return await require_engine().is_at_end(turn_id, Position.parse(after))


async def response_of(turn_id: str) -> dict[str, Any]:
    """Return the finished response. Waits for the end of the turn.

    Raises NotRunning and TurnDeleted.
    """
    return await _on_engine_loop(_response_of(turn_id))


async def _response_of(turn_id: str) -> dict[str, Any]:
    async with aclosing(subscribe(turn_id)) as batches:
        async for entries in batches:
            if entries[-1].is_last:
                response: dict[str, Any] = orjson.loads(entries[-1].data)["response"]
                return response
    raise NotRunning("The server is shutting down; request the turn again.")


def require_engine() -> Engine:
    if _engine is None or _engine.tasks.draining:
        raise NotRunning
    return _engine


async def _on_engine_loop(coroutine: Awaitable[T]) -> T:
    engine = require_engine()
    if engine.loop is asyncio.get_running_loop():
        return await coroutine
    assert asyncio.iscoroutine(coroutine)
    future = asyncio.run_coroutine_threadsafe(coroutine, engine.loop)
    return await asyncio.wrap_future(future)
