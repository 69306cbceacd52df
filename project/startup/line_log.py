"""Formatter of log lines as text."""

from __future__ import annotations

import logging
from typing import Any

from tools.execute import format_trace


class LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name} {message}", style="{")

    def formatException(self, ei: Any) -> str:
        """Without the messages of the exceptions: these may quote a prompt or a row."""
        return f"Traceback without messages:\n{format_trace(ei[1])}"
