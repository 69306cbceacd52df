"""Write events into the outbox for the endpoints and people that subscribe to them.

Call it in the transaction of what has happened, so that both are stored or neither.
Without an endpoint and a person who wants e-mails, nothing is queried. Synchronous.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from conversations.access.webhooks import recipients
from conversations.models import Question, Turn
from conversations.models.user_settings import UserSettings
from conversations.models.webhooks.delivery import Delivery
from conversations.models.webhooks.endpoint import EventType, WebhookEndpoint

#: After a turn's end, in which the page notes that it was seen.
TIME_TO_LOOK = timedelta(seconds=60)
MAIL_OF_TURN = "mail.turn"
MAIL_OF_ENDPOINT = "mail.endpoint"

_BY_STATUS: Mapping[str, EventType] = {
    Turn.Status.COMPLETED: EventType.COMPLETED,
    Turn.Status.INCOMPLETE: EventType.INCOMPLETE,
    Turn.Status.FAILED: EventType.FAILED,
    Turn.Status.CANCELLED: EventType.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class _TurnFacts:
    conversation_id: str
    user_id: int | None  # whose turn it is; None where its author was erased
    created_at: datetime
    is_temporary: bool


def note_end(
    turn_id: str,
    status: str,
    *,
    error: Mapping[str, Any] | None = None,
    incomplete_reason: str = "",
) -> None:
    """The turn has ended."""
    if not recipients.is_any():
        return
    wants_webhooks, wants_mails = recipients.wants_webhooks(), recipients.wants_mails()
    now, facts = timezone.now(), _find_facts(turn_id)
    if wants_webhooks:
        data = {
            "id": turn_id,
            "object": "response",
            "status": status,
            "conversation": facts.conversation_id,
            "user": facts.user_id,
            "created_at": int(facts.created_at.timestamp()),
            "ended_at": int(now.timestamp()),
            "error": {"code": error.get("code")} if error else None,
            "incomplete_details": (
                {"reason": incomplete_reason} if incomplete_reason else None
            ),
        }
        write_deliveries(_BY_STATUS[status], data, facts.user_id, facts.conversation_id)
    if wants_mails and status != Turn.Status.CANCELLED and settings.SENDS_MAIL:
        _mail_if_long(turn_id, facts, now)


def note_question(question: Question, turn_id: str) -> None:
    """A person is asked."""
    if not recipients.wants_webhooks():
        return
    facts = _find_facts(turn_id)
    data = {
        "id": question.pk,
        "object": "question",
        "kind": question.kind,
        "response": turn_id,
        "conversation": facts.conversation_id,
        "user": facts.user_id,
        "group": question.group_id,
        "created_at": int(question.asked_at.timestamp()),
        "expires_at": int(question.expires_at.timestamp()),
    }
    write_deliveries(
        EventType.QUESTION,
        data,
        facts.user_id,
        facts.conversation_id,
        group_id=question.group_id,
    )


def write_deliveries(
    event: EventType,
    data: Mapping[str, Any],
    user_id: int | None,
    conversation_id: str | None = None,
    *,
    group_id: int | None = None,
    once_key: str | None = None,
) -> None:
    """A row for each endpoint that receives this event of the user or group."""
    endpoints = WebhookEndpoint.objects.wanting(event, user_id, group_id)
    rows = [
        Delivery(
            endpoint=endpoint,
            user_id=user_id,
            conversation_id=conversation_id,
            type=event,
            data=data,
            once_key=once_key,
        )
        for endpoint in endpoints
    ]
    if rows:
        Delivery.objects.bulk_create(rows, ignore_conflicts=once_key is not None)


def _find_facts(turn_id: str) -> _TurnFacts:
    rows = Turn.objects.filter(pk=turn_id).values_list(
        "conversation_id",
        "author_id",
        "author_name",
        "conversation__owner_id",
        "created_at",
        "conversation__is_temporary",
    )
    conversation_id, author, author_name, owner, created_at, is_temporary = rows.get()
    user_id = author if author or author_name else owner
    return _TurnFacts(conversation_id, user_id, created_at, is_temporary)


def _mail_if_long(turn_id: str, facts: _TurnFacts, now: datetime) -> None:
    if facts.user_id is None or facts.is_temporary:
        return
    minutes = (
        UserSettings.objects.filter(user_id=facts.user_id)
        .values_list("email_after_minutes", flat=True)
        .first()
    )
    if minutes is None or now - facts.created_at < timedelta(minutes=minutes):
        return
    Delivery.objects.create(
        user_id=facts.user_id,
        conversation_id=facts.conversation_id,
        type=MAIL_OF_TURN,
        data={"response": turn_id},
        next_attempt_at=now + TIME_TO_LOOK,
    )
