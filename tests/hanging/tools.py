from __future__ import annotations

import asyncio
import time
from pathlib import Path

from django.conf import settings

from tools.registry import Approval, Context, tool

NOTES = Path(settings.DATA) / "notes"
LARGE = 40 * 1024 * 1024  # bytes


async def _hang(context: Context) -> str:
    _note("started", context)
    try:
        await asyncio.Event().wait()
    finally:
        _note("ended", context)
    return "never"


def _note(what: str, context: Context) -> None:
    with NOTES.open("a") as notes:
        notes.write(f"{what} {context.conversation_id} {time.monotonic()}\n")


@tool(replay="once")
async def hang(context: Context) -> str:
    """Wait for ever."""
    return await _hang(context)


@tool(replay="once", blocking=False)
async def hang_later(context: Context) -> str:
    """Wait for ever, in the background."""
    return await _hang(context)


@tool(replay="safe")
async def ready(context: Context) -> str:
    """Be ready at once."""
    return "ready"


@tool(replay="once", approval=Approval(policy="always"))
async def guarded(context: Context) -> str:
    """Never to be called without a person's word."""
    _note("started", context)
    return "done"


@tool(replay="safe")
async def large() -> str:
    """Return 40 MB of text."""
    return "x" * LARGE
