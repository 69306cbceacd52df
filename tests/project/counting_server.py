"""`manage.py serve` that counts the project's functions on a request's way to a model.

It counts from the moment a POST request enters the application to the moment the HTTP
library gets the request to the provider, in all threads: everything that the process
runs in between. Each such window is one line of JSON in the file that `CALLS_FILE`
names: `[path, {function: number of entries}]`.

Comprehensions and generator expressions are parts of the function that contains them;
lambdas are functions. A coroutine or generator that continues is entered again.

A warm server has read its keys less than `MAX_AGE` ago; here they are never read again,
as a slow machine would do so for each request. The watchdog's timer, which belongs to
no request and fires fifty times a second, does not fire either.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections import Counter
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
PARTS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})


class Counting:
    def __init__(self, log: Path) -> None:
        self._log = log
        self._path = ""  # of the request that is counted
        self._entries: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code is END:
            self._end()
        elif _is_own(code):
            if code.co_filename == SERVER and code.co_name == "application":
                self._begin(frame.f_locals["scope"])
            if self._path:
                self._entries[code] += 1

    def _begin(self, scope: dict[str, Any]) -> None:
        if scope.get("method") == "POST" and not scope["path"].startswith("/demo/"):
            self._path, self._entries = scope["path"], Counter()

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
    from llm.keys import pool
    from project.server import lifespan, watchdog

    pool.MAX_AGE = math.inf
    watchdog.INTERVAL = 3600.0
    counting, start = Counting(Path(os.environ["CALLS_FILE"])), lifespan.start

    async def start_and_count() -> None:
        threading.setprofile(counting)
        await start()
        sys.setprofile(counting)

    lifespan.start = start_and_count
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
