"""What has been used of the limits, and the blocks that processes have leased."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models

from conversations.models.access_token import AccessToken
from llm.models import LanguageModel


def _count() -> Any:
    return models.BigIntegerField(default=0)


class LimitBalance(models.Model):
    """The use of one user, group or token in one period.

    `used_*` is settled. `leased_*` is the sum of the processes' leases: each may use so
    much without asking the database.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="+"
    )
    group = models.ForeignKey(Group, models.CASCADE, null=True, related_name="+")
    token = models.ForeignKey(AccessToken, models.CASCADE, null=True, related_name="+")
    model = models.ForeignKey(
        LanguageModel, models.CASCADE, null=True, related_name="+"
    )  # None: of all models together
    period = models.CharField(max_length=10)  # "total", "2026-11" or "2026-11-21"
    used_requests = _count()
    used_tokens = _count()
    used_cost = _count()  # billionths of a USD
    used_size = _count()  # bytes
    leased_requests = _count()
    leased_tokens = _count()
    leased_cost = _count()
    leased_size = _count()

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=[owner, *of_model, "period"],
                condition=models.Q(**{f"{owner}__isnull": False})
                & models.Q(model__isnull=not of_model),
                name=f"conversations_balance_{owner}{'_model' * bool(of_model)}",
            )
            for of_model in ([], ["model"])
            for owner in ("user", "group", "token")
        ]

    def __str__(self) -> str:
        owner = self.user_id or self.group_id or self.token_id
        return f"{owner} {self.period}"


class LimitWarning(models.Model):
    """So much of a limit was used that staff want a warning, or all of it. Stored once
    for each amount, so again after the limit was changed."""

    balance = models.ForeignKey(LimitBalance, models.CASCADE, related_name="warnings")
    measure = models.CharField(max_length=10)  # a field of `LimitedAmounts`
    amount = models.BigIntegerField()  # the limit; of cost billionths of a USD
    percent = models.PositiveSmallIntegerField()  # of the limit; 100: it is reached
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        ordering = ["-pk"]
        default_permissions = ()  # seen with the limits
        constraints = [
            models.UniqueConstraint(
                fields=["balance", "measure", "amount", "percent"],
                name="conversations_limit_warned_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.balance} {self.measure} {self.percent} %"


class LimitLease(models.Model):
    """A block of a balance that one process may use until `expires_at`.

    If the process dies, the whole block counts as used: what it had admitted and not
    yet settled is unknown.
    """

    balance = models.ForeignKey(LimitBalance, models.CASCADE, related_name="leases")
    process = models.CharField(max_length=32)
    requests = _count()
    tokens = _count()
    cost = _count()
    size = _count()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["balance", "process"], name="conversations_limit_lease_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.process} {self.balance_id}"
