"""Row of an Open Responses item of a turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.apps import apps
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from conversations.input.client_outputs import CALL_ID_FIELDS, OUTPUT_TYPES
from conversations.models.staff.replay import ReplayedTurn
from conversations.models.turn import Turn
from llm.models import ModelCall
from llm.wire.items import Item as ItemPayload
from llm.wire.response_builder import arguments_of

#: Key of a message by which Parley asks the model to go on; pages show no bubble.
CONTINUES = "parley:continues"
_INDEXED_LENGTH = 80  # characters of an id; a client's id may be too long for an index


class SaidId(models.Func):
    """SQL function: the first characters of the id in an item's payload.

    A look-up of `payload__id` passes the path as a parameter, so it can use no index.
    """

    template = f"SUBSTR(JSON_EXTRACT(%(expressions)s, '$.id'), 1, {_INDEXED_LENGTH})"
    output_field = models.TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **options: Any) -> Any:
        template = f"SUBSTR(%(expressions)s ->> 'id', 1, {_INDEXED_LENGTH})"
        return self.as_sql(compiler, connection, template=template, **options)


class ItemQuerySet(models.QuerySet["Item"]):
    def with_ids(self, ids: Collection[str]) -> ItemQuerySet:
        """Items with these ids, by the index. Ids that clients chose may repeat."""
        beginnings = [id[:_INDEXED_LENGTH] for id in ids]
        found = self.alias(said_id=SaidId("payload")).filter(said_id__in=beginnings)
        return found.filter(payload__id__in=ids)

    def read_calls_and_roles(
        self, turns: Sequence[str]
    ) -> Mapping[str, list[ItemPayload]]:
        """Calls, their outputs, and messages without their content; by turn, in
        order."""
        rows = self.filter(turn__in=turns)
        calls = rows.filter(type__in=[*OUTPUT_TYPES, *CALL_ID_FIELDS])
        entries = list(calls.values_list("position", "turn", "payload"))
        messages = rows.filter(type="message")
        roles = messages.values_list("position", "turn", "payload__role")
        entries += [
            (at, turn, {"type": "message", "role": role}) for at, turn, role in roles
        ]
        by_turn: dict[str, list[ItemPayload]] = {turn: [] for turn in turns}
        for _at, turn, payload in sorted(entries, key=lambda row: row[0]):
            by_turn[turn].append(payload)
        return by_turn


class Item(models.Model):
    """An Open Responses item; its payload is stored as it is sent to clients."""

    class Origin(models.TextChoices):
        INPUT = "input", _("input")
        OUTPUT = "output", _("output")

    turn = models.ForeignKey(Turn, models.CASCADE, related_name="items")
    position = models.PositiveIntegerField()
    origin = models.CharField(max_length=6, choices=Origin.choices)
    type = models.CharField(max_length=50)
    payload = models.JSONField()
    provider_data = models.JSONField(
        null=True,
        blank=True,
        help_text=_(
            "Signature or encrypted reasoning of the provider; sent back only to its"
            " issuer."
        ),
    )
    #: Position of its `done` event: a subscriber beyond it has received the item.
    epoch = models.PositiveIntegerField(default=0)
    sequence = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ItemQuerySet.as_manager()

    class Meta:
        ordering = ["turn", "position"]
        indexes = [models.Index(SaidId("payload"), name="conversations_item_said_id")]
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
        """Replace the payload and its copies in other rows.

        What is stored for staff of requests, responses and replays may have the old
        text and is erased. The providers' proofs sign the conversation before the
        correction, so the proofs of this turn and of all later turns are deleted.
        Returns their number.
        """
        self.payload = payload
        self.save(update_fields=["payload"])
        if self.type == "function_call_output":
            self._replace_output(payload["output"])
        elif self.type == "function_call":
            self._replace_arguments()
        self.provider_data = None
        return self._erase_old_text()

    @transaction.atomic
    def erase(self) -> None:
        """Delete the item and its copies in other rows, as a correction does."""
        if self.type == "function_call_output":
            self._replace_output(None)
        elif self.type == "function_call":
            self.payload = {**self.payload, "arguments": ""}
            self._replace_arguments()
        self._erase_old_text()
        self.delete()

    def _replace_output(self, output: Any) -> None:
        calls = self.turn.tool_calls.filter(call_id=self.payload["call_id"])
        calls.update(output=output, error="")

    def _replace_arguments(self) -> None:
        """Replace them in the questions about the call too. Answers are erased, because
        they may repeat the old arguments."""
        try:
            arguments = arguments_of(self.payload)
        except ValueError:
            arguments = {}
        calls = self.turn.tool_calls.filter(call_id=self.payload["call_id"])
        model = apps.get_model("conversations", "Question")
        questions = model.objects.filter(tool_call__in=calls)
        questions.filter(arguments__isnull=False).update(arguments=arguments)
        questions.filter(answer__isnull=False).update(answer={})
        questions.update(message="", note="")

    def _count_correction(self) -> None:
        """So that other processes read the conversation anew, and what is running with
        the old text stores none of it."""
        model = apps.get_model("conversations", "Conversation")
        model.objects.filter(pk=self.turn.conversation_id).update(
            rewritten=models.F("rewritten") + 1,
            corrections=models.F("corrections") + 1,
        )

    def _erase_old_text(self) -> int:
        """Returns the number of erased proofs."""
        self._count_correction()
        Turn.objects.filter(pk=self.turn_id).update(is_indexed=False)
        turns = Turn.objects.filter(conversation=self.turn.conversation_id).values("pk")
        ModelCall.objects.erase_contents(turns)
        ReplayedTurn.objects.filter(turn__in=turns).erase_items()
        later_items = Item.objects.filter(turn__in=Turn.objects.since(self.turn))
        proofs = later_items.filter(provider_data__isnull=False)
        return proofs.update(provider_data=None)
