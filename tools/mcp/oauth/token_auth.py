"""The SDK's OAuth flow for requests that lack a token, and only for these.

What kinds of sign-in have in common. Loads the SDK; import it where needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import extract_field_from_www_auth

Flow = AsyncGenerator[httpx2.Request, httpx2.Response]


@dataclass
class _Sending:
    """What became of one request to the server so far."""

    request: httpx2.Request
    refusal: httpx2.Response | None = None  # the answer that demands another token
    is_repeated: bool = False  # with a token that others obtained, or a renewed one
    is_last: bool = False  # after a new sign-in, any answer is the final one
    #: The authorization server's answer is the final one.
    is_over: bool = False


class TokenAuth(httpx2.Auth):
    """Runs the SDK's flow for requests that lack a token, or whose token is refused.

    The request itself is sent outside of the flow, which locks until it is answered:
    the calls of a session would wait for each other.
    """

    def __init__(self) -> None:
        self._lock = anyio.Lock()  # held while a token is loaded or obtained

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        sending = _Sending(request)
        while not sending.is_over:
            if sending.refusal is not None or not self._add_token(request):
                async with (
                    self._lock,
                    self._watch_flow(),
                    aclosing(self._obtain_token(sending)) as flow,
                ):
                    sent = await anext(flow, None)
                    while sent is not None:
                        sent = await _advance(flow, (yield sent))
            if sending.is_over:
                return
            response = yield request
            sending.is_over = sending.is_last or not _demands_token(response)
            sending.refusal = response

    async def _obtain_token(self, sending: _Sending) -> Flow:
        """The SDK's flow without the request itself; ends when that can be sent."""
        request, refusal = sending.request, sending.refusal
        if self._is_hopeless():
            sending.is_last = True
            return
        if refusal is not None and self._may_repeat(sending, refusal):
            sending.is_repeated, refusal = True, None
        if refusal is not None:
            self._require_person()
            sending.is_last = True
        async with aclosing(self._start_flow(request)) as flow:
            sent = await anext(flow)
            while sent is not request or refusal is not None:
                if sent is request:
                    assert refusal is not None
                    response, refusal = refusal, None
                else:
                    response = yield self._adapt_request(sent)
                    if await self._ends_sending(sent, response):
                        sending.is_over = True
                        return
                    response = await self._prefer_issuer(response)
                sent = await flow.asend(response)

    def _may_repeat(self, sending: _Sending, refusal: httpx2.Response) -> bool:
        """Whether there is, or can be, another token than the refused one."""
        if sending.is_repeated:
            return False
        return self._has_other_token(sending.request) or (
            refusal.status_code == 401 and self._forget_token()
        )

    def _has_other_token(self, request: httpx2.Request) -> bool:
        """Whether the current token is not the one of the request."""
        value = self._bearer()
        return value is not None and request.headers.get("Authorization") != value

    def _add_token(self, request: httpx2.Request) -> bool:
        """Add the current token; False if there is none, or it has expired."""
        if (value := self._bearer()) is None:
            return False
        request.headers["Authorization"] = value
        return True

    def _bearer(self) -> str | None:
        context = None if self._provider is None else self._provider.context
        if context is None or not context.is_token_valid():
            return None
        assert context.current_tokens
        return f"Bearer {context.current_tokens.access_token}"

    # What kinds of sign-in differ in

    _provider: OAuthClientProvider | None

    def _start_flow(self, request: httpx2.Request) -> Flow:
        raise NotImplementedError

    @asynccontextmanager
    async def _watch_flow(self) -> AsyncGenerator[None, None]:
        yield

    def _forget_token(self) -> bool:
        """Mark the access token as rejected; False if it cannot be renewed."""
        return False

    def _require_person(self) -> None:
        """Raises SignInFailed if only a person can sign in again, and none can now."""

    def _is_hopeless(self) -> bool:
        """Whether to send requests without a new token, because there will be none."""
        return False

    def _adapt_request(self, request: httpx2.Request) -> httpx2.Request:
        return request

    async def _prefer_issuer(self, response: httpx2.Response) -> httpx2.Response:
        return response

    async def _ends_sending(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> bool:
        """Whether the authorization server's answer is the final one, because there is
        no token for now."""
        return False


async def _advance(flow: Flow, response: httpx2.Response) -> httpx2.Request | None:
    """The next request of the flow; None at its end."""
    try:
        return await flow.asend(response)
    except StopAsyncIteration:
        return None


def _demands_token(response: httpx2.Response) -> bool:
    """Whether the server wants another token: it answers so before it does anything."""
    if response.status_code == 403:
        error = extract_field_from_www_auth(response, "error")
        return error == "insufficient_scope"
    return response.status_code == 401
