"""Rating an answer, as REST and the pages do it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from conversations.models import Rating, Turn
from conversations.models.rating import MAX_COMMENT
from conversations.requests.fields import StrictSerializer, TextField


class RatingSerializer(StrictSerializer):
    """A rating to store for `turn` and `user`, which are given to `save`."""

    value = serializers.ChoiceField(choices=Rating.Value.choices)
    comment = TextField(
        required=False,
        allow_blank=True,
        max_length=MAX_COMMENT,
        help_text="For staff who may read conversations; left out, it stays.",
    )
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def create(self, validated_data: dict[str, Any]) -> Rating:
        """Write the one rating of this user and turn."""
        turn: Turn = validated_data.pop("turn")
        user = validated_data.pop("user")
        row, _ = Rating.objects.update_or_create(
            turn=turn, user=user, defaults=validated_data
        )
        return row
