"""One attempt to send a webhook, by the guarded client of the tools."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import orjson

from conversations.engine.webhooks.delivery_store import DeliveryOutcome
from conversations.models.webhooks import error_texts
from conversations.models.webhooks.delivery import Delivery
from conversations.models.webhooks.endpoint import WebhookEndpoint
from conversations.models.webhooks.signature import sign
from llm.db.bound_secrets import SecretUnavailable
from tools.errors import FetchError
from tools.http.exchange import FetchedResponse, Limits, OutgoingRequest
from tools.http.guarded_client import fetch

#: Only the status of an answer counts; its body is not read, however long it is.
LIMITS = Limits(connect=10, total=20, redirects=0, reads_body=False)
LONGEST_WAIT = timedelta(days=1)  # that a receiver may ask for


async def send(delivery: Delivery, endpoint: WebhookEndpoint) -> DeliveryOutcome:
    """Raises nothing but CancelledError."""
    try:
        request = build_request(delivery, endpoint)
        answer = await fetch(request, allow=endpoint.allowed_networks, limits=LIMITS)
    except SecretUnavailable:
        return DeliveryOutcome(error=error_texts.UNREADABLE_SECRET)
    except FetchError as exc:
        return DeliveryOutcome(error=_sentence(str(exc)))
    return judge_answer(answer)


def build_request(delivery: Delivery, endpoint: WebhookEndpoint) -> OutgoingRequest:
    """Signed with the time of this attempt. Raises SecretUnavailable."""
    body, timestamp = orjson.dumps(delivery.envelope()), int(time.time())
    signatures = [
        sign(secret, delivery.event_id, timestamp, body)
        for secret in endpoint.reveal_secrets()
    ]
    return OutgoingRequest(
        method="POST",
        url=endpoint.url,
        headers={
            "Content-Type": "application/json",
            "webhook-id": delivery.event_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(signatures),
        },
        body=body,
    )


def judge_answer(answer: FetchedResponse) -> DeliveryOutcome:
    status = answer.status
    if 200 <= status < 300:
        return DeliveryOutcome(status=status)
    if 300 <= status < 400:
        error = error_texts.REDIRECTS % {"status": status}
        return DeliveryOutcome(status=status, error=error)
    return DeliveryOutcome(
        status=status,
        error=error_texts.ANSWERED % {"status": status},
        retry_after=_read_retry_after(answer.headers),
        is_final=status == HTTPStatus.GONE,
    )


def _read_retry_after(headers: Mapping[str, str]) -> timedelta:
    """Seconds or a date; nothing that cannot be read, at most a day."""
    text = headers.get("retry-after", "").strip()
    wait = timedelta()
    if text.isascii() and text.isdigit():
        wait = timedelta(seconds=min(int(text[:9]), LONGEST_WAIT.total_seconds()))
    elif text:
        try:
            until = parsedate_to_datetime(text)
            wait = until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)
        except (ValueError, OverflowError):
            return wait
    return max(timedelta(), min(wait, LONGEST_WAIT))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
