"""Tool functions that run in a separate process, which can be killed.

Each call starts a new process (`tools.python.child_process`), which shares no state
with the server. When the call ends, times out or is cancelled, the process is killed
with all processes that it has started. Starting it takes about a second.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from django.conf import settings

from tools import errors
from tools.errors import ProcessEnded, ToolError
from tools.python.child_process import LENGTH, Frame
from tools.runtime_tool import Accepted, Context

logger = logging.getLogger(__name__)

MAX_PROCESSES = 8  # at once for each event loop; further calls wait
MAX_FRAME = 64 * 1024 * 1024  # bytes

_process_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
    WeakKeyDictionary()
)


@dataclass(frozen=True, slots=True)
class IsolatedCall:
    module: str
    name: str  # of the function in the module
    memory: int | None = None  # MiB

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        """Raises ToolError; other exceptions of the function arrive without message."""
        async with _process_slots.setdefault(
            asyncio.get_running_loop(), asyncio.Semaphore(MAX_PROCESSES)
        ):
            process = await self.start()
            try:
                return await self._run(process, context, arguments)
            finally:
                _kill(process)
                await process.wait()

    async def start(self) -> Process:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
            "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path),
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "tools.python.child_process"),
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            start_new_session=True,
        )

    async def _run(
        self, process: Process, context: Context, arguments: dict[str, Any]
    ) -> Any:
        assert process.stdin
        assert process.stdout
        try:
            await _send(process, self._task(context, arguments))
            while True:
                frame = await _read(process.stdout)
                if "progress" in frame:
                    context.progress(frame["progress"])
                elif "ask" in frame:
                    await _forward_question(process, context, frame)
                else:
                    return self._result(frame)
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            raise ProcessEnded(await _describe_exit(process)) from exc

    def _task(self, context: Context, arguments: dict[str, Any]) -> Frame:
        id_fields = (
            "user_id",
            "conversation_id",
            "turn_id",
            "call_id",
            "idempotency_key",
        )
        return {
            "module": self.module,
            "name": self.name,
            "arguments": arguments,
            "memory": self.memory,
            "may_ask": context.ask is not None,
            "context": {
                name: getattr(context, name)
                for name in (*id_fields, "callback_url", "may_read_chats")
            },
        }

    def _result(self, frame: Frame) -> Any:
        if "accepted" in frame:
            return Accepted(**frame["accepted"])
        if (error := frame.get("error")) is None:
            return frame["result"]
        if error["message"] is None:
            logger.error("%s.%s failed: %s", self.module, self.name, error["where"])
        raise _rebuild_exception(error)


async def _send(process: Process, frame: Frame) -> None:
    assert process.stdin
    body = orjson.dumps(frame)
    process.stdin.write(LENGTH.pack(len(body)) + body)
    await process.stdin.drain()


async def _read(stream: asyncio.StreamReader) -> Frame:
    (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    if length > MAX_FRAME:
        raise ToolError(f"its result is larger than {MAX_FRAME:,} bytes.")
    frame: Frame = orjson.loads(await stream.readexactly(length))
    return frame


async def _forward_question(process: Process, context: Context, frame: Frame) -> None:
    answer = await context.asking(frame["message"], frame["schema"])
    reply = {"action": answer.action, "content": dict(answer.content)}
    await _send(process, {"ask": frame["ask"], **reply})


def _kill(process: Process) -> None:
    """Kill the process group. The child lives until this call, so its group id cannot
    belong to another process."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _describe_exit(process: Process) -> str:
    code = await process.wait()
    if code >= 0:
        return f"its process exited with the code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"its process was ended by the signal {name}."


def _rebuild_exception(error: Frame) -> BaseException:
    """An exception of the type that the function raised.

    A type that this process does not know becomes a new Exception of the same name.
    """
    module, name, message = error["module"], error["name"], error["message"]
    if message is not None:
        kind = getattr(errors, name, None) if module == errors.__name__ else None
        return (kind or ToolError)(message)
    if module == "builtins" and (known := _builtin(name)):
        return known
    named = {"__module__": module}
    unknown: type[Exception] = type(name.rpartition(".")[2], (Exception,), named)
    return unknown()


def _builtin(name: str) -> Exception | None:
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return None
    try:
        return kind()
    except TypeError:  # its constructor needs arguments
        return None
