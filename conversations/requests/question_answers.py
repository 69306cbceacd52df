"""The answer to a question that a tool call asks a person."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework import serializers

from conversations import engine
from conversations.input.checks import InputError
from conversations.models import AlreadyDecided, Question
from conversations.requests.errors import InvalidInput, QuestionAlreadyDecided
from conversations.requests.fields import (
    StrictBooleanField,
    StrictSerializer,
    TextField,
)
from tools.json_schema.form_schema import add_defaults

NOTE_LENGTH = 500  # characters


class AnswerSerializer(StrictSerializer):
    action = serializers.ChoiceField(choices=["accept", "decline", "cancel"])
    arguments = serializers.DictField(
        required=False, help_text="For an approval: the arguments for the call."
    )
    content = serializers.DictField(
        required=False, help_text="For a form: the content of its fields."
    )
    always = StrictBooleanField(
        required=False,
        help_text="With `accept`: further calls of the tool in this chat run unasked,"
        " for your own messages, if the tool permits it (`may_always`).",
    )
    note = TextField(required=False, allow_blank=True, max_length=NOTE_LENGTH)


def answer_question(
    question: Question, user: Any, action: Any, **decision: Any
) -> None:
    """Record a user's decision and resume the turn. Fields of a form that it omits have
    their defaults: a program was not shown them, as a person was.

    Raises QuestionAlreadyDecided, InvalidInput.
    """
    if question.kind == Question.Kind.FORM and action == "accept":
        content = decision.get("content") or {}
        decision["content"] = add_defaults(question.schema or {}, content)
    try:
        goes_on = question.decide(user, action, **decision)
    except AlreadyDecided as exc:
        raise QuestionAlreadyDecided from exc
    except ValidationError as exc:
        (param, problems), *_ = exc.message_dict.items()
        raise InvalidInput(InputError(param, problems[0])) from exc
    if goes_on:
        call = question.tool_call
        engine.submit(call.turn_id, call.turn.conversation_id, owner=user.pk)
    engine.notify_decision(question)
    engine.announce_decision(question)
