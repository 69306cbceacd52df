"""Tools that run in a process of their own; it finds them here by their names."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tools.errors import ToolError
from tools.http.exchange import FetchedResponse
from tools.registry import Accepted, Context, tool


class Guest(BaseModel):
    name: str
    born: date


class OddError(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(one)


@tool(isolate=True)
def greet(guest: Guest, context: Context) -> dict:
    """Greet a guest."""
    print("this is no result")
    for number in range(3):
        context.progress(f"{number}")
    return {
        "guest": guest,
        "is_date": isinstance(guest.born, date),
        "user": context.user_id,
        "key": context.idempotency_key,
        "pid": os.getpid(),
    }


@tool(isolate=True)
async def ask(context: Context) -> str:
    """Ask the user."""
    first, second = await asyncio.gather(
        context.asking("First?", {"type": "object"}),
        context.asking("Second?", {"type": "object"}),
    )
    return f"{first.action} {first.content} {second.content}"


@tool(isolate=True, risk="reads", networks=["127.0.0.1/32"])
async def fetch_all(urls: list[str], context: Context) -> list[str]:
    """Fetch pages at the same time."""
    answers = await asyncio.gather(
        *(context.fetch(url, method="POST", body=b"\xff") for url in urls),
        return_exceptions=True,
    )
    return [
        each.text if isinstance(each, FetchedResponse) else f"{each!r}"
        for each in answers
    ]


@tool(isolate=True)
def fetch_public(url: str, context: Context) -> str:
    """Fetch a page from a function that is not async."""
    headers = {"Host": "other.example"} if "header" in url else {}
    return asyncio.run(context.fetch(url, headers=headers)).text


@tool(isolate=True)
def send_frames(frames: list[dict], context: Context) -> str:
    """Write frames as the code of a tool must not."""
    parent: Any = context.send_request.__self__  # type: ignore[union-attr]
    for frame in frames:
        parent.send(frame)
    return "sent"


@tool(isolate=True)
def fail(how: str) -> str:
    """Fail in one of many ways."""
    match how:
        case "told":
            raise ToolError("there is no such thing; try another.")
        case "builtin":
            raise LookupError(how * 2)
        case "group":
            raise ExceptionGroup("all", [ValueError(how * 2)])
        case "odd":
            raise OddError(how * 2, "more")
        case "exit":
            sys.exit(3)
        case "unusable":
            return object()
        case "leave":
            os._exit(7)
        case "crash":
            ctypes.string_at(0)
        case "large":
            return "x" * 100
        case "surrogate":
            return "half \ud83d an emoji"
    return how


@tool(isolate=True)
async def later() -> Accepted:
    """Accepted, with a result later."""
    return Accepted("job-7", poll_after=30)


@tool(isolate=True, timeout=30)
def hang(folder: str, context: Context) -> str:
    """Hang without letting go, and with a child that does so too."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(folder, "pids").write_text(f"{os.getpid()} {child.pid}")
    context.progress("hangs")
    while True:
        time.sleep(1000)


@tool(isolate=True)
def leave_a_child(folder: str) -> str:
    """Return, and leave a process behind."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(folder, "pids").write_text(str(child.pid))
    return "done"


@tool(isolate=True, memory=64)
def take_memory(mebibytes: int) -> str:
    """Take so much memory."""
    return f"{len(bytearray(mebibytes * 2**20))} bytes"


@tool(isolate=True)
def count_users(add: str) -> int:
    """How many users there are, with one more."""
    from django.contrib.auth.models import User

    User.objects.create_user(add)
    return User.objects.count()
