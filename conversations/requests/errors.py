"""Errors of requests, as REST and the WebSocket of pages answer them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import status
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError

from conversations.input.checks import InputError
from conversations.turns.error_texts import in_own_language
from llm.errors import MAX_MESSAGE_LENGTH


class InvalidInput(APIException):
    """A value in a request is invalid; `param` is its path."""

    status_code: int = status.HTTP_400_BAD_REQUEST

    def __init__(self, exc: InputError) -> None:
        super().__init__(str(exc), exc.code)
        self.status_code = exc.status
        self.param = exc.param


class IdempotencyKeyConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = (
        "This Idempotency-Key belongs to another request; choose a new one."
    )
    default_code = "idempotency_key_reused"
    param = "Idempotency-Key"


class MessageRemovedConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = (
        "What this key's request opened was removed; use a new key to send it again."
    )
    default_code = "message_removed"
    param = "Idempotency-Key"


class AlreadySentConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = "It has been sent already."
    default_code = "already_sent"


class OutdatedTermsConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = "This is not the newest version of the terms; read that one."
    default_code = "outdated_terms"


class CannotSteerConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = (
        "This message cannot join the running answer: it has a file, or another program"
        " asked. It is sent after the answer."
    )
    default_code = "cannot_steer"


class QueueChangedConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = (
        "The queue has changed in the meantime; read it again, and name each waiting"
        " message once."
    )
    default_code = "queue_changed"


class BranchConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = "The turn that it follows is deleted too; restore that one first."
    default_code = "parent_deleted"


class NothingToContinueConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = (
        "There is nothing to continue: the answer was not cut off, and the message has"
        " not reached a limit, or all its results are answered."
    )
    default_code = "nothing_to_continue"


class QuestionAlreadyDecided(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = "This question has been decided already, or has expired."
    default_code = "already_decided"


def error_object(exc: APIException) -> dict[str, Any]:
    return describe_error(exc, exc.status_code, exc.detail)


def describe_error(exc: Exception, status: int, detail: Any) -> dict[str, Any]:
    path, first = _first(detail)
    param = path or getattr(exc, "param", None)
    named = isinstance(exc, ValidationError) and param
    words = in_own_language(str(first))
    text = f"{param}: {words}" if named else words
    return {
        "message": text[:MAX_MESSAGE_LENGTH],  # the message may quote a long header
        "type": error_type(status),
        "param": param,
        "code": getattr(first, "code", None),
    }


def error_type(status: int) -> str:
    if status == 429:
        return "too_many_requests"
    return "server_error" if status >= 500 else "invalid_request_error"


def _first(detail: Any) -> tuple[str, ErrorDetail | str]:
    """The path and text of the first error among those that DRF found."""
    match detail:
        case {"detail": ErrorDetail() as only} if len(detail) == 1:
            return "", only
        case Mapping():
            name = next(iter(detail))
            path, first = _first(detail[name])
            if name == "non_field_errors":
                return path, first
            return f"{name}.{path}" if path else str(name), first
        case [first, *_]:
            return _first(first)
    return "", detail
