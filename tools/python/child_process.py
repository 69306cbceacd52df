"""Child process that runs one isolated tool function.

Started as `python -m tools.python.child_process`.

In, on stdin: a frame with the function's name and arguments, then the answers to its
questions and HTTP requests. Out, on stdout: frames with progress, questions and
requests; the last frame has the result or the error. A frame is its length (4 bytes,
network order) and JSON. The function's own output goes to stderr. The environment has
no settings of Parley.

When stdin ends, the parent no longer waits for the result: the process kills itself and
every process that it has started. `tools.python.isolated_call` starts this module.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import struct
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import reduce
from importlib import import_module
from itertools import count
from typing import Any, BinaryIO

import orjson

from tools.http.exchange import FetchedResponse, OutgoingRequest
from tools.python.fetch_frames import decode_response, encode_request
from tools.python.limits import limit_process, limited_memory
from tools.runtime_tool import Accepted, Context, FormAnswer

LENGTH = struct.Struct("!I")

Frame = dict[str, Any]


class Parent:
    """The pipes to the parent process: this process's original stdin and stdout."""

    def __init__(self) -> None:
        self._in: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb")
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)  # the function's prints must not mix with the frames
        self._lock = threading.Lock()
        self._pending_answers: dict[int, Future[Frame]] = {}
        self._numbers = count()

    def read(self) -> Frame | None:
        head = self._in.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        body = self._in.read(*LENGTH.unpack(head))
        frame: Frame = orjson.loads(body)
        return frame

    def send(self, frame: Frame | bytes) -> None:
        """Send a frame to the parent. Callable from any thread."""
        body = frame if isinstance(frame, bytes) else orjson.dumps(frame)
        with self._lock:
            self._out.write(LENGTH.pack(len(body)) + body)
            self._out.flush()

    def read_answers(self) -> None:
        """Read answers until the parent ends, then kill this process group."""
        while (frame := self.read()) is not None:
            if future := self._pending_answers.pop(frame["answer"], None):
                future.set_result(frame)
        os.killpg(0, signal.SIGKILL)
        os._exit(1)  # the first process of a sandbox, whose end ends the others

    async def ask(
        self, context: Context, message: str, schema: Mapping[str, Any]
    ) -> FormAnswer:
        answer = await self._answer_to("ask", message=message, schema=dict(schema))
        return FormAnswer(answer["action"], answer["content"])

    async def fetch(self, request: OutgoingRequest) -> FetchedResponse:
        answer = await self._answer_to("fetch", **encode_request(request))
        return decode_response(answer)

    async def _answer_to(self, kind: str, **fields: Any) -> Frame:
        number, future = next(self._numbers), Future[Frame]()
        self._pending_answers[number] = future
        self.send({kind: number, **fields})
        return await asyncio.wrap_future(future)


def main() -> None:
    parent = Parent()
    task = parent.read()
    if task is None:
        return
    threading.Thread(target=parent.read_answers, name="parent", daemon=True).start()
    limit_process(is_sandboxed=task["is_sandboxed"])
    last = _run_task(task, parent)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    parent.send(last)
    threading.Event().wait()  # until the parent kills the process group


def _run_task(task: Frame, parent: Parent) -> Frame | bytes:
    from tools.errors import ToolError
    from tools.execute import format_trace
    from tools.execution.output import encode_json

    try:
        _set_up_django(task)
        value = _call(task, parent)
        if isinstance(value, Accepted):
            accepted = {"token": value.token, "poll_after": value.poll_after}
            return {"accepted": accepted}
        return b'{"result":' + encode_json(value) + b"}"
    except (Exception, SystemExit, BaseExceptionGroup) as exc:
        kind = type(exc)
        return {
            "error": {
                "module": kind.__module__,
                "name": kind.__qualname__,
                # Other exceptions' messages may quote the user's arguments.
                "message": str(exc) if isinstance(exc, ToolError) else None,
                "where": format_trace(exc),
            }
        }


def _call(task: Frame, parent: Parent) -> Any:
    from tools.python.function_marks import function_signature

    module: Any = import_module(task["module"])
    function: Any = reduce(getattr, task["name"].split("."), module)
    signature = function_signature(function)
    values = signature.bind(task["arguments"])
    if signature.context:
        values[signature.context] = Context(
            **task["context"],
            progress=lambda message: parent.send({"progress": str(message)}),
            ask=parent.ask if task["may_ask"] else None,
            send_request=parent.fetch,
        )
    with limited_memory(task["memory"]):
        if signature.is_async:
            return asyncio.run(function(**values))
        return function(**values)


def _set_up_django(task: Frame) -> None:
    """With the tool's own app, but none of Parley's settings, and no database."""
    import django
    from django.conf import settings

    settings.configure(
        **task["settings"], DATABASES={}, SECRET_KEY=secrets.token_urlsafe(40)
    )
    django.setup()


if __name__ == "__main__":
    main()
