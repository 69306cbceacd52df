"""Record an event of the audit log.

    record_event("budget.raise", target=token, before={"budget": 5},
                 after={"budget": 9}, reason="Release week")

The event is written in the transaction of the act, if there is one, and linked to the
chain after its commit. Docs: docs/audit.md.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from django.db import models, transaction
from django.utils import timezone

from conversations.audit.act import Act, current_act
from conversations.audit.chain import digest_text, link_events
from conversations.audit.models import AuditEvent, AuditText

MAX_TEXT = 4000  # characters of one value
BATCH = 1000  # events that one statement inserts

Target: TypeAlias = models.Model | tuple[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event that is not written yet; `record_event` says what the fields are."""

    action: str
    target: Target | None = None
    subject: Any = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = ""
    details: Mapping[str, Any] | None = None
    channel: str = ""
    is_refused: bool = False


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
    new = NewEvent(
        action=action,
        target=target,
        subject=subject,
        before=before,
        after=after,
        reason=reason,
        details=details,
        channel=channel,
        is_refused=is_refused,
    )
    [event], [text] = _make_rows([new], actor)
    with transaction.atomic():
        event.save(force_insert=True)
        text.event = event
        text.save(force_insert=True)
        # The act is done whether or not its event is linked at once.
        transaction.on_commit(link_events, robust=True)
    return event


def record_events(new: Iterable[NewEvent]) -> None:
    """Write the events of one act on many rows, by few statements."""
    events, texts = _make_rows(new, None)
    if not events:
        return
    with transaction.atomic():
        for event, text in zip(
            AuditEvent.objects.bulk_create(events, batch_size=BATCH),
            texts,
            strict=True,
        ):
            text.event = event
        AuditText.objects.bulk_create(texts, batch_size=BATCH)
        transaction.on_commit(link_events, robust=True)


def _make_rows(
    new: Iterable[NewEvent], actor: Any
) -> tuple[list[AuditEvent], list[AuditText]]:
    act = current_act()
    if actor is None:
        actor = act.find_actor()
    identity = act.describe()
    if actor is not None:
        identity["name"] = actor.get_username()
    who = _encode(identity)
    events, texts = [], []
    for each in new:
        text = _make_text(each, who)
        texts.append(text)
        events.append(_make_event(each, text, act, getattr(actor, "pk", None)))
    return events, texts


def _make_text(new: NewEvent, identity: str) -> AuditText:
    texts = {
        "before": new.before,
        "after": new.after,
        "reason": new.reason,
        **(new.details or {}),
    }
    return AuditText(
        identity=identity,
        details=_encode(_shorten(texts)),
        identity_salt=secrets.token_hex(16),
        details_salt=secrets.token_hex(16),
    )


def _make_event(
    new: NewEvent, text: AuditText, act: Act, actor_key: int | None
) -> AuditEvent:
    kind, key = _name_target(new.target)
    outcome = AuditEvent.Outcome
    return AuditEvent(
        at=_now(),
        action=new.action,
        channel=new.channel or act.channel,
        outcome=outcome.REFUSED if new.is_refused else outcome.DONE,
        actor=actor_key,
        subject=getattr(new.subject, "pk", new.subject),
        target_type=kind,
        target_id=key,
        identity_digest=digest_text(text.identity_salt or "", text.identity or ""),
        details_digest=digest_text(text.details_salt or "", text.details or ""),
    )


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
