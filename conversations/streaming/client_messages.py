"""Parser of the messages that clients send over the WebSocket. Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from conversations.engine import Position
from conversations.input.checks import (
    MAX_DEPTH,
    InputError,
    check_no_nul,
    is_deeper,
)
from llm.wire import bounded_json


class InvalidMessage(Exception):
    """Send an object with a known type; see docs/websocket.md."""

    def __init__(self, message: str = "", param: str | None = None) -> None:
        super().__init__(message or self.__doc__)
        self.param = param


class UnknownTurn(InvalidMessage):
    """There is no such turn in this conversation."""

    def __init__(self) -> None:
        super().__init__(param="turn")


def parse_message(text: str) -> Any:
    """Raises InvalidMessage."""
    try:
        body = text.encode()
        message = bounded_json.loads(body)  # no NaN, no half surrogate pairs
    except bounded_json.TooManyValues as exc:
        raise InvalidMessage(f"The message is too large: {exc.msg}.") from exc
    except ValueError as exc:
        raise InvalidMessage("The message is not valid JSON.") from exc
    if is_deeper(message):
        problem = f"The message is nested more than {MAX_DEPTH} levels deep."
        raise InvalidMessage(problem)
    try:
        check_no_nul(message, body)
    except InputError as exc:
        raise InvalidMessage(str(exc), exc.param) from exc
    return message


def key_of(text: str) -> str | None:
    """The `key` of a message that is rejected unread, or None. Its text may have half
    of a surrogate pair, which JSON.stringify writes and `parse_message` refuses."""
    with suppress(ValueError, RecursionError):
        bounded_json.check_values(text.encode())
        message = json.loads(text)
        key = message.get("key") if isinstance(message, dict) else None
        if isinstance(key, str):
            key.encode()
            return key
    return None


def position_of(after: Any) -> str | None:
    if after is None:
        return None
    try:
        return str(Position.parse(after))
    except (ValueError, AttributeError) as exc:
        raise InvalidMessage(
            "'after' must be a position such as '1-42'.", "after"
        ) from exc
