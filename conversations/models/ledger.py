"""Models of the spending of access tokens, in billionths of a US dollar.

`conversations.access.budget` reserves and settles.
"""

from __future__ import annotations

from decimal import Decimal

from django.db import models
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import NANOS_PER_DOLLAR, AccessToken
from llm.wire.items import new_id


def dollars(amount: int) -> Decimal:
    return Decimal(amount) / NANOS_PER_DOLLAR


def entry_id() -> str:
    return new_id("led")


class Balance(models.Model):
    """The amounts that a token has spent and reserved in a period."""

    token = models.ForeignKey(AccessToken, models.CASCADE, related_name="balances")
    period = models.CharField(max_length=10)  # "total", "2026-11" or "2026-11-21"
    spent = models.BigIntegerField(default=0, help_text=_("Billionths of a USD."))
    reserved = models.BigIntegerField(default=0, help_text=_("Billionths of a USD."))

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["token", "period"], name="conversations_balance_once"
            ),
            models.CheckConstraint(
                condition=models.Q(spent__gte=0, reserved__gte=0),
                name="conversations_balance_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.period}: {dollars(self.spent)} USD"


class LedgerEntry(models.Model):
    """One request to a provider: reserved, then settled, or charged at its maximum when
    its process has died."""

    class State(models.TextChoices):
        RESERVED = "reserved", _("reserved")
        SETTLED = "settled", _("settled")
        CHARGED = "charged", _("charged at its maximum")
        RELEASED = "released", _("released")  # by earlier versions

    #: States of entries whose calls may still end, and are settled then.
    LATE = (State.CHARGED, State.RELEASED)

    id = models.CharField(
        primary_key=True, max_length=64, default=entry_id, editable=False
    )
    balance = models.ForeignKey(Balance, models.CASCADE, related_name="entries")
    state = models.CharField(
        max_length=8, choices=State.choices, default=State.RESERVED
    )
    amount = models.BigIntegerField(help_text=_("Reserved, in billionths of a USD."))
    cost = models.BigIntegerField(
        null=True, help_text=_("Actual cost, in billionths of a USD.")
    )
    deadline = models.DateTimeField(
        help_text=_("After this time the reservation is charged.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()
        indexes = [
            models.Index(
                fields=["deadline"],
                condition=models.Q(state="reserved"),
                name="conversations_ledger_open",
            )
        ]

    def __str__(self) -> str:
        return self.id
