"""Dry run of a tool: one real call whose outcome, progress and log staff can see."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import uuid4

from asgiref.sync import async_to_sync

from llm.concurrency.thread_lending import lend_thread
from tools.execute import CallOutcome, CallProgress, execute
from tools.runtime_tool import Context, RuntimeTool

MAX_LINES = 200  # of the log

_log_lines: ContextVar[list[str] | None] = ContextVar("log_lines", default=None)


@dataclass(frozen=True, slots=True)
class DryRun:
    outcome: CallOutcome
    progress: list[str]
    log: list[str]


@lend_thread()
def dry_run(
    tool: RuntimeTool,
    arguments: str,
    user_id: int | None,
    sign_ins_of: int | None = None,
) -> DryRun:
    """Call the tool. `arguments` is JSON text as a model writes it, valid or not.

    `sign_ins_of` is the member of staff: the sign-ins of the user as whom the tool is
    called are not for staff to use.
    """
    context = Context(
        user_id=user_id,
        sign_ins_of=sign_ins_of,
        # A new turn id, because the idempotency key is made of it: with the same key
        # an external service would take each dry run for the one before.
        turn_id=f"dry_run_{uuid4().hex}",
    )
    return async_to_sync(_dry_run)(tool, arguments, context)


async def _dry_run(tool: RuntimeTool, arguments: str, context: Context) -> DryRun:
    call = {
        "type": "function_call",
        "id": "fc_dry_run",
        "call_id": "dry_run",
        "name": tool.name,
        "arguments": arguments,
        "status": "completed",
    }
    progress: list[str] = []
    with _collect_log() as log:
        async for event in execute([call], {tool.name: tool}, context):
            if isinstance(event, CallOutcome):
                return DryRun(event, progress, log)
            if isinstance(event, CallProgress):
                progress.append(event.message)
    raise AssertionError("every call has an outcome")


class _LogCollector(logging.Handler):
    """Collects what is logged during a dry run, in any thread."""

    def emit(self, record: logging.LogRecord) -> None:
        lines = _log_lines.get()
        if lines is not None and len(lines) < MAX_LINES:
            try:
                message = record.getMessage()
            except Exception:  # arguments that do not fit the text
                self.handleError(record)
            else:
                lines.append(f"{record.levelname} {record.name} {message}")


@contextmanager
def _collect_log() -> Iterator[list[str]]:
    lines: list[str] = []
    collector = _LogCollector()
    root = logging.getLogger()
    token = _log_lines.set(lines)
    root.addHandler(collector)
    try:
        yield lines
    finally:
        root.removeHandler(collector)
        _log_lines.reset(token)
