"""Redis Streams publisher for the events of this process's runs.

Runs append and continue. One task sends what all of them have appended since its last
write, in one write, and does not wait for the reply. After each write it pauses for
twice the CPU time that this thread has used, so batches grow when this process is busy.
A machine busy with other processes or a slow Redis does not lengthen the pause, until
too many writes are in flight. Redis may become unavailable and come back empty, so the
events of a run are kept until its end and can be sent again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import orjson
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import ResponseError

from conversations.engine import faults
from conversations.engine.bus import AWAY, Bus
from conversations.engine.ending import end
from conversations.engine.log import Fenced, Position, told_before
from conversations.engine.redis_wire import (
    ELSEWHERE,
    FIELD,
    LARGE,
    PIECE,
    Batch,
    large_of,
    line_of,
    pack,
    stream_of,
)
from conversations.engine.resp import Command, Reply
from conversations.throttled_warning import ThrottledWarning
from llm.wire.items import Event
from llm.wire.response import TERMINAL

logger = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.005, 0.05  # seconds of pause between two writes
UNDER_WAY = 16  # unanswered writes at most
FIRST, BACKOFF = 0.1, 1.0  # seconds between two attempts, at first and at most
UNFINISHED = 24 * 3600  # seconds after which an open turn expires in Redis
FINISHED = 300  # seconds for a finished one; it is read from rows later
LONG = 64 * 1024 * 1024  # bytes of one turn; a longer one is read from its rows
TOGETHER = 256 * 1024 * 1024  # bytes of all turns in memory; beyond, those ...
SHORT = 1024 * 1024  # ... that are longer than this are read from rows as well
UNSENT = 60.0  # seconds for which a finished log waits for Redis

_REFUSED = "equal or smaller"
#: Append a batch and publish it to subscribers; a refused batch is not published.
_TELL = """
redis.call('XADD', KEYS[1], ARGV[2], ARGV[3], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. ARGV[4])
"""
#: Write a whole log again, unless a later epoch has begun.
_RESTORE = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if last[1] and tonumber(string.match(last[1][1], '^%d+')) > tonumber(ARGV[1]) then
  return 0
end
redis.call('DEL', KEYS[1])
for i = 4, #ARGV, 2 do
  redis.call('XADD', KEYS[1], ARGV[1] .. '-' .. ARGV[i], ARGV[3], ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
"""


class RunLog:
    """The events of one run and how much of them Redis has."""

    def __init__(
        self,
        turn_id: str,
        changed: Callable[[RunLog], None],
        fenced: Callable[[], None],
    ) -> None:
        self.turn_id = turn_id
        self.epoch = 0
        self.ended = False  # the turn is over
        self.closed = False  # the run is over
        self.is_fenced = False
        self.is_full = False  # no memory left for more of it
        self.is_sure = True  # Redis holds exactly what `sent` says
        self.sent = 0  # batches that Redis has
        self.written = 0  # batches; those beyond `sent` are in flight
        self.batches: list[Batch] = []
        self.large: list[tuple[Position, bytes]] = []  # events to be stored separately
        self.stored: list[str] = []  # their keys
        self.size = 0  # bytes
        self._lines: list[bytes] = []
        self._next = 0  # number of the first line
        self._changed = changed
        self._fenced = fenced

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        told: Mapping[int, Position] | None = None,
    ) -> None:
        """See `event_log.Publisher`."""
        if self.is_fenced:
            raise Fenced
        self.epoch = epoch
        for event in events:
            self._add(event, told_before(event, told) if told is not None else None)
        self._changed(self)

    def freeze(self) -> None:
        """Turn the events since the last batch into a batch, which is the same if it is
        sent again.

        A log that is too long ends with an empty batch.
        """
        if not self._lines or self.large:
            return
        if self.size <= LONG and not self.is_full:
            self.batches.append(pack(self._next, self._lines))
        elif self.batches[-1].data:
            self.batches.append(Batch(self._next, b""))
        self.size += len(self.batches[-1].data)
        self._lines = []

    def fence(self) -> None:
        self.is_fenced = True
        self._fenced()

    @property
    def is_sent(self) -> bool:
        return self.is_fenced or (self.sent == len(self.batches) and not self._lines)

    def _add(self, event: Event, told_at: Position | None) -> None:
        data = orjson.dumps(event)
        if len(data) > LARGE:
            place = Position(self.epoch, event["sequence_number"])
            self.large.append((place, data))
            data = ELSEWHERE
        if not self._lines:
            self._next = event["sequence_number"]
        self._lines.append(line_of(event["type"], told_at, data))
        self.ended = self.ended or event["type"] in TERMINAL


class Outbox:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._logs: dict[str, RunLog] = {}
        self._changed: set[RunLog] = set()
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._storing: dict[RunLog, asyncio.Task[None]] = {}
        self._connected = 0
        self._under_way: set[asyncio.Future[list[Reply]]] = set()
        self._failed: BaseException | None = None  # the failure of one of them
        self._pause = FIRST
        #: Redis answers but refuses writes: it is full, read-only, or cannot save.
        self._is_refused = False
        self._warning = ThrottledWarning(logger, "Redis takes no events: %s")

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Send what is left, if Redis is available."""
        if self._task is None:
            return
        await end([self._task, *self._storing.values()])
        self._doubt(self._logs.values())
        try:
            await self._flush()
            await self._answers(0)
        except AWAY as exc:
            logger.warning("Redis did not take the last events: %s", type(exc).__name__)

    def open(self, turn_id: str, fenced: Callable[[], None]) -> RunLog:
        log = self._logs[turn_id] = RunLog(turn_id, self._on_change, fenced)
        return log

    def end(self, turn_id: str) -> None:
        """The run is over; its remaining events are still sent."""
        if log := self._logs.get(turn_id):
            log.closed = True
            self._on_change(log)
            asyncio.get_running_loop().call_later(UNSENT, self._forget, log)

    def _forget(self, log: RunLog) -> None:
        self._changed.discard(log)
        log.large.clear()
        if self._logs.get(log.turn_id) is log:
            del self._logs[log.turn_id]

    def _on_change(self, log: RunLog) -> None:
        self._changed.add(log)
        if log.large and log not in self._storing:
            task = asyncio.ensure_future(self._store(log))
            self._storing[log] = task
            task.add_done_callback(lambda _: self._storing.pop(log))
        self._work.set()

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
            except AWAY as exc:
                self._warning.log(_reason(exc))
                self._doubt(self._logs.values())
                await asyncio.sleep(self._pause)
                self._pause = min(2 * self._pause, BACKOFF)

    def _doubt(self, logs: Iterable[RunLog]) -> None:
        """Check what Redis holds before sending more."""
        for log in logs:
            log.is_sure = False
            self._on_change(log)

    async def _flush(self) -> None:
        await self._bus.connect()
        if self._connected != self._bus.connected:
            self._connected = self._bus.connected
            self._doubt(self._logs.values())
        changed, self._changed = self._changed, set()
        try:
            await self._make_all_sure([log for log in changed if not log.is_sure])
            self._send([log for log in changed if not log.is_fenced])
        except BaseException:
            self._changed |= changed
            raise
        await self._answers(UNDER_WAY - 1)

    async def _answers(self, left: int) -> None:
        """Returns once at most `left` writes are in flight. Raises the failure of a
        write."""
        while len(self._under_way) > left:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _bound(self, changed: list[RunLog]) -> None:
        """Limit the memory for events, which are kept until the end of their run in
        case Redis loses them."""
        long = [log for log in changed if log.size > SHORT and not log.is_full]
        if long and sum(log.size for log in self._logs.values()) > TOGETHER:
            for log in long:
                log.is_full = True

    def _send(self, logs: list[RunLog]) -> None:
        self._bound(logs)
        commands: list[Command] = []
        asked: list[tuple[RunLog, int]] = []  # one for each command
        for log in logs:
            log.freeze()
            self._write(commands, log, asked)
        if not asked:
            self._forget_sent(logs)
            return
        faults.at("outbox.send:before")
        answers = self._bus.ask(commands)
        for log, sent in asked:
            log.written = max(log.written, sent)
        self._under_way.add(answers)
        answers.add_done_callback(partial(self._answered, logs, asked))

    def _answered(
        self,
        logs: list[RunLog],
        asked: list[tuple[RunLog, int]],
        done: asyncio.Future[list[Reply]],
    ) -> None:
        self._under_way.discard(done)
        if failed := done.exception():
            self._fail(failed)
            return
        faults.at("outbox.send:after")
        refused: Exception | None = None
        for (log, sent), answer in zip(asked, done.result(), strict=True):
            if not isinstance(answer, Exception):
                log.sent = max(log.sent, sent)
                if log.written < len(log.batches):
                    self._on_change(log)
                continue
            self._doubt([log])
            if not (isinstance(answer, ResponseError) and _REFUSED in str(answer)):
                refused = answer
        self._is_refused = refused is not None
        if refused is None:
            self._pause = FIRST
        else:
            self._fail(refused)
        self._forget_sent(logs)

    def _fail(self, exc: BaseException) -> None:
        self._failed = exc
        self._work.set()

    def _write(
        self, commands: list[Command], log: RunLog, asked: list[tuple[RunLog, int]]
    ) -> None:
        key = stream_of(log.turn_id)
        if not log.is_sure or log.written == len(log.batches):
            return
        channel = self._bus.channel_of(log.turn_id)
        # While writes are refused, one batch tests whether they still are; otherwise
        # everything would be sent again with each attempt.
        last = log.written + 1 if self._is_refused else len(log.batches)
        for number in range(log.written, last):
            first, data = log.batches[number]
            place = f"{log.epoch}-{first}"
            commands.append(("EVAL", _TELL, 1, key, channel, place, FIELD, data))
            asked.append((log, number + 1))
        if log.written == 0:
            commands.append(("EXPIRE", key, UNFINISHED))
            # Earlier epochs are not needed: the epoch's log is complete by itself.
            commands.append(("XTRIM", key, "MINID", f"{log.epoch}-0"))
        if log.ended and last == len(log.batches):
            kept = [key, *log.stored]
            commands += [("EXPIRE", name, FINISHED) for name in kept]
        asked += [(log, 0)] * (len(commands) - len(asked))

    def _forget_sent(self, logs: Iterable[RunLog]) -> None:
        for log in logs:
            if log.closed and log.is_sent:
                self._forget(log)

    async def _make_all_sure(self, logs: list[RunLog]) -> None:
        if logs:
            await self._answers(0)
        for log in logs:
            await self._make_sure(log)

    async def _make_sure(self, log: RunLog) -> None:
        """Make Redis hold all batches up to `sent`, and none of another epoch."""
        key = stream_of(log.turn_id)
        async with self._bus.redis.pipeline(transaction=False) as pipeline:
            pipeline.xlen(key)
            pipeline.xrevrange(key, count=1)
            length, newest = await pipeline.execute()
        epoch, first = _place(newest)
        if epoch > log.epoch:
            log.fence()
            return
        log.freeze()
        known = length <= len(log.batches) and epoch == log.epoch
        if known and length and log.batches[length - 1].first == first:
            log.sent = length
        elif log.sent or length:
            await self._restore(key, log)
        log.written = log.sent
        log.is_sure = True

    async def _restore(self, key: str, log: RunLog) -> None:
        whole = [part for batch in log.batches for part in batch]
        kept = FINISHED if log.ended else UNFINISHED
        done: Any = self._bus.redis.eval(
            _RESTORE, 1, key, log.epoch, kept, FIELD, *whole
        )
        if await done:
            log.sent = len(log.batches)
            channel = self._bus.channel_of(log.turn_id)
            await self._bus.redis.publish(channel, b"")
        else:
            log.fence()

    async def _store(self, log: RunLog) -> None:
        """Store large events before a batch refers to them; other turns continue."""
        pause = 0.1
        while log.large:
            place, data = log.large[0]
            key = large_of(log.turn_id, place)
            try:
                await self._store_one(key, data)
                log.stored.append(key)
                del log.large[:1]
            except AWAY:
                await asyncio.sleep(pause)
                pause = min(2 * pause, BACKOFF)
        self._changed.add(log)
        self._work.set()

    async def _store_one(self, key: str, data: bytes) -> None:
        """Write in chunks, so that Redis replies in time to this command and to others.

        Raises RedisConnectionError if Redis has lost the earlier chunks.
        """
        for first in range(0, len(data), PIECE):
            piece = data[first : first + PIECE]
            async with self._bus.redis.pipeline(transaction=False) as pipeline:
                pipeline.strlen(key)
                pipeline.setrange(key, first, piece)
                pipeline.expire(key, UNFINISHED)
                known, *_ = await pipeline.execute()
            if known < first:
                raise Lost("it has begun anew")


def _reason(exc: BaseException) -> str:
    """Redis' error code (`OOM`, `READONLY`, `MISCONF`), never the rest of the message,
    which may quote what was written."""
    word = str(exc).partition(" ")[0] if isinstance(exc, ResponseError) else ""
    name = type(exc).__name__
    return f"{name} ({word})" if word.isupper() and word.isalpha() else name


def _place(newest: list[Any]) -> Position:
    if not newest:
        return Position(0, 0)
    return Position.parse(newest[0][0].decode())
