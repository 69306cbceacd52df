from __future__ import annotations

from pathlib import Path

from django.conf import settings

from conversations.engine import faults
from tools.registry import Context, tool

TRACES = Path(settings.DATA) / "traces"


def _act(name: str, context: Context) -> str:
    faults.at(f"{name}:before")
    with TRACES.open("a") as traces:
        traces.write(f"{name} {context.idempotency_key}\n")
    faults.at(f"{name}:after")
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
