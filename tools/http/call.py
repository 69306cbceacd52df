"""Call of an HTTP tool: sends the request and converts the answer to a result."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from llm.addresses import Network
from llm.encrypted import Secret, SecretUnavailable
from llm.off_loop import run_off_loop
from tools.errors import FetchError, FetchTimeout, ToolError, Unreachable
from tools.http.answer import Reading, hidden_texts, result_of
from tools.http.definition import Definition, Place, request_of
from tools.http.exchange import Fetched, Limits, Request
from tools.http.later import ACCEPTED, Later, asking, is_pending, job_of, wait_of
from tools.registry import Accepted, Context
from tools.secret_headers import revealed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    name: str
    definition: Definition
    reading: Reading
    limits: Limits
    networks: Collection[Network] = ()
    secret_headers: Secret | None = None  # JSON
    sends_key: bool = False  # an Idempotency-Key, so that the server detects repeats
    later: Later | None = None  # how to get an asynchronous result

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        secret_headers = _revealed(self.secret_headers)
        callback = self._callback(context)
        request = request_of(
            self.definition,
            arguments,
            secret_headers=secret_headers,
            idempotency_key=context.idempotency_key if self.sends_key else "",
            callback=callback,
        )
        fetched = await self._fetch(request)
        if self.later and fetched.status == ACCEPTED:
            return self._accepted(fetched, self.later, bool(callback))
        return await self._result(fetched, secret_headers)

    async def poll(self, context: Context, job: str) -> Any:
        """The result of an accepted call, or Accepted if it is not ready."""
        assert self.later, "it was accepted"
        secret_headers = _revealed(self.secret_headers)
        home, headers = self.definition.url, self.definition.headers
        try:
            fetched = await self._fetch(asking(job, home, headers, secret_headers))
        except (FetchTimeout, Unreachable):  # the next poll may succeed
            return Accepted(job, self.later.after)
        if is_pending(fetched, self.later):
            return Accepted(job, wait_of(fetched, self.later))
        return await self._result(fetched, secret_headers)

    async def _result(self, fetched: Fetched, secret_headers: Mapping[str, str]) -> Any:
        secrets = hidden_texts(secret_headers)
        size = len(fetched.body)
        return await run_off_loop(size, result_of, fetched, self.reading, secrets)

    def _callback(self, context: Context) -> tuple[Place, str] | None:
        if self.later is None or self.later.callback is None:
            return None
        if not context.callback_url:
            logger.warning("tool %s: no callback URL to give", self.name)
            return None
        return self.later.callback, context.callback_url

    def _accepted(self, fetched: Fetched, later: Later, may_post: bool) -> Accepted:
        if job := job_of(fetched, later):
            return Accepted(job, wait_of(fetched, later))
        if may_post:
            return Accepted()
        raise ToolError(
            "the server goes to work, but does not say where its result will be."
        )

    async def _fetch(self, request: Request) -> Fetched:
        from tools.guard import fetch  # loads the HTTP libraries

        try:
            fetched = await fetch(request, allow=self.networks, limits=self.limits)
        except FetchError as exc:
            logger.warning("tool %s: %s %s", self.name, exc, exc.advice)
            raise
        logger.info(
            "tool %s: %s, %d bytes", self.name, fetched.status, len(fetched.body)
        )
        return fetched


def _revealed(secret: Secret | None) -> dict[str, str]:
    try:
        return revealed(secret)
    except SecretUnavailable as exc:
        raise ToolError(
            "the secret headers of this tool cannot be read; the staff must enter them"
            " again."
        ) from exc
