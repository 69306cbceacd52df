"""Row of a user's rating of an answer."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from conversations.models.turn import Turn

MAX_COMMENT = 2000  # characters


class RatingQuerySet(models.QuerySet["Rating"]):
    def of(self, user: Any) -> RatingQuerySet:
        return self.filter(user_id=user.pk)


class Rating(models.Model):
    """Whether an answer was good, as one user sees it; one for each user and turn."""

    class Value(models.TextChoices):
        GOOD = "good", _("good")
        BAD = "bad", _("bad")

    turn = models.ForeignKey(
        Turn, models.CASCADE, related_name="ratings", editable=False
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="ratings",
        editable=False,
    )
    value = models.CharField(max_length=4, choices=Value.choices)
    comment = models.TextField(max_length=MAX_COMMENT, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = RatingQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["turn", "user"], name="conversations_rating_once"
            ),
            models.CheckConstraint(
                condition=models.Q(value__in=["good", "bad"]),
                name="conversations_rating_value",
            ),
        ]
        permissions = [("export_ratings", "Can export ratings")]

    def __str__(self) -> str:
        return f"rating {self.pk}"  # its comment must not get into logs
