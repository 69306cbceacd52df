"""Row of a turn: status, claim, usage and its place in the tree of turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import models
from django.db.models.signals import post_delete
from django.dispatch import receiver
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import AccessToken
from llm.errors import BadRequest
from llm.models import LanguageModel
from llm.pricing.caller import Caller
from llm.wire.items import new_id

#: The option in which a turn keeps what its request said of its caller.
CALLER = "caller"
#: Option of a turn: the name of the model pool by which its model was found.
POOL = "model_pool"


class AuthorGone(BadRequest):
    """The person who wrote this may no longer use this conversation."""

    code, status = "E_AUTHOR_GONE", 403


def turn_id() -> str:
    return new_id("resp")


def _conversations() -> Any:
    return apps.get_model("conversations", "Conversation").objects


class TurnQuerySet(models.QuerySet["Turn"]):
    def of(self, user: Any) -> TurnQuerySet:
        """Turns that `user` may see outside of the admin. If `user` comes with an
        access token that is limited to conversations, only turns in those."""
        rows = self.filter(
            conversation__owner_id=user.pk,
            conversation__deleted_at=None,
            deleted_at=None,
        )
        if getattr(user, "conversation_limit", None) is None:
            return rows
        return rows._in(_conversations().of(user))

    def not_deleted(self) -> TurnQuerySet:
        return self.filter(deleted_at=None)

    def visible_to(self, user: Any) -> TurnQuerySet:
        """As `of`, and turns of conversations in which `user` takes part."""
        return self._in(_conversations().visible_to(user))

    def writable_by(self, user: Any) -> TurnQuerySet:
        """As `of`, and turns of conversations in which `user` may write."""
        return self._in(_conversations().writable_by(user))

    def written_by(self, user: Any) -> TurnQuerySet:
        """Turns that `user` wrote and may still change: nobody sends words in the name
        of another."""
        own = models.Q(author=None, author_name="", conversation__owner_id=user.pk)
        return self.writable_by(user).filter(own | models.Q(author_id=user.pk))

    def _in(self, conversations: Any) -> TurnQuerySet:
        return self.filter(conversation__in=conversations.values("pk"), deleted_at=None)

    def not_finished(self) -> TurnQuerySet:
        return self.filter(status__in=Turn.UNFINISHED)

    def steering(self, conversation_id: str) -> TurnQuerySet:
        """Queued messages that join the conversation's running turn, in order."""
        asked = self.filter(status=Turn.Status.QUEUED).exclude(steering="")
        return asked.filter(conversation_id=conversation_id).order_by(
            "created_at", "id"
        )

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

    def beside(self, turn: Turn) -> tuple[str | None, str | None]:
        """Ids of the turns before and after `turn` in its conversation, by time."""
        same = self.filter(conversation_id=turn.conversation_id)
        at, pk = turn.created_at, turn.pk
        earlier = models.Q(created_at__lt=at) | models.Q(created_at=at, pk__lt=pk)
        later = models.Q(created_at__gt=at) | models.Q(created_at=at, pk__gt=pk)
        before = same.filter(earlier).order_by("-created_at", "-pk")
        after = same.filter(later).order_by("created_at", "pk")
        ids = (rows.values_list("pk", flat=True).first() for rows in (before, after))
        return next(ids), next(ids)

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

    class Steering(models.TextChoices):
        ASKED = "asked", _("waits for the next step of the running turn")
        TAKEN = "taken", _("is being added to the running turn")

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
    comparison = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text=_("Shared by turns that were opened to compare their answers."),
    )
    deleted_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text=_("When a person deleted the branch that the turn belongs to."),
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
        help_text=_("Access token whose limits and budget apply."),
    )
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,  # searched only when a user is deleted
        help_text=_("Participant who wrote it; empty for the conversation's owner."),
    )
    author_name = models.CharField(
        max_length=150,
        blank=True,
        default="",
        db_default="",
        help_text=_("The participant's name, which remains if the account is deleted."),
    )
    options = models.JSONField(default=dict, blank=True)
    status = models.CharField(
        max_length=12, choices=Status.choices, default=Status.QUEUED
    )
    epoch = models.PositiveIntegerField(
        default=0,
        help_text=_(
            "Number of claims, as a fencing token: writes of an older epoch are"
            " refused."
        ),
    )
    claims = models.PositiveSmallIntegerField(
        default=0,
        help_text=_("Number of claims since the turn last waited for a person."),
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
        help_text=_("Seconds left; the time does not run while a person is asked."),
    )
    cancel_requested = models.BooleanField(default=False)
    steering = models.CharField(
        max_length=5,
        choices=Steering.choices,
        blank=True,
        default="",
        db_default="",
        help_text=_(
            "Whether a queued message joins the running turn at its next step, instead"
            " of waiting for its end."
        ),
    )
    partial = models.JSONField(
        null=True, blank=True, help_text=_("Output that is not committed yet.")
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
        help_text=_("Notes about the turn: kind, text and source."),
    )
    preset_version = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=_("Version of the conversation's preset that answered."),
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

    #: What the claim has not found: `claim_store.RARE`. Not a column.
    lacking: Collection[str] = frozenset()

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["conversation", "created_at"]),
            models.Index(
                fields=["status", "created_at"], name="conversations_turn_status"
            ),
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
                fields=["deleted_at"],
                condition=models.Q(deleted_at__isnull=False),
                name="conversations_turn_deleted",
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

    @cached_property
    def sibling_ids(self) -> list[str]:
        """Ids of the turns with the same parent that people opened, itself included."""
        same = Turn.objects.filter(
            conversation_id=self.conversation_id, parent_id=self.parent_id
        )
        if self.caused_by_id is not None:
            return [self.pk]
        shown = same.filter(deleted_at=None, caused_by=None)
        return list(shown.values_list("pk", flat=True))

    @staticmethod
    def read_siblings(turns: Sequence[Turn]) -> None:
        """Read `sibling_ids` of turns of one conversation by one query. A turn that was
        deleted since it was read has no other siblings than itself."""
        if not turns:
            return
        parents = {turn.parent_id for turn in turns}
        same = Turn.objects.filter(
            models.Q(parent__in=parents - {None}) | models.Q(parent=None),
            conversation_id=turns[0].conversation_id,
            deleted_at=None,
            caused_by=None,
        )
        siblings: dict[str | None, list[str]] = {}
        for pk, parent in same.values_list("pk", "parent_id"):
            siblings.setdefault(parent, []).append(pk)
        for turn in turns:
            same_parent = siblings.get(turn.parent_id, [])
            is_shown = turn.caused_by_id is None and turn.pk in same_parent
            turn.sibling_ids = same_parent if is_shown else [turn.pk]

    @property
    def actor(self) -> Any:
        """The user whose permissions, keys, limits and memories the turn uses: its
        author. Raises AuthorGone, so that nobody else's are used instead."""
        if self.author_id is not None:
            return self.author
        if self.author_name:
            raise AuthorGone
        return self.conversation.owner

    @property
    def actor_id(self) -> Any:
        """The primary key of `actor`, without a query for it. Raises AuthorGone."""
        if self.author_id is None and self.author_name:
            raise AuthorGone
        return self.author_id or self.conversation.owner_id

    @property
    def caller(self) -> Caller:
        """Who makes the turn's model calls. Raises AuthorGone."""
        named, token = self.options.get(CALLER) or {}, self.access_token
        return Caller(
            user_id=self.actor_id,
            token_id=token.pk if token else None,
            token_label=token.label if token else "",
            end_user=named.get("end_user", ""),
            tags=named.get("tags", ""),
            request_id=named.get("request_id", ""),
            client_request_id=named.get("client_request_id", ""),
            trace_parent=named.get("trace_parent", ""),
        )

    def options_for(self, author: Any) -> dict[str, Any]:
        """The options of a turn with which `author`, None for the owner, goes on with
        this one. Declared tools may contain the credentials of who declared them."""
        options: dict[str, Any] = self.options
        is_same = self.author_id == (None if author is None else author.pk)
        left_out = {"tool_choice"} if is_same else {"tool_choice", "tools"}
        return {name: v for name, v in options.items() if name not in left_out}

    @property
    def may_read_chats(self) -> bool:
        """Whether tools of this turn may read chats.

        False for gateway requests, unless the request named a conversation and its
        token has the scope `chat`.
        """
        gateway = self.options.get("gateway")
        return gateway is None or gateway.get("chats") is True

    @property
    def may_wait_for_people(self) -> bool:
        """Whether a call may wait until a person approves it.

        A program that waits for its turn cannot wait for a person too: of the turns
        of the gateway only those of `background` responses may.
        """
        gateway = self.options.get("gateway")
        return gateway is None or gateway.get("echo", {}).get("background") is True

    @property
    def is_finished(self) -> bool:
        return self.status not in self.UNFINISHED

    @property
    def is_failed_request(self) -> bool:
        """Whether it is a program's request that ended before any output."""
        has_failed = self.status in (self.Status.FAILED, self.Status.CANCELLED)
        if not has_failed or "gateway" not in self.options:
            return False
        return not self.items.filter(origin="output").exists()

    @property
    def is_queued(self) -> bool:
        return self.status == self.Status.QUEUED

    @property
    def seconds(self) -> float | None:
        """Seconds from its start to its end."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


def increment_rewritten(conversation_id: str) -> None:
    """Increment the version that invalidates cached copies of the conversation."""
    rows = apps.get_model("conversations", "Conversation").objects
    rows.filter(pk=conversation_id).update(rewritten=models.F("rewritten") + 1)


@receiver(post_delete, sender=Turn)
def _note_deletion(instance: Turn, **signal: Any) -> None:
    increment_rewritten(instance.conversation_id)
