"""Row of a question to a person: an approval, a form or a sign-in, decided once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from conversations import turn_queue
from conversations.audit.act import Channel, current_act
from conversations.audit.record import record_event
from conversations.models.limits.conversation_limit import limit_of
from conversations.models.tool_call import ToolCall
from conversations.models.turn import Turn
from llm.wire.items import new_id
from tools.errors import InvalidArguments
from tools.json_schema.arguments import check
from tools.models import McpServer, McpUserSignIn, Tool

#: "cancel" dismisses a form without an answer; the tool learns only that.
Action = Literal["accept", "decline", "cancel"]


def question_id() -> str:
    return new_id("ask")


class AlreadyDecided(Exception):
    """This question has been decided already, or has expired."""


class QuestionQuerySet(models.QuerySet["Question"]):
    def open(self) -> QuestionQuerySet:
        return self.filter(state=Question.State.OPEN)

    def answerable_by(self, user: Any) -> QuestionQuerySet:
        """Questions of the user's own conversations and of those in which the user may
        decide, and of the user's groups."""
        own = models.Q(
            group=None,
            tool_call__turn__conversation__owner_id=user.pk,
            tool_call__turn__conversation__deleted_at=None,
            tool_call__turn__deleted_at=None,
        )
        # Nobody signs in for another: only the user whose turn calls the tool.
        written = Turn.objects.written_by(user).values("pk")
        sign_ins = models.Q(kind=Question.Kind.SIGN_IN, tool_call__turn__in=written)
        approvals = apps.get_model("conversations", "Participant").objects.approvers()
        theirs = approvals.filter(user_id=user.pk).values("conversation_id")
        own |= models.Q(
            group=None,
            tool_call__turn__conversation__in=theirs,
            tool_call__turn__deleted_at=None,
        )
        put_to_group = models.Q(group__in=user.groups.all())
        decidable = ~models.Q(kind=Question.Kind.SIGN_IN) & (own | put_to_group)
        found = self.filter(decidable | sign_ins)
        if limit_of(user) is None:
            return found
        return found.filter(tool_call__turn__in=Turn.objects.visible_to(user))

    def awaiting_sign_in(self, user: Any, server: McpServer) -> QuestionQuerySet:
        """The user's open questions that a sign-in at this server answers."""
        asked = self.open().filter(kind=Question.Kind.SIGN_IN, server=server)
        return asked.filter(tool_call__turn__in=Turn.objects.written_by(user))

    def standing_approvals(self) -> QuestionQuerySet:
        """Approvals after which their conversation's further calls of the tool run
        unasked, if the tool needs only the first one."""
        return self.filter(
            kind=Question.Kind.APPROVAL,
            state=Question.State.ACCEPTED,
            revoked_at=None,
        )

    def covering_chats(self) -> QuestionQuerySet:
        """Approvals of people who let the further calls of the tool in the chat run
        unasked, for their own messages."""
        return self.standing_approvals().filter(always=True)

    def of_tool_in_chat(self, question: Question) -> QuestionQuerySet:
        """Those of the same tool in the same conversation."""
        call = question.tool_call
        return self.filter(
            tool_call__name=call.name,
            tool_call__turn__conversation_id=call.turn.conversation_id,
        )

    @transaction.atomic
    def revoke(self, user: Any) -> int:
        """End these approvals for further calls. Returns how many stood."""
        rows = list(self.filter(revoked_at=None).select_related("tool_call"))
        for row in rows:
            details = {"tool": row.tool_call.name, "turn": row.tool_call.turn_id}
            record_event("approval.revoke", target=row, actor=user, details=details)
        revoked = Question.objects.filter(pk__in=[row.pk for row in rows])
        return revoked.update(revoked_at=timezone.now())

    def past_expiry(self) -> QuestionQuerySet:
        return self.open().filter(expires_at__lt=timezone.now())


class Question(models.Model):
    """A tool call's question to a user: approval of the call, a form to fill in, or a
    sign-in at the tool's server.

    Only the first decision counts; question and decision stay on record.
    """

    class Kind(models.TextChoices):
        APPROVAL = "approval", _("approval")
        FORM = "form", _("form")
        SIGN_IN = "sign_in", _("sign-in")

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
        null=True, blank=True, help_text=_("Arguments as the model wrote them.")
    )
    answer = models.JSONField(
        null=True,
        blank=True,
        help_text=_("The approved arguments, or the content of the form."),
    )
    group = models.ForeignKey(
        "auth.Group",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Group that may decide; empty means the user of the conversation."),
    )
    server = models.ForeignKey(
        McpServer,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("MCP server at which the user of the turn has to sign in."),
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
    always = models.BooleanField(
        default=False,
        db_default=False,  # for processes of the previous release
        editable=False,
        help_text=_(
            "The person let further calls of the tool in the chat run unasked."
        ),
    )
    revoked_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text=_("Since then the approval no longer covers further calls."),
    )

    objects = QuestionQuerySet.as_manager()

    class Meta:
        ordering = ["asked_at", "id"]
        indexes = [
            models.Index(
                fields=["expires_at"],
                condition=models.Q(state="open"),
                name="conversations_question_open",
            ),
            models.Index(fields=["asked_at"], name="conversations_question_asked"),
        ]

    def __str__(self) -> str:
        return f"{self.tool_call.name} {self.state}"

    @property
    def is_edited(self) -> bool:
        is_approved = self.kind == self.Kind.APPROVAL and self.answer is not None
        return is_approved and self.answer != (self.arguments or {})

    @property
    def given_arguments(self) -> Any:
        """Of an approval: what the tool runs with; a person may have changed it."""
        return self.answer if self.is_edited else self.written_arguments

    @property
    def written_arguments(self) -> Any:
        """The arguments as the model wrote them: as text where they have a fraction,
        which is another text once it is read and written again, such as 1.10."""
        if not _has_fraction(self.arguments):
            return self.arguments
        calls = self.tool_call.turn.items.filter(type="function_call")
        call = calls.filter(payload__call_id=self.tool_call.call_id).first()
        return call.payload["arguments"] if call else self.arguments

    @property
    def sign_in_url(self) -> str:
        """Where the user of the turn signs in; "" for another kind of question. A path
        if PUBLIC_URL is not set."""
        if self.kind != self.Kind.SIGN_IN:
            return ""
        path = reverse("question-sign-in", args=[self.pk])
        return f"{settings.PUBLIC_URL.rstrip('/')}{path}"

    def decide(
        self,
        user: Any,
        action: Action,
        *,
        arguments: Mapping[str, Any] | None = None,
        content: Mapping[str, Any] | None = None,
        note: str = "",
        always: bool = False,
    ) -> bool:
        """Store a user's decision. True if the turn can resume; the caller submits it.

        `always`: further calls of the tool run unasked in the chat, for messages of
        this user. Raises AlreadyDecided, and ValidationError for an invalid answer.
        """
        if always and not (action == "accept" and self.may_cover_chat(user)):
            problem = gettext("Each call of this tool is decided by itself.")
            raise ValidationError({"always": problem})
        if action == "decline":
            return self._close(self.State.DECLINED, user=user, note=note)
        if action == "cancel":
            if self.kind != self.Kind.FORM:
                problem = "A call is approved or declined."
                raise ValidationError({"action": problem})
            return self._close(self.State.CANCELLED, user=user, note=note)
        if self.kind == self.Kind.SIGN_IN:
            self._check_signed_in(user)
            return self._close(self.State.ACCEPTED, user=user, note=note)
        answer = dict(content or {})
        if self.kind == self.Kind.APPROVAL:
            answer = dict(arguments if arguments is not None else self.arguments or {})
        try:
            check(self.schema or {}, answer)
        except InvalidArguments as exc:
            field = "arguments" if self.kind == self.Kind.APPROVAL else "content"
            raise ValidationError({field: str(exc)}) from exc
        return self._close(
            self.State.ACCEPTED, user=user, answer=answer, note=note, always=always
        )

    def may_cover_chat(self, user: Any) -> bool:
        """Whether the user may let further calls of the tool in the chat run unasked:
        for his own messages, if the tool permits it."""
        if self.kind != self.Kind.APPROVAL or self.group_id is not None:
            return False
        written = Turn.objects.written_by(user)
        if not written.filter(pk=self.tool_call.turn_id).exists():
            return False
        return Tool.objects.may_run_always(self.tool_call.name)

    def _check_signed_in(self, user: Any) -> None:
        """Raises ValidationError: words do not replace the sign-in."""
        if self.server_id not in McpUserSignIn.objects.find_servers(user.pk):
            problem = "Sign in at the address of the question first."
            raise ValidationError({"action": problem})

    def expire(self) -> bool:
        """Close the question after its deadline. Raises AlreadyDecided."""
        return self._close(self.State.EXPIRED)

    @transaction.atomic
    def _close(
        self,
        state: str,
        *,
        user: Any = None,
        answer: Any = None,
        note: str = "",
        always: bool = False,
    ) -> bool:
        now = timezone.now()
        # The lock on the turn makes two concurrent decisions of one turn sequential, so
        # the second one sees that no question is left.
        turns = Turn.objects.select_for_update(no_key=True).only("id")
        turns.get(tool_calls=self.tool_call_id)
        changed = Question.objects.open().filter(pk=self.pk)
        if not changed.update(
            state=state,
            decided_at=now,
            decided_by=user,
            answer=answer,
            note=note[:500],
            always=always,
        ):
            raise AlreadyDecided
        self.refresh_from_db()
        if user is not None and self.kind == self.Kind.APPROVAL:
            self._record_decision(user)
        turn_id = self.tool_call.turn_id
        if self.kind == self.Kind.FORM:
            return False
        left = Question.objects.open().filter(tool_call__turn_id=turn_id)
        if left.exclude(kind=self.Kind.FORM).exists():
            return False
        waiting = Turn.objects.filter(pk=turn_id, status=Turn.Status.WAITING)
        if not waiting.update(status=Turn.Status.QUEUED):
            return False
        turn_queue.enqueue(turn_id)
        return True

    def _record_decision(self, user: Any) -> None:
        """Without the arguments, which are a conversation's content."""
        owners = Turn.objects.filter(pk=self.tool_call.turn_id)
        record_event(
            "approval.decide",
            target=self,
            actor=user,
            subject=owners.values_list("conversation__owner", flat=True).first(),
            after={
                "state": str(self.state),
                "is_edited": self.is_edited,
                "always": self.always,
            },
            details={"tool": self.tool_call.name, "turn": self.tool_call.turn_id},
            channel="" if current_act().request else Channel.SOCKET,
        )


def _has_fraction(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_fraction, value.values()))
    if isinstance(value, list):
        return any(map(_has_fraction, value))
    return isinstance(value, float)
