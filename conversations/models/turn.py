from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.signals import post_delete
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import AccessToken
from llm.db.compiled_queries import execute
from llm.models import LanguageModel
from llm.wire.items import new_id

if TYPE_CHECKING:
    from conversations.models.item import Item


def turn_id() -> str:
    return new_id("resp")


class TurnQuerySet(models.QuerySet["Turn"]):
    def of(self, user: Any) -> TurnQuerySet:
        """Turns that `user` may see everywhere except in the admin."""
        return self.filter(
            conversation__owner_id=user.pk, conversation__deleted_at=None
        )

    def not_finished(self) -> TurnQuerySet:
        return self.filter(status__in=Turn.UNFINISHED)

    def of_message(self, root_id: str) -> TurnQuerySet:
        """All turns that one message has caused, including its own turn."""
        return self.filter(models.Q(pk=root_id) | models.Q(caused_by=root_id))

    def lineage_of(self, turn: Turn) -> list[str]:
        """Ids of `turn` and its ancestors (`parent`), oldest first."""
        same = self.filter(conversation_id=turn.conversation_id)
        parents = dict(same.values_list("pk", "parent_id"))
        line, current = [], turn.pk
        while current in parents:
            line.append(current)
            current = parents.pop(current)
        return line[::-1]

    def since(self, turn: Turn) -> TurnQuerySet:
        """`turn` and all later turns of its conversation."""
        later = models.Q(created_at__gt=turn.created_at) | models.Q(
            created_at=turn.created_at, pk__gte=turn.pk
        )
        return self.filter(later, conversation_id=turn.conversation_id)


class Turn(models.Model):
    """A user message and everything that answers it. Its id is the response's id."""

    class Status(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "in_progress", _("running")
        WAITING = "waiting", _("waiting for a person")
        COMPLETED = "completed", _("completed")
        INCOMPLETE = "incomplete", _("incomplete")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("stopped")

    class HaltedBy(models.TextChoices):
        PERSON = "person", _("stopped by a person")
        MAX_TURNS = "max_turns", _("the message reached its limit of turns")
        MAX_COST = "max_cost", _("the message reached its cost limit")

    #: Limits after which the user is asked whether to continue the message.
    BOUNDS = [HaltedBy.MAX_TURNS, HaltedBy.MAX_COST]

    UNFINISHED = [Status.QUEUED, Status.RUNNING, Status.WAITING]

    id = models.CharField(
        primary_key=True, max_length=64, default=turn_id, editable=False
    )
    conversation = models.ForeignKey(
        "conversations.Conversation", models.CASCADE, related_name="turns"
    )
    parent = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="children"
    )
    caused_by = models.ForeignKey(
        "self",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="caused",
        db_index=False,  # few rows have it; the partial index below suffices
        help_text=_(
            "The turn of the message that caused this turn; empty for a message's own"
            " turn."
        ),
    )
    halted_by = models.CharField(
        max_length=10,
        choices=HaltedBy.choices,
        blank=True,
        default="",
        db_default="",
        help_text=_("Why results of background tools open no further turns."),
    )
    continued_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text=_("Turns and costs count from this time, when a person continued."),
    )
    language_model = models.ForeignKey(
        LanguageModel, models.SET_NULL, null=True, blank=True
    )
    access_token = models.ForeignKey(
        AccessToken,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Whose limits and budget it is asked under."),
    )
    options = models.JSONField(default=dict, blank=True)
    status = models.CharField(
        max_length=12, choices=Status.choices, default=Status.QUEUED
    )
    epoch = models.PositiveIntegerField(
        default=0, help_text=_("How often it was taken up; every write names it.")
    )
    claims = models.PositiveSmallIntegerField(
        default=0, help_text=_("How often it was taken up since it last waited.")
    )
    claims_until_progress = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        help_text=_(
            "Number of claims when the turn last made progress; later claims count"
            " against it."
        ),
    )
    lease_until = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text=_("The turn must end by this time, in any run."),
    )
    seconds_left = models.FloatField(
        null=True,
        blank=True,
        help_text=_("Seconds left, which do not run while a person is asked."),
    )
    cancel_requested = models.BooleanField(default=False)
    partial = models.JSONField(
        null=True, blank=True, help_text=_("What was said and not yet committed.")
    )
    last_sequence = models.PositiveIntegerField(
        null=True, blank=True, help_text=_("Number of the last event.")
    )
    ended_output = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=_("Number of output items when the last model call ended."),
    )
    provider_response = models.JSONField(
        null=True,
        blank=True,
        help_text=_("The response that the provider runs in the background."),
    )
    usage = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    notes = models.JSONField(
        default=list,
        blank=True,
        help_text=_("What happened beside the answer: kind, text and what it is of."),
    )
    incomplete_reason = models.CharField(max_length=40, blank=True)
    inline_bytes = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("Bytes of files inside the items that opened the turn."),
    )
    is_indexed = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=_("Whether the search index holds its current messages."),
    )
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = TurnQuerySet.as_manager()

    #: The items that `open_turn` wrote, on the instance that it returns. No column.
    opened_with: Sequence[Item] = ()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["conversation", "created_at"]),
            models.Index(
                fields=["lease_until"],
                condition=models.Q(status__in=["queued", "in_progress", "waiting"]),
                name="conversations_turn_unfinished",
            ),
            # With it SQLite finds earlier unfinished turns without scanning all turns.
            models.Index(
                fields=["conversation"],
                condition=models.Q(status__in=["queued", "in_progress", "waiting"]),
                name="conversations_turn_in_line",
            ),
            models.Index(
                fields=["conversation"],
                condition=models.Q(halted_by__in=["max_turns", "max_cost"]),
                name="conversations_turn_halted",
            ),
            models.Index(
                fields=["caused_by"],
                condition=models.Q(caused_by__isnull=False),
                name="conversations_turn_caused",
            ),
            models.Index(
                fields=["created_at"],
                condition=models.Q(is_indexed=False),
                name="conversations_turn_unindexed",
            ),
            models.Index(
                fields=["conversation"],
                condition=models.Q(inline_bytes__gt=0),
                name="conversations_turn_inline",
            ),
        ]
        permissions = [
            ("inspect_turn", "Can read other people's turns"),
            ("edit_items", "Can correct or redact items"),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def root_id(self) -> str:
        """Id of the turn of the message that caused this turn."""
        return self.caused_by_id or self.pk

    @property
    def may_read_chats(self) -> bool:
        """Whether tools of this turn may read chats.

        False for gateway requests, unless the request named a conversation and its
        token has the scope `chat`.
        """
        gateway = self.options.get("gateway")
        return gateway is None or gateway.get("chats") is True

    @property
    def is_finished(self) -> bool:
        return self.status not in self.UNFINISHED

    @property
    def seconds(self) -> float | None:
        """Seconds from its start to its end."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


def increment_rewritten(conversation_id: str) -> None:
    """Increment the version that invalidates cached copies of the conversation."""
    execute(_INCREMENT_REWRITTEN, [conversation_id])


_INCREMENT_REWRITTEN = (
    "UPDATE conversations_conversation SET rewritten = rewritten + 1 WHERE id = %s"
)


@receiver(post_delete, sender=Turn)
def _note_deletion(instance: Turn, **signal: Any) -> None:
    increment_rewritten(instance.conversation_id)
