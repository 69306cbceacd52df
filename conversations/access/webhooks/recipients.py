"""Whether any endpoint receives events at all, without a query.

Every turn's end reads it. A process learns of its own changes at once, and of those of
others when the engine refreshes it, every two seconds.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save

from conversations.models.user_settings import UserSettings
from conversations.models.webhooks.endpoint import WebhookEndpoint


class _Interest:
    """Plain attributes; None: not known."""

    webhooks: bool | None = None  # any endpoint is switched on
    mails: bool | None = None  # any user wants an e-mail after long turns


_interest = _Interest()


def refresh() -> None:
    _interest.webhooks = WebhookEndpoint.objects.filter(is_enabled=True).exists()
    wanting = UserSettings.objects.filter(email_after_minutes__isnull=False)
    _interest.mails = wanting.exists()


def wants_webhooks() -> bool:
    if _interest.webhooks is None:
        refresh()
    return bool(_interest.webhooks)


def wants_mails() -> bool:
    if _interest.mails is None:
        refresh()
    return bool(_interest.mails)


def is_any() -> bool:
    return wants_webhooks() or wants_mails()


def _forget() -> None:
    _interest.webhooks = _interest.mails = None


def _forget_on_change(sender: Any, **kwargs: Any) -> None:
    _forget()
    # A look-up before the commit would store what was.
    transaction.on_commit(_forget)


for _model in (WebhookEndpoint, UserSettings):
    post_save.connect(_forget_on_change, sender=_model)
    post_delete.connect(_forget_on_change, sender=_model)
