"""Events of this process's runs, on their way to Redis.

Runs append and go on; one task sends what all of them have said since it last looked,
in one write, and does not wait for the answer. It rests after each for twice the time
that this thread worked meanwhile, so under load of its own the batches grow by
themselves; that others keep the machine busy, or Redis takes its time, is no reason to
wait longer, until too much is under way. Redis may go away and come back without what
it knew: what a run has said is kept until its end, and told again.
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

SHORTEST, LONGEST = 0.005, 0.05  # seconds of rest between two writes
UNDER_WAY = 16  # writes that Redis has not answered yet, at the most
FIRST, BACKOFF = 0.1, 1.0  # seconds between two tries, at first and at the most
UNFINISHED = 24 * 3600  # seconds for which an open turn is kept
FINISHED = 300  # seconds for which one that is over is kept; rows tell it later
LONG = 64 * 1024 * 1024  # bytes of one turn; beyond, followers are told from its rows
TOGETHER = 256 * 1024 * 1024  # bytes of all turns that are kept here; beyond, those
SHORT = 1024 * 1024  # ... that are longer than this are told from their rows as well
UNSENT = 60.0  # seconds for which what is over waits for a Redis that is away

_REFUSED = "equal or smaller"
#: Write a batch and have whoever follows hear of it; what is refused nobody hears.
_TELL = """
redis.call('XADD', KEYS[1], ARGV[2], ARGV[3], ARGV[4])
redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. ARGV[4])
"""
#: Write a whole log anew, unless a later epoch has begun.
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
    """The journal of one run."""

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
        self.is_full = False  # there is no room for more of it
        self.is_sure = True  # that Redis has just what `sent` says
        self.sent = 0  # batches that Redis has
        self.written = 0  # batches; those beyond `sent` are under way
        self.batches: list[Batch] = []
        self.large: list[tuple[Position, bytes]] = []  # to be stored by themselves
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
        """See `log.Journal`."""
        if self.is_fenced:
            raise Fenced
        self.epoch = epoch
        for event in events:
            self._add(event, told_before(event, told) if told is not None else None)
        self._changed(self)

    def freeze(self) -> None:
        """What was said since the last batch becomes one; sent again it is the same.

        What is too long ends with an empty batch.
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
        self._failed: BaseException | None = None  # what became of one of them
        self._pause = FIRST
        #: Redis answers and takes no writes: it is full, read-only, or cannot save.
        self._is_refused = False
        self._warning = ThrottledWarning(logger, "Redis takes no events: %s")

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Send what is left, if Redis is there to take it."""
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
        """The run is over; what it has said is sent yet."""
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
        """Look what Redis has before going on."""
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
        """Returns once no more than `left` writes are under way. Raises what became of
        one."""
        while len(self._under_way) > left:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _bound(self, changed: list[RunLog]) -> None:
        """All that runs have said is kept until their end, in case Redis loses it."""
        long = [log for log in changed if log.size > SHORT and not log.is_full]
        if long and sum(log.size for log in self._logs.values()) > TOGETHER:
            for log in long:
                log.is_full = True

    def _send(self, logs: list[RunLog]) -> None:
        self._bound(logs)
        commands: list[Command] = []
        asked: list[tuple[RunLog, int]] = []  # for each command, log and batches sent
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
        # While writes are refused one batch finds out whether they still are: all that
        # waits would be sent again with each try.
        last = log.written + 1 if self._is_refused else len(log.batches)
        for number in range(log.written, last):
            first, data = log.batches[number]
            place = f"{log.epoch}-{first}"
            commands.append(("EVAL", _TELL, 1, key, channel, place, FIELD, data))
            asked.append((log, number + 1))
        if log.written == 0:
            commands.append(("EXPIRE", key, UNFINISHED))
            # The epoch's log is whole by itself.
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
        """Have Redis hold all batches up to `sent`, and no other epoch's."""
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
        """Large events are there before anything names them; other turns go on."""
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
        """Piece by piece: each answer of Redis is in time, and others get theirs.

        Raises Lost where Redis has forgotten the pieces before.
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
    """Redis' own word for a refusal (`OOM`, `READONLY`, `MISCONF`); never the rest of
    an error, which may quote what was written."""
    word = str(exc).partition(" ")[0] if isinstance(exc, ResponseError) else ""
    name = type(exc).__name__
    return f"{name} ({word})" if word.isupper() and word.isalpha() else name


def _place(newest: list[Any]) -> Position:
    if not newest:
        return Position(0, 0)
    return Position.parse(newest[0][0].decode())
