from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.tokens import AccessToken as AccessToken
from llm.models import LanguageModel
from llm.wire.items import Item as ItemPayload
from llm.wire.items import new_id, text_of
from tools.arguments import check
from tools.errors import InvalidArguments

TITLE_LENGTH = 80  # characters


def conversation_id() -> str:
    return new_id("conv")


def turn_id() -> str:
    return new_id("resp")


def attachment_id() -> str:
    return new_id("file")


def question_id() -> str:
    return new_id("ask")


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def of(self, user: Any) -> ConversationQuerySet:
        """What `user` may see by any door but the admin."""
        return self.filter(owner_id=user.pk, deleted_at=None)


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

    objects = ConversationQuerySet.as_manager()

    class Meta:
        ordering = ["-updated_at"]
        indexes = [models.Index(fields=["owner", "-updated_at"])]

    def __str__(self) -> str:
        return self.title or self.id

    @property
    def usual_model(self) -> LanguageModel | None:
        """Of turns that name none; None for the default model."""
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
    ) -> Turn:
        """The user's items and the turn that will answer them, or neither.

        It follows `parent`, or else the conversation's last turn, and is answered when
        all turns opened before it are.
        """
        from conversations.engine import enqueue

        # Turns are answered in the order of `created_at`, so they are opened one after
        # another, whatever the clocks of several machines say.
        if connection.features.has_select_for_update:
            same = Conversation.objects.filter(pk=self.pk)
            same.select_for_update(no_key=True).values_list("pk").first()
        last = self.turns.order_by("-created_at", "-id").only("created_at").first()
        turn = self.turns.create(
            parent=parent or last,
            language_model=language_model or self.language_model,
            options={**self.options, **(options or {})},
            access_token=access_token,
        )
        Item.objects.bulk_create(
            Item.of(turn, position, payload, origin=Item.Origin.INPUT)
            for position, payload in enumerate(items)
        )
        if not self.title:
            self.title = _title_of(items)
        self.updated_at = timezone.now()
        self.save(update_fields=["title", "updated_at"])
        if last is not None and turn.created_at <= last.created_at:
            turn.created_at = last.created_at + timedelta(microseconds=1)
            turn.save(update_fields=["created_at"])
        enqueue(turn.pk)
        return turn

    def delete_softly(self) -> None:
        """Gone for its owner; staff and retention deal with the rows."""
        self.deleted_at = timezone.now()
        self.save(update_fields=["deleted_at"])
        self.turns.unfinished().update(cancel_requested=True)
        running = ToolCall.objects.in_background().filter(turn__conversation=self)
        running.update(cancel_requested=True)


def _title_of(items: Sequence[ItemPayload]) -> str:
    text = " ".join(" ".join(text_of(item) for item in items).split())
    return text if len(text) <= TITLE_LENGTH else text[: TITLE_LENGTH - 1] + "…"


class TurnQuerySet(models.QuerySet["Turn"]):
    def of(self, user: Any) -> TurnQuerySet:
        """What `user` may see by any door but the admin."""
        return self.filter(
            conversation__owner_id=user.pk, conversation__deleted_at=None
        )

    def unfinished(self) -> TurnQuerySet:
        return self.filter(status__in=Turn.UNFINISHED)

    def since(self, turn: Turn) -> TurnQuerySet:
        """`turn` and what came after it in its conversation."""
        later = models.Q(created_at__gt=turn.created_at) | models.Q(
            created_at=turn.created_at, pk__gte=turn.pk
        )
        return self.filter(later, conversation_id=turn.conversation_id)


class Turn(models.Model):
    """A message and all that answers it. Its id is the response's id."""

    class Status(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "in_progress", _("running")
        WAITING = "waiting", _("waiting for a person")
        COMPLETED = "completed", _("completed")
        INCOMPLETE = "incomplete", _("incomplete")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("stopped")

    UNFINISHED = [Status.QUEUED, Status.RUNNING, Status.WAITING]

    id = models.CharField(
        primary_key=True, max_length=64, default=turn_id, editable=False
    )
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="turns")
    parent = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="children"
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
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    partial = models.JSONField(
        null=True, blank=True, help_text=_("What was said and not yet committed.")
    )
    last_sequence = models.PositiveIntegerField(
        null=True, blank=True, help_text=_("Number of the last event.")
    )
    usage = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    notes = models.JSONField(
        default=list,
        blank=True,
        help_text=_("What happened beside the answer: kind, text and what it is of."),
    )
    incomplete_reason = models.CharField(max_length=40, blank=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = TurnQuerySet.as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["conversation", "created_at"]),
            models.Index(
                fields=["lease_until"],
                condition=models.Q(status__in=["queued", "in_progress", "waiting"]),
                name="conversations_turn_unfinished",
            ),
        ]
        permissions = [
            ("inspect_turn", "Can read other people's turns"),
            ("edit_items", "Can correct or redact items"),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_finished(self) -> bool:
        return self.status not in self.UNFINISHED

    @property
    def seconds(self) -> float | None:
        """How long it took, from its start."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


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


class ToolCallQuerySet(models.QuerySet["ToolCall"]):
    def of(self, user: Any) -> ToolCallQuerySet:
        """What `user` may see by any door but the admin."""
        return self.filter(
            turn__conversation__owner_id=user.pk,
            turn__conversation__deleted_at=None,
        )

    def in_background(self) -> ToolCallQuerySet:
        """Calls that the model does not wait for, and that are not over."""
        return self.filter(blocking=False, state=ToolCall.State.EXECUTING)

    def undelivered(self) -> ToolCallQuerySet:
        """Results of such calls that the model has not been told."""
        return self.filter(blocking=False, delivered_in=None).filter(
            state__in=ToolCall.OVER
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

    OVER = [
        State.COMPLETED,
        State.FAILED,
        State.TIMED_OUT,
        State.CANCELLED,
        State.UNKNOWN,
    ]

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
            models.Index(
                fields=["turn"],
                condition=models.Q(blocking=False, delivered_in=None),
                name="conversations_call_background",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.state}"

    @property
    def seconds(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


class AlreadyDecided(Exception):
    """This question has been decided already, or has expired."""


class QuestionQuerySet(models.QuerySet["Question"]):
    def open(self) -> QuestionQuerySet:
        return self.filter(state=Question.State.OPEN)

    def answerable_by(self, user: Any) -> QuestionQuerySet:
        """Those of the user's own conversations, and those put to a group of theirs."""
        own = models.Q(
            group=None,
            tool_call__turn__conversation__owner_id=user.pk,
            tool_call__turn__conversation__deleted_at=None,
        )
        put_to_group = models.Q(group__in=user.groups.all())
        return self.filter(own | put_to_group)

    def expired(self) -> QuestionQuerySet:
        return self.open().filter(expires_at__lt=timezone.now())


class Question(models.Model):
    """What a call of a tool asks a person: leave to run, or a form to fill in.

    It is decided once, whoever is quicker; what was asked and what was decided stay.
    """

    class Kind(models.TextChoices):
        APPROVAL = "approval", _("approval")
        FORM = "form", _("form")

    class State(models.TextChoices):
        OPEN = "open", _("open")
        ACCEPTED = "accepted", _("accepted")
        DECLINED = "declined", _("declined")
        EXPIRED = "expired", _("expired")
        CANCELLED = "cancelled", _("cancelled")

    id = models.CharField(
        primary_key=True, max_length=64, default=question_id, editable=False
    )
    tool_call = models.ForeignKey(ToolCall, models.CASCADE, related_name="questions")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    message = models.TextField(blank=True)
    schema = models.JSONField(null=True, blank=True)
    arguments = models.JSONField(
        null=True, blank=True, help_text=_("As the model wrote them.")
    )
    answer = models.JSONField(
        null=True, blank=True, help_text=_("The arguments approved, or the form.")
    )
    group = models.ForeignKey(
        "auth.Group",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Who may decide; nobody named means the user."),
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    asked_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
    )
    note = models.CharField(max_length=500, blank=True)

    objects = QuestionQuerySet.as_manager()

    class Meta:
        ordering = ["asked_at", "id"]
        indexes = [
            models.Index(
                fields=["expires_at"],
                condition=models.Q(state="open"),
                name="conversations_question_open",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tool_call.name} {self.state}"

    @property
    def is_edited(self) -> bool:
        return self.kind == self.Kind.APPROVAL and self.answer not in (
            None,
            self.arguments,
        )

    def decide(
        self,
        user: Any,
        action: Literal["accept", "decline"],
        *,
        arguments: Mapping[str, Any] | None = None,
        content: Mapping[str, Any] | None = None,
        note: str = "",
    ) -> bool:
        """A person's word. True where the turn now may go on: submit it then.

        Raises AlreadyDecided, and ValidationError for an answer that does not fit.
        """
        if action == "decline":
            return self._close(self.State.DECLINED, user=user, note=note)
        answer = dict(content or {})
        if self.kind == self.Kind.APPROVAL:
            answer = dict(arguments if arguments is not None else self.arguments or {})
        try:
            check(self.schema or {}, answer)
        except InvalidArguments as exc:
            field = "arguments" if self.kind == self.Kind.APPROVAL else "content"
            raise ValidationError({field: str(exc)}) from exc
        return self._close(self.State.ACCEPTED, user=user, answer=answer, note=note)

    def expire(self) -> bool:
        """Nobody decided in time. Raises AlreadyDecided."""
        return self._close(self.State.EXPIRED)

    @transaction.atomic
    def _close(
        self, state: str, *, user: Any = None, answer: Any = None, note: str = ""
    ) -> bool:
        from conversations.engine import enqueue

        now = timezone.now()
        # Two answers to two questions of a turn: the second sees that it is the last.
        turns = Turn.objects.select_for_update(no_key=True).only("id")
        turns.get(tool_calls=self.tool_call_id)
        changed = Question.objects.open().filter(pk=self.pk)
        if not changed.update(
            state=state, decided_at=now, decided_by=user, answer=answer, note=note[:500]
        ):
            raise AlreadyDecided
        self.refresh_from_db()
        turn_id = self.tool_call.turn_id
        if self.kind == self.Kind.FORM:
            return False
        left = Question.objects.open().filter(tool_call__turn_id=turn_id)
        if left.filter(kind=self.Kind.APPROVAL).exists():
            return False
        waiting = Turn.objects.filter(pk=turn_id, status=Turn.Status.WAITING)
        if not waiting.update(status=Turn.Status.QUEUED):
            return False
        enqueue(turn_id)
        return True


class KeyReused(Exception):
    """This Idempotency-Key belongs to another request; choose a new one."""


class IdempotencyKeyQuerySet(models.QuerySet["IdempotencyKey"]):
    def once(
        self,
        user: Any,
        key: str,
        fingerprint: str,
        open_turn: Callable[[], Turn],
    ) -> tuple[Turn, bool]:
        """The turn that `key` names, and whether it was opened just now.

        Raises KeyReused where `key` named a request of another `fingerprint`.
        """
        try:
            with transaction.atomic():
                if known := self._known(user, key, fingerprint):
                    return known, False
                turn = open_turn()
                self.create(user=user, key=key, fingerprint=fingerprint, turn=turn)
        except IntegrityError:
            # The same request at the same moment won; else the error is another's.
            if known := self._known(user, key, fingerprint):
                return known, False
            raise
        return turn, True

    def _known(self, user: Any, key: str, fingerprint: str) -> Turn | None:
        known = self.filter(user=user, key=key).select_related("turn").first()
        if known is None:
            return None
        if known.fingerprint != fingerprint:
            raise KeyReused
        return known.turn


class IdempotencyKey(models.Model):
    """A caller's own name for a request, so that sending it again repeats nothing."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    turn = models.ForeignKey(Turn, models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = IdempotencyKeyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "key"], name="conversations_idempotency_key_once"
            )
        ]

    def __str__(self) -> str:
        return self.key


class Attachment(models.Model):
    """A file that belongs to a conversation; items refer to it by id."""

    id = models.CharField(
        primary_key=True, max_length=64, default=attachment_id, editable=False
    )
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="attachments"
    )
    name = models.CharField(max_length=255)
    content_type = models.CharField(max_length=100)
    size = models.PositiveBigIntegerField()
    file = models.FileField(upload_to="attachments/%Y/%m/")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


# So that Django finds their models; they name ours by their labels.
from conversations import ledger, memories, presets  # noqa: E402, F401
