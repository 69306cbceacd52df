from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import AccessToken
from conversations.models.item import Item
from conversations.models.tool_call import ToolCall
from conversations.models.turn import Turn
from conversations.turns.client_outputs import (
    CALL_ID_FIELDS,
    OUTPUT_TYPES,
    ClientCalls,
    call_id_of,
)
from conversations.turns.inline_files import inline_size
from llm.db.compiled_queries import CompiledInsert, CompiledQuery, execute
from llm.models import LanguageModel
from llm.wire.items import Item as ItemPayload
from llm.wire.items import new_id, text_of

TITLE_LENGTH = 80  # characters


def conversation_id() -> str:
    return new_id("conv")


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def of(self, user: Any) -> ConversationQuerySet:
        """Conversations that `user` may see everywhere except in the admin."""
        return self.filter(owner_id=user.pk, deleted_at=None)

    def find(self, user: Any, pk: str) -> Conversation | None:
        """One conversation as in `of`, with its owner, by a prepared query."""
        return _BY_OWNER.first(user.pk, pk)


class Conversation(models.Model):
    id = models.CharField(
        primary_key=True, max_length=64, default=conversation_id, editable=False
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="conversations"
    )
    title = models.CharField(max_length=200, blank=True)
    language_model = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        blank=True,
        help_text=_("Empty means the preset's, or the default model."),
    )
    preset = models.ForeignKey(
        "conversations.Preset",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="conversations",
    )
    instructions = models.TextField(
        blank=True,
        help_text=_("System prompt; empty means the preset's, or the site's own."),
    )
    options = models.JSONField(
        default=dict, blank=True, help_text=_("Options of every turn.")
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(default=timezone.now, db_index=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    rewritten = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("How often what was said was corrected or taken away."),
    )
    indexed_title = models.CharField(
        max_length=200,
        null=True,
        editable=False,
        help_text=_("The title that the search index holds."),
    )

    objects = ConversationQuerySet.as_manager()

    class Meta:
        ordering = ["-updated_at"]
        indexes = [
            models.Index(fields=["owner", "-updated_at"]),
            models.Index(
                fields=["owner"],
                condition=models.Q(indexed_title=None)
                | ~models.Q(title=models.F("indexed_title")),
                name="conversations_title_unindexed",
            ),
        ]

    def __str__(self) -> str:
        return self.title or self.id

    @property
    def usual_model(self) -> LanguageModel | None:
        """The model of turns that name none; None for the site's default model."""
        preset_model = self.preset.language_model if self.preset else None
        return self.language_model or preset_model

    @transaction.atomic
    def open_turn(
        self,
        items: Sequence[ItemPayload],
        *,
        language_model: LanguageModel | None = None,
        options: dict[str, Any] | None = None,
        parent: Turn | None = None,
        access_token: AccessToken | None = None,
        caused_by: str | None = None,
    ) -> Turn:
        """Create the turn that will answer `items`, together with the items.

        The turn follows `parent`, or else the conversation's last turn, and runs after
        all turns that were opened before it. If all items are outputs that were sent
        before, no turn is created and the turn that received them is returned.
        `caused_by`: for items that are no message, the id of the turn of the message
        that caused them.

        Raises CallAnswered and the errors of `conversations.turns.client_outputs`.
        """
        from conversations.engine import enqueue
        from conversations.engine.database.durable_commit import sync_on_commit

        # Turns run in the order of `created_at`. The lock makes the order of creation
        # independent of the clocks of several machines.
        if connection.features.has_select_for_update:
            same = Conversation.objects.filter(pk=self.pk)
            same.select_for_update(no_key=True).values_list("pk").first()
        last = _LAST_TURN.first(self.pk)
        items, answered_turn = _new_items(items, parent or last)
        if answered_turn is not None:
            return answered_turn
        now = timezone.now()
        turn = Turn(
            conversation=self,
            parent=parent or last,
            language_model=language_model or self.language_model,
            options={**self.options, **(options or {})},
            access_token=access_token,
            caused_by_id=caused_by,
            inline_bytes=inline_size(items),
            created_at=max(now, last.created_at + _LATER) if last else now,
        )
        sync_on_commit()
        _write_turn(turn)
        turn.opened_with = [
            Item.of(turn, position, payload, origin=Item.Origin.INPUT)
            for position, payload in enumerate(items)
        ]
        _write_items(*turn.opened_with)
        if not self.title:
            self.title = _title_of(items)
        self.updated_at = now
        execute(_TOUCH, [self.title, now, self.pk])
        enqueue(turn.pk)
        return turn

    def delete_softly(self) -> None:
        """Hide the conversation from its owner; retention erases the rows later."""
        self.deleted_at = timezone.now()
        self.save(update_fields=["deleted_at"])
        self.turns.not_finished().update(cancel_requested=True)
        running = ToolCall.objects.in_background().filter(turn__conversation=self)
        running.update(cancel_requested=True)


_LATER = timedelta(microseconds=1)
_TOUCH = (
    "UPDATE conversations_conversation SET title = %s, updated_at = %s WHERE id = %s"
)
_write_turn, _write_items = CompiledInsert(Turn), CompiledInsert(Item)
_BY_OWNER = CompiledQuery[Conversation](
    lambda user, pk: Conversation.objects.filter(
        owner_id=user, deleted_at=None, pk=pk
    ).select_related("owner"),
    -1,
    "a conversation",
)
_LAST_TURN = CompiledQuery[Turn](
    lambda conversation: (
        Turn.objects.filter(conversation_id=conversation)
        .order_by("-created_at", "-id")
        .only("created_at", "conversation_id", "parent_id")[:1]
    ),
    "a conversation",
)


def _title_of(items: Sequence[ItemPayload]) -> str:
    text = " ".join(" ".join(text_of(item) for item in items).split())
    return text if len(text) <= TITLE_LENGTH else text[: TITLE_LENGTH - 1] + "…"


def _new_items(
    items: Sequence[ItemPayload], parent: Turn | None
) -> tuple[Sequence[ItemPayload], Turn | None]:
    """The items that the turns up to `parent` do not have yet, and None; or, if they
    have all of them, the turn that has the last answer.

    Without outputs among the items no query is made.
    """
    answers = [item for item in items if item["type"] in OUTPUT_TYPES]
    if not answers or parent is None:
        return items, None
    turns = Turn.objects.lineage_of(parent)
    items_by_turn, server_calls = _items_by_turn(turns), _server_calls_by_turn(turns)
    line = ClientCalls()
    for turn in turns:
        line.read(items_by_turn[turn], server_calls[turn])
    new_items = list(line.new_items(items))
    return new_items, None if new_items else _turn_with_answer(turns, answers[-1])


def _items_by_turn(turns: Sequence[str]) -> Mapping[str, list[ItemPayload]]:
    """Calls, answers, and messages without their content; by turn, in order."""
    rows = Item.objects.filter(turn__in=turns)
    calls = rows.filter(type__in=[*OUTPUT_TYPES, *CALL_ID_FIELDS])
    entries = list(calls.values_list("position", "turn", "payload"))
    roles = rows.filter(type="message").values_list("position", "turn", "payload__role")
    entries += [
        (at, turn, {"type": "message", "role": role}) for at, turn, role in roles
    ]
    items_by_turn: dict[str, list[ItemPayload]] = {turn: [] for turn in turns}
    for _at, turn, payload in sorted(entries, key=lambda row: row[0]):
        items_by_turn[turn].append(payload)
    return items_by_turn


def _server_calls_by_turn(turns: Sequence[str]) -> Mapping[str, set[str]]:
    """Ids of the calls that the server runs, by turn."""
    server_calls: dict[str, set[str]] = {turn: set() for turn in turns}
    calls = ToolCall.objects.filter(turn__in=turns)
    for turn, call_id in calls.values_list("turn", "call_id"):
        server_calls[turn].add(call_id)
    return server_calls


def _turn_with_answer(turns: Sequence[str], answer: ItemPayload) -> Turn:
    name = OUTPUT_TYPES[answer["type"]][1]
    same = {"type": answer["type"], f"payload__{name}": call_id_of(answer)}
    rows = Item.objects.filter(turn__in=turns, **same).select_related("turn")
    return max((row.turn for row in rows), key=lambda turn: turns.index(turn.pk))
