from __future__ import annotations

import os
import signal
from pathlib import Path

from django.conf import settings

from conversations.engine.process import crash_points
from tools.registry import Accepted, Approval, Context, tool

TRACES = Path(settings.DATA) / "traces"


def _act(name: str, context: Context) -> str:
    crash_points.reach(f"{name}:before")
    with TRACES.open("a") as traces:
        traces.write(f"{name} {context.idempotency_key}\n")
    crash_points.reach(f"{name}:after")
    return "done"


@tool(replay="once")
async def act_once(context: Context) -> str:
    """Act; never to be repeated."""
    return _act("act_once", context)


@tool(replay="idempotent")
async def act_same(context: Context) -> str:
    """Act; may be repeated with the same key."""
    return _act("act_same", context)


@tool(replay="once", blocking=False)
async def act_later(context: Context) -> str:
    """Act in the background; never to be repeated."""
    return _act("act_later", context)


@tool(replay="once", approval=Approval(policy="always"))
async def act_asked(context: Context) -> str:
    """Act with a person's leave; never to be repeated."""
    return _act("act_asked", context)


@tool(replay="safe")
async def act_deadly(context: Context) -> str:
    """End the process, each time."""
    return _end_process("act_deadly", context)


@tool(replay="safe", blocking=False)
async def act_deadly_later(context: Context) -> str:
    """End the process in the background, each time."""
    return _end_process("act_deadly_later", context)


def _end_process(name: str, context: Context) -> str:
    with TRACES.open("a") as traces:
        traces.write(f"{name} {context.idempotency_key}\n")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


async def _is_done(context: Context, token: str) -> str:
    return f"{token} is done"


@tool(replay="once", blocking=False, poll=_is_done)
async def act_elsewhere(context: Context) -> Accepted:
    """Call other tools and report their progress; never to be repeated."""
    _act("act_elsewhere", context)
    return Accepted(token="work", poll_after=0.1)
