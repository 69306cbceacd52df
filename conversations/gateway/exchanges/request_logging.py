"""The request log of a token: requests and answers of 24 hours, cut, without keys.

Over a WebSocket each message is a request, and the events up to the next one answer it.

Only requests of tokens whose log is switched on are copied; for others nothing is done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from conversations.gateway.exchanges.sent_answer import SentAnswer
from conversations.gateway.http import Exchange
from conversations.gateway.write_behind import WriteBehindQueue
from conversations.models.access_token import AccessToken
from conversations.models.gateway.request_log import (
    MAX_BODY,
    LoggedRequest,
    pack_text,
)
from llm.db.encrypted_field import scrub
from llm.http.recording import MARGIN, mask_values
from llm.pricing.caller import cut_name
from llm.wire.items import new_id


class RequestLog:
    """Copies one request and its answer; `write` queues the row."""

    def __init__(self, exchange: Exchange, token: AccessToken) -> None:
        self._exchange = exchange
        self._token = token
        self._began_at = time.monotonic()
        self._sent = SentAnswer(exchange, MAX_BODY + MARGIN, cuts=True)
        exchange.copied_size = MAX_BODY + MARGIN
        self.model = ""

    def write(self, queue: WriteBehindQueue) -> None:
        seconds = time.monotonic() - self._began_at
        queue.add(partial(self._save, seconds))

    def _save(self, seconds: float) -> None:
        exchange, sent = self._exchange, self._sent
        sent_id = exchange.headers.get(b"x-request-id", b"").decode("latin-1")
        row = LoggedRequest(
            token_id=self._token.pk,
            method=exchange.method,
            path=exchange.path[:200],
            status=sent.status,
            seconds=seconds,
            request_id=exchange.id,
            client_request_id=cut_name(sent_id),
            model=self.model[:300],
            request_size=exchange.body_size,
            response_size=sent.size,
            request_body=pack_text(_text(exchange.copied_body)),
            response_body=pack_text(_text(sent.body or b"")),
        )
        LoggedRequest.objects.add(row)


class SocketLog:
    """Copies one request over a WebSocket and its events; `write` queues the row."""

    def __init__(
        self, token: AccessToken, message: str, headers: Mapping[bytes, bytes]
    ) -> None:
        self._token = token
        self._began_at = time.monotonic()
        self._request = message.encode(errors="replace")
        self._sent_id = headers.get(b"x-request-id", b"").decode("latin-1")
        self._events: list[bytes] = []
        self._size = 0
        self.model = ""
        self.response_id = ""
        self.status: int | None = None  # as over HTTP

    def note(self, event: bytes) -> None:
        room = MAX_BODY + MARGIN - self._size
        self._size += len(event) + 1
        if room > 0:
            self._events.append(event[:room])

    def write(self, queue: WriteBehindQueue) -> None:
        seconds = time.monotonic() - self._began_at
        queue.add(partial(self._save, seconds))

    def _save(self, seconds: float) -> None:
        copied = self._request[: MAX_BODY + MARGIN]
        row = LoggedRequest(
            token_id=self._token.pk,
            method="WS",
            path="/v1/responses",
            status=self.status,
            seconds=seconds,
            request_id=(self.response_id or new_id("req"))[:64],
            client_request_id=cut_name(self._sent_id),
            model=self.model[:300],
            request_size=len(self._request),
            response_size=self._size,
            request_body=pack_text(_text(copied)),
            response_body=pack_text(_text(b"\n".join(self._events))),
        )
        LoggedRequest.objects.add(row)


def _text(body: bytes) -> str:
    """Bodies may name keys of hosts and credentials of MCP servers."""
    return scrub(mask_values(body.decode(errors="replace")))[:MAX_BODY]
