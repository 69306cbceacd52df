"""Rows of replays: turns that staff run again, aside from the users' conversations."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from conversations.models.turn import Turn
from llm.models import LanguageModel
from tools.models import ToolVersion


class Replay(models.Model):
    """A set of turns that is run again with one thing or another changed."""

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        CANCELLED = "cancelled", _("cancelled")
        BUDGET = "budget", _("ended by its budget")

    UNFINISHED = (State.QUEUED, State.RUNNING)

    name = models.CharField(max_length=200)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    # What is changed
    language_model = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Empty: the model of each turn."),
    )
    instructions = models.TextField(
        blank=True, help_text=_("Empty: those of each turn.")
    )
    tool_version = models.ForeignKey(
        ToolVersion,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Another definition of a tool; its results are recorded ones."),
    )
    # Tools
    is_live = models.BooleanField(
        _("run tools"),
        default=False,
        help_text=_(
            "Otherwise each call gets the result that the turn has stored. Only tools"
            " run that declare that they change nothing and need no approval."
        ),
    )
    live_tools = models.JSONField(
        default=list,
        blank=True,
        help_text=_("Names of further tools to run, whatever they change."),
    )
    budget = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text=_("USD; no further call once it is spent."),
    )
    # Progress
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    cancel_requested = models.BooleanField(default=False)
    lease_until = models.DateTimeField(null=True, editable=False)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        default_permissions = ["add", "view"]
        permissions = [("run_live_tools", "Can run tools in a replay")]
        indexes = [
            models.Index(
                fields=["id"],
                condition=models.Q(state__in=["queued", "running"]),
                name="conversations_replay_todo",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_finished(self) -> bool:
        return self.state not in self.UNFINISHED


class ReplaySet(models.Model):
    """Turns that staff have saved under a name, to run them again and again."""

    name = models.CharField(max_length=200, unique=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    turns = models.ManyToManyField(Turn, related_name="+")

    class Meta:
        ordering = ["name"]
        default_permissions = ["delete"]  # seen and saved with the rights of replays
        verbose_name = _("saved set of turns")
        verbose_name_plural = _("saved sets of turns")

    def __str__(self) -> str:
        return self.name


ERASED = "Erased: its conversation was corrected."


class ReplayedTurnQuerySet(models.QuerySet["ReplayedTurn"]):
    def erase_items(self) -> int:
        """Erase the answers, which may repeat what was corrected."""
        return self.exclude(items=[]).update(items=[], error=ERASED)


class ReplayedTurn(models.Model):
    """A turn of the set, and what came of it. Erased with the turn."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    replay = models.ForeignKey(Replay, models.CASCADE, related_name="turns")
    turn = models.ForeignKey(Turn, models.CASCADE, related_name="+")
    state = models.CharField(
        max_length=10, choices=State.choices, default=State.PENDING
    )
    error = models.CharField(max_length=500, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0, db_default=0)
    items = models.JSONField(default=list)  # of the response
    tools_run = models.JSONField(default=list)  # names, of calls that were not recorded
    #: Whether the first request was the stored one, byte for byte; None if unknown.
    is_same_request = models.BooleanField(null=True)
    model_calls = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(null=True)
    output_tokens = models.PositiveBigIntegerField(null=True)
    cost = models.DecimalField(max_digits=18, decimal_places=12, null=True)
    seconds = models.FloatField(null=True)

    #: `Conversation.corrections` when its turn was read to be run. No column.
    corrections_seen: int | None = None

    objects = ReplayedTurnQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["replay", "turn"], name="conversations_replayed_once"
            )
        ]

    def __str__(self) -> str:
        return self.turn_id

    def describe_state(self) -> Any:
        """In words. A row that is pending when its replay is over never ran."""
        if self.state == self.State.PENDING and self.replay.is_finished:
            return _("not run")
        return self.get_state_display()
