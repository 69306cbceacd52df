"""Send HTTP requests of isolated tools, through the guard of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from llm.http.addresses import Network
from tools.errors import FetchError
from tools.http.exchange import OutgoingRequest
from tools.http.guarded_client import fetch
from tools.http.validation import header_problems
from tools.python.fetch_frames import Frame, decode_request, encode_response

MAX_AT_ONCE = 8  # requests of one call; the process is not read while more wait

Send = Callable[[Frame], Awaitable[None]]


class GuardedFetches:
    """The requests of one tool call. `send` writes a frame to the child process."""

    def __init__(self, send: Send, networks: Collection[Network]) -> None:
        self._send = send
        self._networks = networks
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, frame: Frame) -> None:
        """Begin the request of a frame. Raises ToolError if it has no request."""
        request = decode_request(frame)
        await self._slots.acquire()
        task = asyncio.create_task(self._answer(frame["fetch"], request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, number: int, request: OutgoingRequest) -> None:
        try:
            answer = await self._fetch(request)
            # The slot stays taken until the answer is written: a process that reads no
            # answers cannot make more of them wait in memory.
            await self._send({"answer": number, **answer})
        except ConnectionError:
            pass  # the process has ended, and its call reports that
        finally:
            self._slots.release()

    async def _fetch(self, request: OutgoingRequest) -> Frame:
        try:
            for problem in header_problems(request.headers):
                raise FetchError(problem)
            return encode_response(await fetch(request, allow=self._networks))
        except FetchError as exc:
            return {"error": {"name": type(exc).__name__, "message": str(exc)}}
