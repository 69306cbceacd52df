"""The request log of a token: requests and answers of 24 hours, cut, without keys.

Only requests of tokens whose log is switched on are copied; for others nothing is done.
"""

from __future__ import annotations

import time
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


def _text(body: bytes) -> str:
    """Bodies may name keys of hosts and credentials of MCP servers."""
    return scrub(mask_values(body.decode(errors="replace")))[:MAX_BODY]
