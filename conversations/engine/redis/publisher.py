"""Redis Streams publisher for the events of this process's runs.

One task sends what all runs have appended since its last write, in one write, and does
not wait for the reply. After each write it pauses for twice the CPU time that this
thread has used, so batches grow when this process is busy. A machine busy with other
processes or a slow Redis does not lengthen the pause, until too many writes are in
flight.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from redis.exceptions import ResponseError

from conversations.engine.process import crash_points
from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.redis.encoding import (
    FIELD,
    FINISHED_EXPIRY,
    LARGE,
    UNFINISHED_EXPIRY,
    large_event_key,
    stream_key,
)
from conversations.engine.redis.large_events import store_large_event
from conversations.engine.redis.pubsub import UNAVAILABLE, RedisBus
from conversations.engine.redis.resp import Command, Reply
from conversations.engine.redis.stream_repair import verify
from conversations.engine.shared_log.publisher import (
    BACKOFF,
    FIRST_PAUSE,
    LogPublisher,
)
from conversations.engine.shared_log.run_log import RunLog, limit_memory
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.005, 0.05  # seconds of pause between two writes
MAX_IN_FLIGHT = 16  # unanswered writes at most

_REFUSED = "equal or smaller"
#: Append a batch and publish it to subscribers; a refused batch is not published.
_APPEND_SCRIPT = """
redis.call('XADD', KEYS[1], ARGV[2], ARGV[3], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. ARGV[4])
"""


class RedisPublisher(LogPublisher):
    largest = LARGE

    def __init__(self, bus: RedisBus) -> None:
        super().__init__()
        self._bus = bus
        self._task: asyncio.Task[None] | None = None
        self._storing: dict[RunLog, asyncio.Task[None]] = {}
        self._connected = 0
        self._in_flight: set[asyncio.Future[list[Reply]]] = set()
        self._failed: BaseException | None = None  # the failure of one of them
        self._pause = FIRST_PAUSE
        #: Redis answers but refuses writes: it is full, read-only, or cannot save.
        self._is_refused = False
        self._warning = ThrottledWarning(
            logger, "events cannot be written to Redis: %s"
        )

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Send what is left, if Redis is available."""
        if self._task is None:
            return
        await cancel_and_wait([self._task, *self._storing.values()])
        self._mark_unverified(self._logs.values())
        try:
            await self._flush()
            await self._wait_for_replies(0)
        except Exception as exc:
            logger.warning(
                "the last events could not be written to Redis: %s", type(exc).__name__
            )

    async def delete(self, turn_id: str) -> None:
        with suppress(*UNAVAILABLE):  # the stream expires by itself
            await self._bus.redis.delete(stream_key(turn_id))

    def _on_change(self, log: RunLog) -> None:
        super()._on_change(log)
        if log.large and log not in self._storing:
            task = asyncio.ensure_future(self._store(log))
            self._storing[log] = task
            task.add_done_callback(lambda _: self._storing.pop(log))

    # Sending

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            began = time.thread_time()
            try:
                await self._flush()
                rest = 2 * (time.thread_time() - began)
                await asyncio.sleep(min(max(rest, SHORTEST), LONGEST))
            except Exception as exc:  # else no run could publish again
                self._warning.log(_reason(exc))
                self._mark_unverified(self._logs.values())
                await asyncio.sleep(self._pause)
                self._pause = min(2 * self._pause, BACKOFF)

    def _mark_unverified(self, logs: Iterable[RunLog]) -> None:
        """Check what Redis holds before sending more."""
        for log in logs:
            log.is_verified = False
            self._on_change(log)

    async def _flush(self) -> None:
        await self._bus.connect()
        if self._connected != self._bus.connection_count:
            self._connected = self._bus.connection_count
            self._mark_unverified(self._logs.values())
        changed, self._changed = self._changed, set()
        try:
            await self._verify_all([log for log in changed if not log.is_verified])
            self._send([log for log in changed if not log.is_fenced])
        except BaseException:
            self._changed |= changed
            raise
        await self._wait_for_replies(MAX_IN_FLIGHT - 1)

    async def _wait_for_replies(self, left: int) -> None:
        """Returns once at most `left` writes are in flight. Raises the failure of a
        write."""
        while len(self._in_flight) > left:
            await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _send(self, logs: list[RunLog]) -> None:
        limit_memory(logs, self._logs.values())
        commands: list[Command] = []
        sent_batches: list[tuple[RunLog, int]] = []  # one for each command
        for log in logs:
            log.freeze()
            self._write(commands, log, sent_batches)
        if not sent_batches:
            self._forget_sent(logs)
            return
        crash_points.reach("outbox.send:before")
        answers = self._bus.execute(commands)
        for log, sent in sent_batches:
            log.written = max(log.written, sent)
        self._in_flight.add(answers)
        answers.add_done_callback(partial(self._handle_replies, logs, sent_batches))

    def _handle_replies(
        self,
        logs: list[RunLog],
        sent_batches: list[tuple[RunLog, int]],
        done: asyncio.Future[list[Reply]],
    ) -> None:
        self._in_flight.discard(done)
        if failed := done.exception():
            self._fail(failed)
            return
        crash_points.reach("outbox.send:after")
        refused: Exception | None = None
        for (log, sent), answer in zip(sent_batches, done.result(), strict=True):
            if not isinstance(answer, Exception):
                log.sent = max(log.sent, sent)
                if log.written < len(log.batches):
                    self._on_change(log)
                continue
            self._mark_unverified([log])
            if not (isinstance(answer, ResponseError) and _REFUSED in str(answer)):
                refused = answer
        self._is_refused = refused is not None
        if refused is None:
            self._pause = FIRST_PAUSE
        else:
            self._fail(refused)
        self._forget_sent(logs)

    def _fail(self, exc: BaseException) -> None:
        self._failed = exc
        self._work.set()

    def _write(
        self,
        commands: list[Command],
        log: RunLog,
        sent_batches: list[tuple[RunLog, int]],
    ) -> None:
        key = stream_key(log.turn_id)
        if not log.is_verified or log.written == len(log.batches):
            return
        channel = self._bus.channel_of(log.turn_id)
        # While writes are refused, one batch tests whether they still are; otherwise
        # everything would be sent again with each attempt.
        last = log.written + 1 if self._is_refused else len(log.batches)
        for number in range(log.written, last):
            first, data = log.batches[number]
            position = f"{log.epoch}-{first}"
            commands.append(
                ("EVAL", _APPEND_SCRIPT, 1, key, channel, position, FIELD, data)
            )
            sent_batches.append((log, number + 1))
        if log.written == 0:
            commands.append(("EXPIRE", key, UNFINISHED_EXPIRY))
            # Earlier epochs are not needed: the epoch's log is complete by itself.
            commands.append(("XTRIM", key, "MINID", f"{log.epoch}-0"))
        if log.ended and last == len(log.batches):
            keys = [key, *log.stored]
            commands += [("EXPIRE", name, FINISHED_EXPIRY) for name in keys]
        sent_batches += [(log, 0)] * (len(commands) - len(sent_batches))

    async def _verify_all(self, logs: list[RunLog]) -> None:
        if logs:
            await self._wait_for_replies(0)
        for log in logs:
            await verify(self._bus, log)

    async def _store(self, log: RunLog) -> None:
        """Store large events before a batch refers to them; other turns continue."""
        pause = 0.1
        while log.large:
            position, data = log.large[0]
            key = large_event_key(log.turn_id, position)
            try:
                await store_large_event(self._bus, key, data)
                log.stored.append(key)
                del log.large[:1]
            except Exception as exc:  # the batch that refers to it waits
                self._warning.log(_reason(exc))
                await asyncio.sleep(pause)
                pause = min(2 * pause, BACKOFF)
        self._changed.add(log)
        self._work.set()


def _reason(exc: BaseException) -> str:
    """Redis' error code (`OOM`, `READONLY`, `MISCONF`), never the rest of the message,
    which may quote what was written."""
    word = str(exc).partition(" ")[0] if isinstance(exc, ResponseError) else ""
    name = type(exc).__name__
    return f"{name} ({word})" if word.isupper() and word.isalpha() else name
