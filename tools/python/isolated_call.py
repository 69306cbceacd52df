"""Tool functions that run in a separate process, which can be killed.

Each call starts a new process (`tools.python.child_process`), which shares no state
with the server, gets a clean environment and a fresh temporary folder, and runs in a
sandbox where the system has one (`tools.python.sandbox`). When the call ends, times out
or is cancelled, the process is killed with all processes that it has started, and the
folder is removed. Without the sandbox, a process in a session of its own survives,
since only the group is killed. Starting it takes about a second.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self
from weakref import WeakKeyDictionary

import orjson
from django.apps import apps
from django.conf import settings

from llm.concurrency.worker_thread import run_off_loop
from llm.http.addresses import Network
from llm.wire import bounded_json
from tools import errors
from tools.conf import settings as tool_settings
from tools.errors import ProcessEnded, ToolError
from tools.python import sandbox
from tools.python.child_process import LENGTH, Frame
from tools.python.guarded_fetch import GuardedFetches
from tools.python.printed_lines import PrintedLines
from tools.python.waiting_forms import answer_in_time, count_waiting
from tools.runtime_tool import Accepted, AskForm, Context, FormAnswer

logger = logging.getLogger(__name__)

MAX_PROCESSES = 8  # at once for each event loop; further calls wait
MAX_FRAME = 64 * 1024 * 1024  # bytes
DRAIN_TIMEOUT = 5.0  # seconds
MAX_FORWARDED = 64 * 1024  # bytes of what a call prints
MAX_PRINTED = 16 * 1024 * 1024  # bytes; a call that prints more is ended
MAX_WHERE = 20_000  # characters of a traceback, which the tool may have invented
#: Variables of the server that a child process needs to start.
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")
#: Each frame has one of these.
_KINDS = {"progress", "ask", "fetch", "accepted", "result", "error"}

_process_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
    WeakKeyDictionary()
)


class _Slot:
    """One of the processes that may run at once; the call's time stands still while it
    waits for one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._slots = _process_slots.setdefault(
            asyncio.get_running_loop(), asyncio.Semaphore(MAX_PROCESSES)
        )
        self._is_taken = False

    async def __aenter__(self) -> Self:
        await self._take()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._release()

    async def _take(self) -> None:
        with self._context.pause_timer():
            await self._slots.acquire()
        self._is_taken = True

    def _release(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._slots.release()

    def released_while(self, ask: AskForm) -> AskForm:
        """`ask` without the slot of this call, so that other calls run while a person
        answers. It raises ToolError if too many calls wait for an answer, or none comes
        in time."""

        async def ask_without_slot(
            context: Context, message: str, schema: Mapping[str, Any]
        ) -> FormAnswer:
            with count_waiting(context.user_id):
                self._release()
                answer = await answer_in_time(ask(context, message, schema))
                await self._take()
            return answer

        return ask_without_slot


@dataclass(frozen=True, slots=True)
class IsolatedCall:
    module: str
    name: str  # of the function in the module
    memory: int | None = None  # MiB
    networks: Sequence[Network] = ()  # that `Context.fetch` reaches besides public ones

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        """Raises ToolError; other exceptions of the function arrive without message."""
        async with _Slot(context) as slot:
            if context.ask is not None:
                context = replace(context, ask=slot.released_while(context.ask))
            with context.pause_timer():  # an attempt may take most of its time
                is_sandboxed = await asyncio.to_thread(sandbox.is_available)
            if not is_sandboxed and tool_settings.ISOLATED_REQUIRE_SANDBOX:
                raise ToolError(
                    "ISOLATED_REQUIRE_SANDBOX is on and the sandbox does not start;"
                    " ask the staff."
                )
            folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="parley-tool-")
            try:
                return await self._run_in(folder, is_sandboxed, context, arguments)
            finally:
                await asyncio.to_thread(_remove, folder)

    async def _run_in(
        self, folder: str, is_sandboxed: bool, context: Context, arguments: Any
    ) -> Any:
        process = await self.start(folder, is_sandboxed)
        printed = asyncio.ensure_future(_forward_prints(process, self.name))
        fetches = GuardedFetches(partial(_send, process), self.networks)
        try:
            task = self._task(context, arguments, is_sandboxed)
            return await self._run(process, context, task, printed, fetches)
        finally:
            _kill(process)
            await fetches.close()
            printed.cancel()
            await asyncio.gather(process.wait(), printed, return_exceptions=True)
            await _drain(process)

    async def start(self, folder: str, is_sandboxed: bool) -> Process:
        command = [sys.executable, "-P", "-m", "tools.python.child_process"]
        if is_sandboxed:
            command = await asyncio.to_thread(sandbox.wrap, command, folder)
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=_clean_environment(folder),
            cwd=folder,
            start_new_session=True,
        )

    async def _run(
        self,
        process: Process,
        context: Context,
        task: Frame,
        printed: asyncio.Future[None],
        fetches: GuardedFetches,
    ) -> Any:
        assert process.stdin
        assert process.stdout
        received = 0
        try:
            await _send(process, task)
            while True:
                frame, size = await _read(process.stdout)
                received += size
                if received > MAX_FRAME + MAX_PRINTED:
                    raise ToolError(f"it sent more than {received:,} bytes.")
                if "progress" in frame:
                    context.progress(frame["progress"])
                elif "ask" in frame:
                    await _forward_question(process, context, frame)
                elif "fetch" in frame:
                    await fetches.start(frame)
                else:
                    return self._result(frame)
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            if printed.done() and (problem := printed.exception()):
                raise problem from exc
            raise ProcessEnded(await _describe_exit(process)) from exc

    def _task(
        self, context: Context, arguments: dict[str, Any], is_sandboxed: bool
    ) -> Frame:
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
            "is_sandboxed": is_sandboxed,
            "settings": _child_settings(self.module),
            "may_ask": context.ask is not None,
            "context": {
                name: getattr(context, name)
                for name in (
                    *id_fields,
                    "access_token_id",
                    "callback_url",
                    "may_read_chats",
                )
            },
        }

    def _result(self, frame: Frame) -> Any:
        if "accepted" in frame:
            return Accepted(**frame["accepted"])
        if (error := frame.get("error")) is None:
            return frame["result"]
        if error["message"] is None:
            where = str(error["where"])[:MAX_WHERE]
            logger.error("%s.%s failed: %s", self.module, self.name, where)
        raise _rebuild_exception(error)


async def _send(process: Process, frame: Frame) -> None:
    assert process.stdin
    body = orjson.dumps(frame)
    process.stdin.write(LENGTH.pack(len(body)) + body)
    await process.stdin.drain()


async def _read(stream: asyncio.StreamReader) -> tuple[Frame, int]:
    """A frame and its length in bytes."""
    (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    if length > MAX_FRAME:
        raise ToolError(f"its result is larger than {MAX_FRAME:,} bytes.")
    body = await stream.readexactly(length)
    # Off the event loop: the tool decides how many values there are to parse.
    return await run_off_loop(length, _parse, body), length


def _parse(body: bytes) -> Frame:
    try:
        frame = bounded_json.loads_exact(body)
    except bounded_json.TooManyValues as exc:
        raise ToolError(f"its result has too many values: {exc.msg}.") from exc
    except orjson.JSONDecodeError as exc:
        raise ToolError("its process sent what is no result.") from exc
    if not isinstance(frame, dict) or not _KINDS & frame.keys():
        raise ToolError("its process sent what is no result.")
    if not isinstance(frame.get("progress", ""), str):
        raise ToolError("its process sent progress that is no text.")
    return frame


async def _forward_prints(process: Process, name: str) -> None:
    """Copy what the tool prints to the server's stderr, up to MAX_FORWARDED bytes, with
    the tool's name before each line. Ends the process and raises ToolError above
    MAX_PRINTED."""
    assert process.stderr
    size, lines = 0, PrintedLines(name)
    try:
        while chunk := await process.stderr.read(65_536):
            if size < MAX_FORWARDED:
                text = chunk[: MAX_FORWARDED - size].decode(errors="replace")
                sys.stderr.write(lines.add(text))
            size += len(chunk)
            if size > MAX_PRINTED:
                _kill(process)
                raise ToolError(f"it printed more than {MAX_PRINTED:,} bytes.")
    finally:
        sys.stderr.write(lines.end())


async def _drain(process: Process) -> None:
    """Read what the pipes still hold, else they would stay open. A process that has
    left the group may hold them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(65_536):
                    pass


def _clean_environment(home: str) -> dict[str, str]:
    """Without keys, addresses and settings."""
    basics = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = {"HOME": home, "TMPDIR": home, "PYTHONPATH": sandbox.code_path()}
    return {"PATH": os.defpath, **basics, **own}


def _child_settings(module: str) -> dict[str, Any]:
    """Django's settings of the child process: nothing that is secret."""
    own = apps.get_containing_app_config(module)
    installed = ["django.contrib.contenttypes", "django.contrib.auth"]
    if own is not None and own.name not in installed:
        installed.append(own.name)
    return {
        "INSTALLED_APPS": installed,
        "LANGUAGE_CODE": settings.LANGUAGE_CODE,
        "TIME_ZONE": settings.TIME_ZONE,
        "USE_TZ": settings.USE_TZ,
    }


def _remove(folder: str) -> None:
    def unlock(_function: object, path: str, _exc: object) -> None:
        """The tool may have taken its rights from a folder."""
        with suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            os.unlink(path)

    shutil.rmtree(folder, onerror=unlock)
    shutil.rmtree(folder, ignore_errors=True)


async def _forward_question(process: Process, context: Context, frame: Frame) -> None:
    answer = await context.asking(frame["message"], frame["schema"])
    reply = {"action": answer.action, "content": dict(answer.content)}
    await _send(process, {"answer": frame["ask"], **reply})


def _kill(process: Process) -> None:
    """Kill the process group. A child that ended by itself may have been reaped; its
    group id then belongs to what it started and left, or to nobody: Linux reuses
    a process id only after it has counted through the others."""
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
