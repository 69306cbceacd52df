"""Row of a tool call: state, output and, in the background, its claim; and which items
of a client answer calls that have no output yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.input.client_outputs import (
    OUTPUT_TYPES,
    ClientCalls,
    call_id_of,
)
from conversations.models.access_token import AccessToken
from conversations.models.item import Item
from conversations.models.turn import Turn
from llm.wire.items import Item as ItemPayload


class ToolCallQuerySet(models.QuerySet["ToolCall"]):
    def of(self, user: Any) -> ToolCallQuerySet:
        """Calls that `user` may see everywhere except in the admin."""
        return self.filter(
            turn__conversation__owner_id=user.pk,
            turn__conversation__deleted_at=None,
            turn__deleted_at=None,
        )

    def of_message(self, root_id: str) -> ToolCallQuerySet:
        """Calls of all turns that one message has caused."""
        return self.filter(models.Q(turn=root_id) | models.Q(turn__caused_by=root_id))

    def read_ids(self, turns: Sequence[str]) -> Mapping[str, set[str]]:
        """Ids of the calls that the server runs, by turn."""
        by_turn: dict[str, set[str]] = {turn: set() for turn in turns}
        calls = self.filter(turn__in=turns)
        for turn, call_id in calls.values_list("turn", "call_id"):
            by_turn[turn].add(call_id)
        return by_turn

    def in_background(self) -> ToolCallQuerySet:
        """Running calls that the model does not wait for."""
        return self.filter(blocking=False, state=ToolCall.State.EXECUTING)

    def writable_by(self, user: Any) -> ToolCallQuerySet:
        """Calls in conversations in which `user` may write."""
        turns = Turn.objects.writable_by(user)
        return self.filter(turn__in=turns.values("pk"))

    def awaiting_delivery(self) -> ToolCallQuerySet:
        """Finished background calls whose result no turn has delivered to the model."""
        return self.filter(blocking=False, delivered_in=None).filter(
            state__in=ToolCall.FINISHED
        )

    def opening_turns(self) -> ToolCallQuerySet:
        """Undelivered results that open a turn where no unfinished turn can take them.

        Excluded are calls of halted messages and calls that a user ended: their result
        can wait for the next message.
        """
        goes_on = models.Q(turn__caused_by=None, turn__halted_by="")
        goes_on |= models.Q(turn__caused_by__halted_by="")
        return (
            self.awaiting_delivery()
            .exclude(state__in=ToolCall.ENDED_BY_PERSON)
            .filter(goes_on, turn__conversation__deleted_at=None, turn__deleted_at=None)
        )

    def background_or_halted(self) -> ToolCallQuerySet:
        """Running background calls, and undelivered results of halted messages, which
        wait until a user continues; each with its turn and its message's turn."""
        halted = models.Q(turn__caused_by=None, turn__halted_by__in=Turn.BOUNDS)
        halted |= models.Q(turn__caused_by__halted_by__in=Turn.BOUNDS)
        results = halted & models.Q(state__in=ToolCall.FINISHED)
        results &= ~models.Q(state__in=ToolCall.ENDED_BY_PERSON)
        found = self.filter(results | models.Q(state=ToolCall.State.EXECUTING))
        found = found.filter(blocking=False, delivered_in=None, turn__deleted_at=None)
        return found.select_related("turn__caused_by")


class ToolCall(models.Model):
    """The state and result of one call of a tool that the server runs.

    A background call (`blocking` is false) can outlive its turn: it has its own epoch
    and lease, as a turn has, and its result is delivered once.
    """

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        AWAITING_APPROVAL = "awaiting_approval", _("awaiting approval")
        AWAITING_SIGN_IN = "awaiting_sign_in", _("waiting for a sign-in")
        EXECUTING = "executing", _("executing")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        TIMED_OUT = "timed_out", _("timed out")
        CANCELLED = "cancelled", _("cancelled")
        UNKNOWN = "unknown", _("outcome unknown")
        ABANDONED = "abandoned", _("abandoned, may still run")

    FINISHED = [
        State.COMPLETED,
        State.FAILED,
        State.TIMED_OUT,
        State.CANCELLED,
        State.UNKNOWN,
        State.ABANDONED,
    ]
    #: Its turn is suspended until a person decides.
    AWAITING_PERSON = [State.AWAITING_APPROVAL, State.AWAITING_SIGN_IN]
    #: Ended by a user, who therefore needs no message about it.
    ENDED_BY_PERSON = [State.CANCELLED, State.ABANDONED]

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

    # Fields of background calls:
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
        null=True,
        blank=True,
        help_text=_("Time since which another server does the work of this call."),
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
        help_text=_("The turn in which the model received the result."),
    )
    late_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text=_("Time at which a late result arrived, which was not used."),
    )

    is_counted = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=_("Statistics have counted it, after it had ended."),
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
            # `delivered_in` comes first so that SQLite prefers this index to the one of
            # the foreign key, which contains every call with `delivered_in=None`.
            models.Index(
                fields=["delivered_in", "turn"],
                condition=models.Q(blocking=False, delivered_in=None),
                name="conversations_call_untold",
            ),
            models.Index(
                fields=["id"],
                condition=models.Q(is_counted=False),
                name="conversations_call_uncounted",
            ),
            # For the admin's list, its search and its filters:
            models.Index(fields=["call_id"], name="conversations_call_id"),
            models.Index(fields=["created_at"], name="conversations_call_created"),
            models.Index(fields=["name", "id"], name="conversations_call_name"),
            models.Index(fields=["state", "id"], name="conversations_call_state"),
            models.Index(
                fields=["id"],
                condition=models.Q(blocking=False),
                name="conversations_call_unawaited",
            ),
            # In the list's order: an index of `late_at` alone would be left for the one
            # of `created_at`, along which all calls are read.
            models.Index(
                fields=["created_at", "id"],
                condition=models.Q(late_at__isnull=False),
                name="conversations_call_late",
            ),
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
        """Seconds since the call began, while it runs."""
        if self.state != self.State.EXECUTING or self.started_at is None:
            return None
        return (timezone.now() - self.started_at).total_seconds()


def stop_turns_of_token(sender: Any, instance: AccessToken, **_: Any) -> None:
    """A receiver of `pre_delete`: without the token its turns, and those that results
    of its background tools open, would run as its user's own, with no limit."""
    stop_turns(Turn.objects.filter(access_token=instance))


def stop_turns_of_revoked_token(
    sender: Any, instance: AccessToken, update_fields: Any, **_: Any
) -> None:
    """A receiver of `post_save`."""
    is_written = update_fields is None or "revoked_at" in update_fields
    if is_written and instance.revoked_at is not None:
        stop_turns(Turn.objects.filter(access_token=instance))


def stop_turns(turns: models.QuerySet[Turn]) -> None:
    """Stop these turns and their background calls, and open no more turns for results
    of the messages that still go on."""
    calls = ToolCall.objects.filter(turn__in=turns.values("pk"))
    undelivered = calls.filter(blocking=False, delivered_in=None).values("turn")
    unfinished = models.Q(status__in=Turn.UNFINISHED)
    going_on = turns.filter(unfinished | models.Q(pk__in=undelivered))
    roots = {cause or pk for pk, cause in going_on.values_list("pk", "caused_by")}
    Turn.objects.filter(pk__in=roots).update(halted_by=Turn.HaltedBy.PERSON)
    turns.filter(unfinished).update(cancel_requested=True)
    calls.in_background().update(cancel_requested=True)


def find_new_items(
    items: Sequence[ItemPayload], parent: Turn
) -> tuple[Sequence[ItemPayload], Turn | None]:
    """The items that the turns up to `parent` do not have yet, and None; or, if they
    have all of them, the turn that has the last of the outputs among them."""
    answers = [item for item in items if item["type"] in OUTPUT_TYPES]
    turns = Turn.objects.lineage_of(parent)
    items_by_turn = Item.objects.read_calls_and_roles(turns)
    server_calls = ToolCall.objects.read_ids(turns)
    line = ClientCalls()
    for turn in turns:
        line.read(items_by_turn[turn], server_calls[turn])
    new_items = list(line.new_items(items))
    return new_items, None if new_items else _turn_with_answer(turns, answers[-1])


def _turn_with_answer(turns: Sequence[str], answer: ItemPayload) -> Turn:
    name = OUTPUT_TYPES[answer["type"]][1]
    same = {"type": answer["type"], f"payload__{name}": call_id_of(answer)}
    rows = Item.objects.filter(turn__in=turns, **same).select_related("turn")
    return max((row.turn for row in rows), key=lambda turn: turns.index(turn.pk))
