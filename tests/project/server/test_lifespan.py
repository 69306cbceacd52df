"""ASGI lifespan of servers other than `serve`: each failed start is reported."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from project.server.lifespan import lifespan


async def test_the_server_gets_one_line_about_any_failure_and_the_log_the_trace(
    tmp_path: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.IS_SCALED = False
    settings.DATA = tmp_path / "no folder"
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await lifespan({"type": "lifespan"}, receive, send)
    message = "The engine does not start (FileNotFoundError)."
    assert sent == [{"type": "lifespan.startup.failed", "message": message}]
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info
