"""Whether any endpoint receives events at all, without a query.

Every turn's end reads it. A process learns of its own changes at once, and of those of
others when the engine refreshes it, every two seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save

from conversations.models.user_settings import UserSettings
from conversations.models.webhooks.endpoint import WebhookEndpoint


@dataclass(frozen=True, slots=True)
class _Interest:
    webhooks: bool  # any endpoint is switched on
    mails: bool  # any user wants an e-mail after long turns


class _Known:
    """What was read last; a change while it was read makes it stale."""

    def __init__(self) -> None:
        self.interest: _Interest | None = None
        self._changes = 0
        self._lock = Lock()

    def forget(self) -> None:
        with self._lock:
            self.interest = None
            self._changes += 1

    def refresh(self) -> _Interest:
        before = self._changes
        found = _read()
        with self._lock:
            if self._changes == before:
                self.interest = found
        return found


_known = _Known()


def _read() -> _Interest:
    wanting = UserSettings.objects.filter(email_after_minutes__isnull=False)
    return _Interest(
        webhooks=WebhookEndpoint.objects.filter(is_enabled=True).exists(),
        mails=wanting.exists(),
    )


def refresh() -> None:
    _known.refresh()


def wants_webhooks() -> bool:
    return (_known.interest or _known.refresh()).webhooks


def wants_mails() -> bool:
    return (_known.interest or _known.refresh()).mails


def is_any() -> bool:
    return wants_webhooks() or wants_mails()


def _forget_on_change(sender: Any, **kwargs: Any) -> None:
    _known.forget()
    # A look-up before the commit would store what was.
    transaction.on_commit(_known.forget)


for _model in (WebhookEndpoint, UserSettings):
    post_save.connect(_forget_on_change, sender=_model)
    post_delete.connect(_forget_on_change, sender=_model)
