"""ASGI middleware that logs a line for each request.

The line leaves out the query string, which may contain anything, secrets too, and the
secrets in the addresses of shared conversations, of results of tools and in mails.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

#: What follows in a path is a secret.
_BEFORE_SECRETS = (
    "/shared/",
    "/api/callbacks/",
    r"/account/password-reset/key/[0-9A-Za-z]+-",
    "/account/email/confirm/",
    r"/keys/\d+/sign-in/",
)
_SECRET = re.compile(rf"({'|'.join(_BEFORE_SECRETS)})[^/]+")
#: What a terminal or a reader of lines could take for something else.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

logger = logging.getLogger("project.access")


def hide_secrets(text: str) -> str:
    """A path, or a text with paths, on one line and without secrets."""
    return _CONTROL.sub(lambda m: ascii(m[0])[1:-1], _SECRET.sub(r"\1…", text))


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
