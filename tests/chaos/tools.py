"""The tools that the scenarios call. Each notes when it begins and when it is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

from django.conf import settings

from tools.registry import Context, tool

NOTES = Path(settings.DATA) / "chaos-notes"
GATES = Path(settings.DATA) / "chaos-gates"  # a file for each wish whose gate is open


async def _work(name: str, mark: str, work: int, context: Context) -> str:
    """Take `work` milliseconds; if negative, until its own gate or that of its wish
    opens."""
    gates = GATES / mark, GATES / mark.rsplit("_", 2)[0]
    _note("begun", name, mark, context)
    while work < 0 and not any(gate.exists() for gate in gates):
        await asyncio.sleep(0.02)
    if work > 0:
        await asyncio.sleep(work / 1000)
    _note("done", name, mark, context)
    return f"result of {mark}"


def _note(what: str, name: str, mark: str, context: Context) -> None:
    with NOTES.open("a") as notes:
        notes.write(f"{what} {name} {mark} {context.idempotency_key}\n")


@tool(replay="once")
async def chaos_once(mark: str, work: int, context: Context) -> str:
    """Work; never to be repeated."""
    return await _work("chaos_once", mark, work, context)


@tool(replay="idempotent")
async def chaos_same(mark: str, work: int, context: Context) -> str:
    """Work; may be repeated with the same key."""
    return await _work("chaos_same", mark, work, context)


@tool(replay="safe")
async def chaos_safe(mark: str, work: int, context: Context) -> str:
    """Work that changes nothing."""
    return await _work("chaos_safe", mark, work, context)


@tool(replay="once", blocking=False)
async def chaos_later(mark: str, work: int, context: Context) -> str:
    """Work in the background; never to be repeated."""
    return await _work("chaos_later", mark, work, context)


@tool(replay="idempotent", blocking=False)
async def chaos_again(mark: str, work: int, context: Context) -> str:
    """Work in the background; may be repeated with the same key."""
    return await _work("chaos_again", mark, work, context)
