"""Call of an HTTP tool: sends the request and converts the answer to a result."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from llm.concurrency.worker_thread import run_off_loop
from llm.db.encrypted_field import SecretUnavailable
from llm.db.revealable_secret import RevealableSecret, reveal_headers
from llm.http.addresses import Network
from llm.telemetry import tracing
from tools.errors import (
    ConnectionBroken,
    FetchError,
    FetchTimeout,
    ToolError,
    Unreachable,
)
from tools.http.async_result import (
    ACCEPTED,
    AsyncResultSpec,
    build_poll_request,
    find_job_url,
    is_pending,
    seconds_to_next_poll,
)
from tools.http.exchange import FetchedResponse, Limits, OutgoingRequest
from tools.http.request_template import (
    ParameterLocation,
    RequestTemplate,
    build_request,
)
from tools.http.result import ReadOptions, result_of, texts_to_mask
from tools.runtime_tool import Accepted, Context

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    name: str
    definition: RequestTemplate
    read_options: ReadOptions
    limits: Limits
    networks: Collection[Network] = ()
    secret_headers: RevealableSecret | None = None  # JSON
    sends_key: bool = False  # an Idempotency-Key, so that the server detects repeats
    async_result: AsyncResultSpec | None = None  # how to get an asynchronous result

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        secret_headers = _reveal_headers(self.secret_headers)
        callback = self._find_callback(context)
        request = build_request(
            replace(self.definition, headers=self._headers()),
            arguments,
            secret_headers=secret_headers,
            idempotency_key=context.idempotency_key if self.sends_key else "",
            callback=callback,
        )
        fetched = await self._fetch(request)
        if self.async_result and fetched.status == ACCEPTED:
            return self._accept(fetched, self.async_result, bool(callback))
        return await self._result(fetched, secret_headers)

    async def poll(self, context: Context, job: str) -> Any:
        """The result of an accepted call, or Accepted if it is not ready."""
        assert self.async_result, "it was accepted"
        secret_headers = _reveal_headers(self.secret_headers)
        home, headers = self.definition.url, self._headers()
        try:
            fetched = await self._fetch(
                build_poll_request(job, home, headers, secret_headers)
            )
        # Its server may restart: the next poll may succeed.
        except (FetchTimeout, Unreachable, ConnectionBroken):
            return Accepted(job, self.async_result.poll_after)
        if is_pending(fetched, self.async_result):
            return Accepted(job, seconds_to_next_poll(fetched, self.async_result))
        return await self._result(fetched, secret_headers)

    def _headers(self) -> dict[str, str]:
        """Those of the definition, and those by which the tool's own server continues
        the trace of the call."""
        headers: dict[str, str] = {}
        if tracing.spans is not None:
            tracing.spans.add_trace_headers(headers)
        return {**headers, **self.definition.headers}

    async def _result(
        self, fetched: FetchedResponse, secret_headers: Mapping[str, str]
    ) -> Any:
        secrets = texts_to_mask(secret_headers)
        size = len(fetched.body)
        return await run_off_loop(size, result_of, fetched, self.read_options, secrets)

    def _find_callback(self, context: Context) -> tuple[ParameterLocation, str] | None:
        if self.async_result is None or self.async_result.callback_location is None:
            return None
        if not context.callback_url:
            logger.warning(
                "tool %s: its call has no callback URL: PUBLIC_URL is not set, or the"
                " tool is set to wait for the result",
                self.name,
            )
            return None
        return self.async_result.callback_location, context.callback_url

    def _accept(
        self, fetched: FetchedResponse, async_result: AsyncResultSpec, may_post: bool
    ) -> Accepted:
        """The server has accepted the work. Whatever its answer says about the job,
        even nothing, the model must not begin the work once more. Raises ToolError."""
        try:
            job = find_job_url(fetched, async_result)
        except ToolError as exc:
            if not may_post:
                raise ToolError(
                    "the server accepted the call, but the address of its result is"
                    f" invalid: {exc} The work may still take effect."
                ) from exc
            logger.warning(
                "tool %s: its answer names no job (%s); its result can only be posted",
                self.name,
                type(exc).__name__,
            )
            return Accepted()
        if job:
            return Accepted(job, seconds_to_next_poll(fetched, async_result))
        if may_post:
            return Accepted()
        raise ToolError(
            "the server accepted the call, but did not say where its result will be;"
            " what it began may still take effect."
        )

    async def _fetch(self, request: OutgoingRequest) -> FetchedResponse:
        from tools.http.guarded_client import fetch  # loads the HTTP libraries

        try:
            fetched = await fetch(request, allow=self.networks, limits=self.limits)
        except FetchError as exc:
            logger.warning("tool %s: %s %s", self.name, exc, exc.advice)
            raise
        logger.info(
            "tool %s: %s, %d bytes", self.name, fetched.status, len(fetched.body)
        )
        return fetched


def _reveal_headers(secret: RevealableSecret | None) -> dict[str, str]:
    try:
        return reveal_headers(secret)
    except SecretUnavailable as exc:
        raise ToolError(
            "the secret headers of this tool cannot be decrypted; ask the staff to"
            " enter them again."
        ) from exc
