"""`manage.py serve` that counts the project's functions on a request's way to a model.

It counts from the moment a POST request enters the application to the moment the HTTP
library gets the request to the provider, in all threads: everything that the process
runs in between. Each such window is one line of JSON in the file that `CALLS_FILE`
names: `[path, {function: number of entries}]`.

A request over REST gives its turn to the engine, and from then on only waits for the
answer. What it enters for that is not on the way to the provider, and how much of it
comes before the provider's call is chance: from then on nothing is counted that runs
in the request's own context, which the engine does not run turns in.

Comprehensions and generator expressions are parts of the function that contains them;
lambdas are functions. A coroutine or generator that continues is entered again.

A warm server has read its keys less than `MAX_AGE` ago; here they are never read again,
as a slow machine would do so for each request. The timers of the watchdog and of the
lag meter, which belong to no request and fire many times a second, do not fire either.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp
import django
from django.core.management import execute_from_command_line

BASE = Path(__file__).resolve().parent.parent.parent
OWN = tuple(
    f"{BASE / name}{os.sep}" for name in ("project", "conversations", "tools", "llm")
)
#: The demo is the provider, in the same process.
DEMO = f"{BASE / 'llm' / 'demo'}{os.sep}"
SERVER = str(BASE / "project" / "server" / "application.py")
END = aiohttp.ClientSession.request.__code__
#: Whether this context is the request's own. What the engine does for it has another.
is_request: ContextVar[bool] = ContextVar("is_request", default=False)
PARTS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})


class Counting:
    def __init__(self, log: Path, submit: CodeType) -> None:
        """`submit`: the function that gives a turn to the engine."""
        self._log = log
        self._submit = submit
        self._path = ""  # of the request that is counted
        self._waits = False  # its turn was given to the engine
        self._entries: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code is self._submit and event in ("call", "return"):
            # What `submit` calls on the engine's loop gets a copy of this context.
            is_request.set(event == "return")
            self._waits = event == "return"
        if event != "call":
            return
        if code is END:
            self._end()
        elif _is_own(code):
            if code.co_filename == SERVER and code.co_name == "application":
                self._begin(frame.f_locals["scope"])
            if self._path and not (self._waits and is_request.get()):
                self._entries[code] += 1

    def _begin(self, scope: dict[str, Any]) -> None:
        if scope.get("method") == "POST" and not scope["path"].startswith("/demo/"):
            self._path, self._entries = scope["path"], Counter()
            self._waits = False
            is_request.set(True)

    def _end(self) -> None:
        if not self._path:
            return
        path, self._path = self._path, ""
        entries = {
            f"{code.co_filename.removeprefix(f'{BASE}{os.sep}')}:{code.co_qualname}"
            f":{code.co_firstlineno}": number
            for code, number in self._entries.items()
        }
        with self._log.open("a") as log:
            log.write(json.dumps([path, entries]) + "\n")


def _is_own(code: CodeType) -> bool:
    path = code.co_filename
    is_demo = path.startswith(DEMO)
    return path.startswith(OWN) and not is_demo and code.co_name not in PARTS


def main() -> None:
    """The start of the server is not profiled, which would take it several times as
    long; its threads are."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    django.setup(set_prefix=False)
    from conversations import engine
    from conversations.engine.process import status_report
    from llm.keys import pool
    from project.server import lifespan, watchdog

    pool.MAX_AGE = math.inf
    watchdog.INTERVAL = status_report.LAG_INTERVAL = 3600.0
    counting = Counting(Path(os.environ["CALLS_FILE"]), engine.submit.__code__)
    start = lifespan.start

    async def start_and_count() -> None:
        threading.setprofile(counting)
        await start()
        sys.setprofile(counting)

    lifespan.start = start_and_count
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
