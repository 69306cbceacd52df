"""One call of an HTTP tool: arguments to a request, an answer to a result."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import orjson

from llm.addresses import Network
from llm.encrypted import Secret, SecretUnavailable
from tools.errors import FetchError, ToolError
from tools.http.answer import Reading, hidden_texts, result_of
from tools.http.definition import Definition, request_of
from tools.http.exchange import Limits
from tools.registry import Context

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    name: str
    definition: Definition
    reading: Reading
    limits: Limits
    networks: Collection[Network] = ()
    secret_headers: Secret | None = None  # JSON
    sends_key: bool = False  # so that the server recognises a call that comes twice

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        from tools.guard import fetch  # loads the HTTP libraries

        secret_headers = _revealed(self.secret_headers)
        request = request_of(
            self.definition,
            arguments,
            secret_headers=secret_headers,
            idempotency_key=context.idempotency_key if self.sends_key else "",
        )
        try:
            fetched = await fetch(request, allow=self.networks, limits=self.limits)
        except FetchError as exc:
            logger.warning("tool %s: %s %s", self.name, exc, exc.advice)
            raise
        logger.info(
            "tool %s: %s, %d bytes", self.name, fetched.status, len(fetched.body)
        )
        return result_of(fetched, self.reading, hidden_texts(secret_headers))


def _revealed(secret: Secret | None) -> dict[str, str]:
    if not secret:
        return {}
    try:
        headers: dict[str, str] = orjson.loads(secret.reveal())
    except SecretUnavailable as exc:
        raise ToolError(
            "the secret headers of this tool cannot be read; the staff must enter them"
            " again."
        ) from exc
    return headers
