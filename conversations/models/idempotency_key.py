"""Row of an idempotency key: a repeated request gets the first one's turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.utils.translation import gettext_lazy as _

from conversations.models.turn import Turn

IDEMPOTENCY_DAYS = 7  # that a key is remembered


class KeyReused(Exception):
    """This Idempotency-Key belongs to another request; choose a new one."""


class MessageRemoved(Exception):
    """What the first request opened was deleted, or removed from the queue."""


class IdempotencyKeyQuerySet(models.QuerySet["IdempotencyKey"]):
    def get_or_open(
        self,
        user: Any,
        key: str,
        fingerprint: str,
        open_turn: Callable[[], Turn],
        admit: Callable[[], None] | None = None,
    ) -> tuple[Turn, bool]:
        """The turn of the request with this key, and whether this call opened it.

        `admit` counts the turn. It is called once the key is stored, as of two requests
        at once with one key only the first gets there.

        Raises KeyReused if `key` was used for a request with another `fingerprint`,
        MessageRemoved if the turn was deleted or removed from the queue.
        """
        try:
            with transaction.atomic():
                if known := self.find_turn(user, key, fingerprint):
                    return known, False
                turn = open_turn()
                self.create(user=user, key=key, fingerprint=fingerprint, turn=turn)
                if admit is not None:
                    admit()
        except IntegrityError:
            # A concurrent request with the same key was first, or `open_turn` failed.
            if known := self.find_turn(user, key, fingerprint):
                return known, False
            raise
        return turn, True

    def find_turn(self, user: Any, key: str, fingerprint: str) -> Turn | None:
        rows = self.filter(user=user, key=key)
        known = rows.select_related("turn__conversation").first()
        if known is None:
            return None
        if known.fingerprint != fingerprint:
            raise KeyReused
        if known.turn is None or _is_deleted(known.turn):
            raise MessageRemoved
        return known.turn


def _is_deleted(turn: Turn) -> bool:
    return bool(turn.deleted_at or turn.conversation.deleted_at)


class IdempotencyKey(models.Model):
    """A client's key for a request, so that sending it again opens no second turn."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    turn = models.ForeignKey(
        Turn,
        models.CASCADE,
        null=True,
        blank=True,
        help_text=_("Empty after its message was removed from the queue."),
    )
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = IdempotencyKeyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "key"], name="conversations_idempotency_key_once"
            )
        ]

    def __str__(self) -> str:
        return self.key
