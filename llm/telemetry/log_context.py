"""What a line of the log belongs to: the ids of its request and of its turn."""

from __future__ import annotations

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="")
turn_id: ContextVar[str] = ContextVar("turn_id", default="")
