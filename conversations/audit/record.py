"""Record an event of the audit log.

    record_event("budget.raise", target=token, before={"budget": 5},
                 after={"budget": 9}, reason="Release week")

The event is written in the transaction of the act, if there is one, and linked to the
chain after its commit. Docs: docs/audit.md.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from django.db import models, transaction
from django.utils import timezone

from conversations.audit.act import current_act
from conversations.audit.chain import digest_text, link_events
from conversations.audit.models import AuditEvent, AuditText

MAX_TEXT = 4000  # characters of one value

Target: TypeAlias = models.Model | tuple[str, Any]


def record_event(
    action: str,
    *,
    target: Target | None = None,
    actor: Any = None,
    subject: Any = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    channel: str = "",
    is_refused: bool = False,
) -> AuditEvent:
    """Write one event. Call it on a thread that may use the database.

    `action` is lower-case words joined by dots, at most 64 characters. `target` is the
    row that the act concerns, or its kind and id. `actor` and `subject` are users, or
    `subject` a user's key; without `actor` it is the user of the current request or
    command. Erasing the actor erases its name and address, erasing the subject erases
    `before`, `after`, `reason` and `details`. None of these may contain a secret (give
    `fingerprint(secret)`), a prompt or an answer.
    """
    act = current_act()
    if actor is None:
        actor = act.find_actor()
    identity = act.describe()
    if actor is not None:
        identity["name"] = actor.get_username()
    kind, key = _name_target(target)
    texts = {"before": before, "after": after, "reason": reason, **(details or {})}
    text = AuditText(identity=_encode(identity), details=_encode(_shorten(texts)))
    text.identity_salt, text.details_salt = secrets.token_hex(16), secrets.token_hex(16)
    event = AuditEvent(
        at=_now(),
        action=action,
        channel=channel or act.channel,
        outcome=(AuditEvent.Outcome.REFUSED if is_refused else AuditEvent.Outcome.DONE),
        actor=getattr(actor, "pk", None),
        subject=getattr(subject, "pk", subject),
        target_type=kind,
        target_id=key,
        identity_digest=digest_text(text.identity_salt, text.identity or ""),
        details_digest=digest_text(text.details_salt, text.details or ""),
    )
    with transaction.atomic():
        event.save(force_insert=True)
        text.event = event
        text.save(force_insert=True)
        # The act is done whether or not its event is linked at once.
        transaction.on_commit(link_events, robust=True)
    return event


def _now() -> datetime:
    return timezone.now()


def _name_target(target: Target | None) -> tuple[str, str]:
    if target is None:
        return "", ""
    if isinstance(target, tuple):
        return target[0][:64], str(target[1])[:64]
    return target._meta.label_lower[:64], str(target.pk)[:64]


def _encode(values: Mapping[str, Any]) -> str:
    filled = {name: value for name, value in values.items() if value}
    return json.dumps(filled, sort_keys=True, ensure_ascii=False, default=str)


def _shorten(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, Mapping):
        return {str(name): _shorten(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten(each) for each in value]
    return value
