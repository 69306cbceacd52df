"""ASGI middleware that logs a line for each request.

The line leaves out the query string, which may contain anything, secrets too,
and the secrets in the addresses of shared conversations.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

#: What follows in a path is a secret.
_SECRET = re.compile(r"^(/shared/)[^/]+")

logger = logging.getLogger("project.access")


def hide_secrets(path: str) -> str:
    return _SECRET.sub(r"\1…", path)


class AccessLog:
    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        started_at = time.monotonic()
        status, size = 0, 0

        async def send_and_count(message: Any) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._application(scope, receive, send_and_count)
        finally:
            logger.info(
                "%s %s %s, %d bytes, %.0f ms",
                scope["method"],
                hide_secrets(scope["path"]),
                status or "-",
                size,
                (time.monotonic() - started_at) * 1000,
            )
