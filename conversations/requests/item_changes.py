"""Changes of stored items: pin a message; edit a summary, take it back, use it again.

REST and the chat pages use the same serializer.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from conversations.engine.loading.context_use import find_room
from conversations.models import Conversation, Item
from conversations.models.turn import increment_rewritten
from conversations.requests.fields import (
    StrictBooleanField,
    StrictSerializer,
    TextField,
)
from conversations.turns.compaction import CHANGED_AT, MAX_EDITED, PINNED, UNDONE
from conversations.turns.history import BYTES_A_TOKEN, estimate_tokens
from llm.wire.items import Item as ItemPayload
from llm.wire.items import is_compaction

MAX_SUMMARY = 100_000  # characters

_NOT_A_MESSAGE = _("Only messages of the user and the assistant can be pinned.")
_NO_SUMMARY = _("Only a summary that Parley made can be changed.")
_TOO_LONG = _(
    "The summary has about {tokens} tokens. With this conversation's model it may have"
    " {bound}, which are about {size} characters; shorten it."
)


class ItemChangeSerializer(StrictSerializer):
    pinned = StrictBooleanField(
        required=False,
        help_text="Of a message: it stays when earlier messages are summarised.",
    )
    summary = TextField(
        required=False,
        max_length=MAX_SUMMARY,
        help_text="Of a `compaction` item: the text that the model reads.",
    )
    undone = StrictBooleanField(
        required=False,
        help_text="Of a `compaction` item: `true` sends the messages themselves again.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        assert self.instance is not None, "items are changed, not created"
        item: ItemPayload = self.instance.payload
        if "pinned" in attrs and not _is_spoken(item):
            raise serializers.ValidationError({"pinned": _NOT_A_MESSAGE})
        for name in ("summary", "undone"):
            if name in attrs and not is_compaction(item):
                raise serializers.ValidationError({name: _NO_SUMMARY})
        if "summary" in attrs:
            _check_fits(attrs["summary"], self.instance.turn.conversation)
        return attrs

    @transaction.atomic
    def update(self, instance: Item, validated_data: dict[str, Any]) -> Item:
        row = Item.objects.select_for_update().get(pk=instance.pk)
        changed = _change(row.payload, validated_data)
        if changed != row.payload:
            row.payload = changed
            row.save(update_fields=["payload"])
            increment_rewritten(instance.turn.conversation_id)
        return row

    def to_representation(self, instance: Item) -> ItemPayload:
        payload: ItemPayload = instance.payload
        return payload


def find_item(conversation: Conversation, item_id: str) -> Item | None:
    """The newest item with this id; an id that a client chose may repeat."""
    found = Item.objects.with_ids([item_id]).filter(turn__conversation=conversation)
    return found.select_related("turn").order_by("-pk").first()


def _check_fits(summary: str, conversation: Conversation) -> None:
    """Refuse a summary beside which the model could read little else."""
    if not (room := find_room(conversation)):
        return
    bound = max(1, int(room * MAX_EDITED))
    if (tokens := estimate_tokens(summary, ())) > bound:
        problem = _TOO_LONG.format(
            tokens=tokens, bound=bound, size=bound * BYTES_A_TOKEN
        )
        raise serializers.ValidationError({"summary": problem})


def _is_spoken(item: ItemPayload) -> bool:
    return item["type"] == "message" and item.get("role") in ("user", "assistant")


def _change(item: ItemPayload, changes: dict[str, Any]) -> ItemPayload:
    new = dict(item)
    for name, key in (("pinned", PINNED), ("undone", UNDONE)):
        if changes.get(name) is True:
            new[key] = True
        elif name in changes:
            new.pop(key, None)
    if "summary" in changes:
        new["summary"] = [{"type": "summary_text", "text": changes["summary"]}]
    if new != item and is_compaction(item):
        new[CHANGED_AT] = timezone.now().isoformat()
    return new
