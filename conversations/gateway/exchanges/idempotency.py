"""`Idempotency-Key` on every POST of `/v1`: the same request gets the same answer.

The answer is saved before its last bytes are sent, so a client that has received it can
get it again. What failed is not saved: the request may then be sent again with its key.
A message over a WebSocket has its key in the field `idempotency_key`.

Source: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from conversations.engine.database.executor import Database
from conversations.gateway.exchanges.sent_answer import SentAnswer
from conversations.gateway.loop_resources import Resources
from conversations.gateway.request_context import Handler, RequestContext
from conversations.models.gateway.answered_request import AnsweredRequest, ClaimLost
from llm.errors import BadRequest, TryAgain

HEADER = b"idempotency-key"
MAX_KEY = 255  # characters
MAX_ANSWER = 8 * 1024 * 1024  # bytes
_REPLAYED = (b"idempotent-replayed", b"true")
#: Of the connection and of this request, not of the answer.
#: Headers of each answer's own request; a repeated answer gets them anew.
_OWN_HEADERS = frozenset(
    {
        b"access-control-allow-origin",
        b"access-control-expose-headers",
        b"request-id",
        b"vary",
        b"x-request-id",
    }
)
_OWN_PREFIXES = (b"x-ratelimit-", b"anthropic-ratelimit-")


class BadIdempotencyKey(BadRequest):
    """An Idempotency-Key has 1 to 255 printable characters."""

    code = "E_IDEMPOTENCY_KEY"
    openai_code = "invalid_idempotency_key"


class IdempotencyKeyReused(BadRequest):
    """This Idempotency-Key belongs to another request; choose a new one."""

    code, status = "E_IDEMPOTENCY_KEY_REUSED", 409
    openai_code = "idempotency_key_reused"


class AnswerNotSaved(BadRequest):
    """This request was answered before, and its answer cannot be sent again."""

    code, status = "E_IDEMPOTENT_ANSWER_GONE", 409
    openai_code = "idempotent_answer_not_kept"


class StillAnswering(TryAgain):
    """The first request with this Idempotency-Key is still being answered."""

    code, status = "E_IDEMPOTENT_REQUEST_RUNS", 409
    openai_code = "idempotency_key_in_use"

    def __init__(self) -> None:
        super().__init__(retry_after=1.0)


async def answer_once(context: RequestContext, handler: Handler) -> None:
    """Run `handler`, or repeat the answer that it gave to the same request before.

    Raises BadIdempotencyKey, IdempotencyKeyReused, StillAnswering, AnswerNotSaved.
    """
    exchange, database = context.exchange, context.resources.database
    key = exchange.headers[HEADER].decode("latin-1").strip()
    fingerprint = fingerprint_of(exchange.path, context.body)
    row, is_first = await claim(database, context.token.pk, key, fingerprint)
    if not is_first:
        assert row.status is not None, "`claim` has checked"
        headers = [(name.encode(), value.encode()) for name, value in row.headers]
        await exchange.repeat(row.status, [*headers, _REPLAYED], row.read_body())
        return

    async def save() -> None:
        if sent.status is not None and sent.status < 300 and not exchange.has_failed:
            await database.write(
                row.save_answer, sent.status, _headers_to_save(sent), sent.body
            )

    sent = SentAnswer(exchange, MAX_ANSWER, before_end=save)
    try:
        with context.resources.key_leases.renewing(row):
            try:
                await handler(replace(context, answered_request=row))
            except asyncio.CancelledError:
                give_up(row, context.resources)
                raise
            except ClaimLost:
                raise
            except Exception:
                await database.write(row.hand_over)
                raise
            # This changes nothing if the answer was saved.
            await database.write(row.hand_over)
    except ClaimLost as exc:
        raise StillAnswering from exc


def give_up(row: AnsweredRequest, resources: Resources) -> None:
    """Let another request have the key of a cancelled one. The write is queued, because
    the database may not answer. If the lease is lost, the request that takes the key
    continues the turn that this one opened, which may even be over by then."""
    if not row.is_unstoppable:
        resources.write_queue.add(row.end_lease if row.is_lost else row.release)


async def claim(
    database: Database, token_id: int, key: str, fingerprint: str
) -> tuple[AnsweredRequest, bool]:
    """The row of `key`, and whether the caller is to answer the request; if not, the
    row has the answer.

    Raises BadIdempotencyKey, IdempotencyKeyReused, StillAnswering, AnswerNotSaved.
    """
    if not (key and len(key) <= MAX_KEY and key.isprintable()):
        raise BadIdempotencyKey
    row, is_first = await database.write(
        AnsweredRequest.objects.claim, token_id, key, fingerprint
    )
    if not is_first:
        if row.fingerprint != fingerprint:
            raise IdempotencyKeyReused
        if row.status is None:
            raise StillAnswering
        if row.body is None:
            raise AnswerNotSaved
    return row, is_first


def _headers_to_save(sent: SentAnswer) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in sent.headers
        if name not in _OWN_HEADERS and not name.startswith(_OWN_PREFIXES)
    ]


def fingerprint_of(path: str, body: Mapping[str, Any]) -> str:
    """Raises BadRequest."""
    try:
        text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as exc:  # it reads deeper ones than it writes
        raise BadRequest("The body is nested too deeply.") from exc
    return hashlib.sha256(b"%b\0%b" % (path.encode(), text)).hexdigest()
