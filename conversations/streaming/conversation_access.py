"""What a WebSocket's session may do with its conversation, checked in the database.

All methods are synchronous and read the session and its user again: they may have
changed since the connection was accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conversations import engine
from conversations.access.session_user import user_from_session
from conversations.access.sessions import note_message
from conversations.engine import message_consequences
from conversations.models import Conversation, OpenedTurn, Question, ToolCall, Turn
from conversations.streaming.client_messages import InvalidMessage


class SignedOut(Exception):
    """The session has ended, or its user may no longer sign in."""


class NotJoined(Exception):
    """The user may no longer see the conversation."""


_READ_ONLY = "You may read this conversation, but not write in it."


@dataclass(frozen=True, slots=True)
class ConversationAccess:
    session_key: str
    user_id: int
    conversation_id: str

    def open_continuation(self, halted: Turn) -> Turn:
        from conversations.requests.branches import continue_turn
        from conversations.requests.errors import NothingToContinueConflict

        try:
            return continue_turn(halted, self.check_writer())
        except message_consequences.CannotContinue as exc:
            raise NothingToContinueConflict from exc

    def cancel_call(self, call_id: int) -> None:
        self.check_writer()
        calls = ToolCall.objects.filter(turn__conversation=self.conversation_id)
        call = calls.filter(pk=call_id).first() if abs(call_id) < 2**63 else None
        if call is None:
            raise InvalidMessage(
                "There is no such tool call in this conversation.", "id"
            )
        engine.cancel_call(call)

    def open_turn(self, fields: dict[str, Any]) -> OpenedTurn:
        # REST's serializer, so that both endpoints return the same errors.
        from conversations.requests.turn_request import TurnRequestSerializer

        data = {k: v for k, v in fields.items() if k not in ("type", "key")}
        # Read again: it may have been changed or deleted since the connection.
        user = self.check_session()
        found = Conversation.objects.find_writable(user, self.conversation_id)
        if found is None and self._is_visible(user):
            raise InvalidMessage(_READ_ONLY, "conversation")
        if found is None or not found.owner.is_active:
            raise InvalidMessage("This conversation no longer exists.", "conversation")
        serializer = TurnRequestSerializer(
            data=data,
            context={
                "conversation": found,
                "user": user,  # with current permissions
                "idempotency_key": fields.get("key"),
            },
        )
        serializer.is_valid(raise_exception=True)
        opened: OpenedTurn = serializer.save()
        return opened

    def answer(self, question_id: str, fields: dict[str, Any]) -> None:
        from conversations.requests.question_answers import (
            AnswerSerializer,
            answer_question,
        )

        user = self.check_session()
        question = self._question(user, question_id)
        if question is None:
            raise InvalidMessage("There is no such question that you may answer.", "id")
        data = {k: v for k, v in fields.items() if k not in ("type", "id", "key")}
        serializer = AnswerSerializer(data=data)
        serializer.is_valid(raise_exception=True)
        answer_question(question, user, **serializer.validated_data)

    def _question(self, user: Any, question_id: str) -> Question | None:
        questions = Question.objects.answerable_by(user).filter(
            tool_call__turn__conversation=self.conversation_id
        )
        return questions.filter(pk=question_id).first()

    def find_turn(self, turn_id: str) -> Turn | None:
        """A turn that the user may see. Raises NotJoined."""
        if not self._is_visible(self.check_session()):
            raise NotJoined
        turns = Turn.objects.not_deleted().filter(
            conversation=self.conversation_id, pk=turn_id
        )
        return turns.first()

    def find_writable_turn(self, turn_id: str) -> Turn | None:
        """A turn that the user may stop or continue."""
        self.check_writer()
        turns = Turn.objects.filter(conversation=self.conversation_id, pk=turn_id)
        return turns.first()

    def check_writer(self) -> Any:
        """The user, who may write. Raises NotJoined, and InvalidMessage."""
        user = self.check_session()
        if Conversation.objects.find_writable(user, self.conversation_id) is None:
            if self._is_visible(user):
                raise InvalidMessage(_READ_ONLY, "conversation")
            raise NotJoined
        return user

    def _is_visible(self, user: Any) -> bool:
        found = Conversation.objects.find_visible(user, self.conversation_id)
        return found is not None

    def check_session(self) -> Any:
        """The session's user, read from the database. Raises SignedOut."""
        user = user_from_session(self.session_key)
        if user.pk != self.user_id:
            raise SignedOut
        note_message(self.session_key)
        return user
