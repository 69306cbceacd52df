from __future__ import annotations

from typing import Any

from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from conversations.models.turn import Turn
from llm.wire.items import Item as ItemPayload


class Item(models.Model):
    """One Responses item, stored as it is sent."""

    class Origin(models.TextChoices):
        INPUT = "input", _("asked")
        OUTPUT = "output", _("answered")

    turn = models.ForeignKey(Turn, models.CASCADE, related_name="items")
    position = models.PositiveIntegerField()
    origin = models.CharField(max_length=6, choices=Origin.choices)
    type = models.CharField(max_length=50)
    payload = models.JSONField()
    provider_data = models.JSONField(
        null=True, blank=True, help_text=_("A provider's proof, for its issuer only.")
    )
    #: Position of the event that told it done: a follower beyond it has seen it.
    epoch = models.PositiveIntegerField(default=0)
    sequence = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["turn", "position"]
        constraints = [
            models.UniqueConstraint(
                fields=["turn", "position"], name="conversations_item_position_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.payload.get('id', self.pk)}"

    @classmethod
    def of(
        cls,
        turn: Turn,
        position: int,
        payload: ItemPayload,
        *,
        origin: str,
        provider_data: Any = None,
        epoch: int = 0,
        sequence: int = 0,
    ) -> Item:
        return cls(
            turn=turn,
            position=position,
            origin=origin,
            type=payload["type"],
            payload=payload,
            provider_data=provider_data,
            epoch=epoch,
            sequence=sequence,
        )

    @transaction.atomic
    def correct(self, payload: ItemPayload) -> int:
        """Replace what was said, wherever a copy is kept.

        The providers' proofs vouch for what was said before, so those of this turn and
        of all later ones go. Returns how many.
        """
        self.payload = payload
        self.save(update_fields=["payload"])
        if self.type == "function_call_output":
            self.turn.tool_calls.filter(call_id=payload["call_id"]).update(
                output=payload["output"], error=""
            )
        vouched = Item.objects.filter(turn__in=Turn.objects.since(self.turn))
        self.provider_data = None
        proofs = vouched.filter(provider_data__isnull=False)
        return proofs.update(provider_data=None)
