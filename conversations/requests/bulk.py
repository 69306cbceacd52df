"""Changes of many conversations at once, which REST and the pages share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Count
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from conversations.audit.record import record_event
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    Folder,
    Tag,
    ToolCall,
    Turn,
)
from conversations.models.folder import MAX_TAGS
from conversations.models.limits.conversation_limit import limit_of
from conversations.requests.fields import StrictSerializer, TextField

MAX_IDS = 500  # conversations of one change
TAG_LENGTH = 50  # characters
TAGS = 20  # of one conversation
ACTIONS = ("pin", "unpin", "archive", "unarchive", "move", "tag", "untag", "delete")


@extend_schema_field(OpenApiTypes.INT)
class FolderField(serializers.Field[Any, Any, Any, Any]):
    """A folder of the user, by its id; null for none."""

    default_error_messages = {
        "invalid": "Expected the id of a folder.",
        "unknown": "There is no such folder; create it first.",
    }

    def to_internal_value(self, data: Any) -> Folder:
        text = str(data)
        if isinstance(data, bool) or not (text.isascii() and text.isdecimal()):
            self.fail("invalid")
        rows = Folder.objects.of(self.context["user"])
        if (limit := limit_of(self.context["user"])) is not None:
            rows = rows.filter(pk__in=limit.folders)
        found: Folder | None = rows.filter(pk=int(text[:18])).first()
        if found is None:
            self.fail("unknown")
        return found

    def to_representation(self, value: Folder) -> int:
        return value.pk


class TagsField(serializers.ListField):
    """Names of tags; those that the user does not have yet are created."""

    child = TextField(max_length=TAG_LENGTH)

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=TAGS, **options)

    def to_representation(self, data: Any) -> list[str]:
        return [tag.name for tag in data.all()]


class BulkSerializer(StrictSerializer):
    ids = serializers.ListField(
        child=TextField(max_length=64), min_length=1, max_length=MAX_IDS
    )
    action = serializers.ChoiceField(choices=ACTIONS)
    folder = FolderField(
        required=False, allow_null=True, help_text="For `move`; null for no folder."
    )
    tag = TextField(
        required=False, max_length=TAG_LENGTH, help_text="For `tag` and `untag`."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        action = attrs["action"]
        if action == "move" and "folder" not in attrs:
            raise serializers.ValidationError({"folder": "Choose a folder, or null."})
        if action in ("tag", "untag") and not attrs.get("tag"):
            raise serializers.ValidationError({"tag": _("Write a tag.")})
        return attrs

    @transaction.atomic
    def apply(self) -> list[str]:
        """Change the conversations of the user and return their ids."""
        user, wanted = self.context["user"], self.validated_data
        rows = Conversation.objects.of(user).kept()
        found = list(rows.filter(pk__in=wanted["ids"]).values_list("pk", flat=True))
        _apply(Conversation.objects.filter(pk__in=found), user, wanted)
        return found


class BulkResultSerializer(serializers.Serializer[Any]):
    changed = serializers.ListField(child=serializers.CharField())
    missing = serializers.ListField(
        child=serializers.CharField(),
        help_text="Ids that the user has no conversation of.",
    )


def _apply(rows: ConversationQuerySet, user: Any, wanted: Mapping[str, Any]) -> None:
    now = timezone.now()
    match wanted["action"]:
        case "pin":
            rows.filter(pinned_at=None).update(pinned_at=now)
        case "unpin":
            rows.update(pinned_at=None)
        case "archive":
            rows.filter(archived_at=None).update(archived_at=now, pinned_at=None)
        case "unarchive":
            rows.update(archived_at=None)
        case "move":
            rows.update(folder=wanted["folder"])
        case "tag":
            _add_tag(rows, user, wanted["tag"])
        case "untag":
            _tagging().filter(
                conversation__in=rows, tag__owner=user, tag__name=wanted["tag"]
            ).delete()
        case "delete":
            _delete_softly(rows, user)


def _add_tag(rows: ConversationQuerySet, user: Any, name: str) -> None:
    [tag] = find_tags(user, [name])
    others = rows.exclude(tags=tag).annotate(tag_count=Count("tags"))
    if others.filter(tag_count__gte=TAGS).exists():
        problem = _("A conversation can have %(count)s tags.") % {"count": TAGS}
        raise serializers.ValidationError({"tag": problem})
    tag.conversations.add(*rows)


def _tagging() -> Any:
    return Conversation.tags.through.objects


def _delete_softly(rows: ConversationQuerySet, user: Any) -> None:
    """As `Conversation.delete_softly`, for many."""
    Turn.objects.not_finished().filter(conversation__in=rows).update(
        cancel_requested=True
    )
    running = ToolCall.objects.in_background().filter(turn__conversation__in=rows)
    running.update(cancel_requested=True)
    pks = list(rows.values_list("pk", flat=True))
    rows.update(deleted_at=timezone.now())
    if pks:
        details = {"conversations": pks}
        record_event("content.delete", subject=user, details=details)


def find_tags(user: Any, names: list[str]) -> list[Tag]:
    """The user's tags with these names; new ones are created.

    Raises ValidationError where the user would have too many, and for a name with a
    comma, which separates tags where people write them.
    """
    wanted = list(dict.fromkeys(" ".join(name.split()) for name in names))
    wanted = [name[:TAG_LENGTH] for name in wanted if name]
    theirs = Tag.objects.of(user)
    present = {tag.name: tag for tag in theirs.filter(name__in=wanted)}
    missing = [name for name in wanted if name not in present]
    if any("," in name for name in missing):
        problem = _("A tag cannot contain a comma.")
        raise serializers.ValidationError({"tags": problem})
    if missing and theirs.count() + len(missing) > MAX_TAGS:
        words = _("You can have %(count)s tags; delete one that you do not need.")
        problem = words % {"count": MAX_TAGS}
        raise serializers.ValidationError({"tags": problem})
    for name in missing:
        present[name] = Tag.objects.get_or_create(owner=user, name=name)[0]
    return [present[name] for name in wanted]
