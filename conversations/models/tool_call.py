from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.turn import Turn


class ToolCallQuerySet(models.QuerySet["ToolCall"]):
    def of(self, user: Any) -> ToolCallQuerySet:
        """What `user` may see by any door but the admin."""
        return self.filter(
            turn__conversation__owner_id=user.pk,
            turn__conversation__deleted_at=None,
        )

    def of_message(self, root_id: str) -> ToolCallQuerySet:
        """Of all turns that one message has caused."""
        return self.filter(models.Q(turn=root_id) | models.Q(turn__caused_by=root_id))

    def in_background(self) -> ToolCallQuerySet:
        """Calls that the model does not wait for, and that are not over."""
        return self.filter(blocking=False, state=ToolCall.State.EXECUTING)

    def undelivered(self) -> ToolCallQuerySet:
        """Results of such calls that the model has not been told."""
        return self.filter(blocking=False, delivered_in=None).filter(
            state__in=ToolCall.OVER
        )

    def waking(self) -> ToolCallQuerySet:
        """Such results that open a turn, where none is open: less those that can wait
        until a person says something, and those of a message that was halted."""
        goes_on = models.Q(turn__caused_by=None, turn__halted_by="")
        goes_on |= models.Q(turn__caused_by__halted_by="")
        return (
            self.undelivered()
            .exclude(state__in=ToolCall.GIVEN_UP)
            .filter(goes_on, turn__conversation__deleted_at=None)
        )

    def beside_turns(self) -> ToolCallQuerySet:
        """Calls in the background, and results of such calls that wait for a person's
        leave to go on; each with its turn and the turn of its message."""
        halted = models.Q(turn__caused_by=None, turn__halted_by__in=Turn.BOUNDS)
        halted |= models.Q(turn__caused_by__halted_by__in=Turn.BOUNDS)
        results = halted & models.Q(state__in=ToolCall.OVER)
        results &= ~models.Q(state__in=ToolCall.GIVEN_UP)
        found = self.filter(results | models.Q(state=ToolCall.State.EXECUTING))
        return found.filter(blocking=False, delivered_in=None).select_related(
            "turn__caused_by"
        )


class ToolCall(models.Model):
    """What became of one call of a tool of ours.

    A call that the model does not wait for (`blocking` is false) has a life beyond its
    turn: its own epoch and lease, as a turn has, and a result that is delivered once.
    """

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        AWAITING_APPROVAL = "awaiting_approval", _("awaiting approval")
        EXECUTING = "executing", _("executing")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        TIMED_OUT = "timed_out", _("timed out")
        CANCELLED = "cancelled", _("cancelled")
        UNKNOWN = "unknown", _("outcome unknown")
        ABANDONED = "abandoned", _("abandoned, may still run")

    OVER = [
        State.COMPLETED,
        State.FAILED,
        State.TIMED_OUT,
        State.CANCELLED,
        State.UNKNOWN,
        State.ABANDONED,
    ]
    #: By a person, who knows.
    GIVEN_UP = [State.CANCELLED, State.ABANDONED]

    turn = models.ForeignKey(Turn, models.CASCADE, related_name="tool_calls")
    call_id = models.CharField(max_length=64)
    name = models.CharField(max_length=128)
    state = models.CharField(
        max_length=20, choices=State.choices, default=State.PENDING
    )
    blocking = models.BooleanField(default=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    output = models.JSONField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    # Of a call that the model does not wait for:
    epoch = models.PositiveIntegerField(default=0)
    claims = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        help_text=_("Claims since the call was last released in order."),
    )
    lease_until = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    progress = models.CharField(max_length=500, blank=True)
    accepted_at = models.DateTimeField(
        null=True, blank=True, help_text=_("Since when its work goes on elsewhere.")
    )
    token = models.CharField(max_length=500, blank=True, editable=False)
    poll_at = models.DateTimeField(null=True, blank=True)
    poll_after = models.FloatField(null=True, blank=True)
    delivered_in = models.ForeignKey(
        Turn,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="deliveries",
        help_text=_("The turn in which the model was told the result."),
    )
    late_at = models.DateTimeField(
        null=True, blank=True, help_text=_("When a result came that came too late.")
    )

    objects = ToolCallQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["turn", "call_id"], name="conversations_call_once_per_turn"
            )
        ]
        indexes = [
            # Named first, `delivered_in` keeps SQLite from its own index, in which all
            # calls stand that nobody delivers.
            models.Index(
                fields=["delivered_in", "turn"],
                condition=models.Q(blocking=False, delivered_in=None),
                name="conversations_call_untold",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.state}"

    @property
    def seconds(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def running(self) -> float | None:
        """Seconds since it began, while it goes on."""
        if self.state != self.State.EXECUTING or self.started_at is None:
            return None
        return (timezone.now() - self.started_at).total_seconds()
