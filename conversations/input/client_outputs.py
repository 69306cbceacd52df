"""Checks of the outputs that a client posts for its own function calls. Pure.

Each call takes one output. A call is answered within the chain of turns that leads to
the new turn; another branch of the conversation may answer it differently. The same
output posted again (after a lost response, or by a second worker) is skipped; a
different output for an answered call is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from llm.errors import BadRequest
from llm.wire.items import Item

#: By type of an output item: the type of the call item, then the field with the call's
#: id in the output item, and the same in the call item.
OUTPUT_TYPES = {
    "function_call_output": ("function_call", "call_id", "call_id"),
    "computer_call_output": ("computer_call", "call_id", "call_id"),
    "mcp_approval_response": ("mcp_approval_request", "approval_request_id", "id"),
}
#: By type of a call item, the field with its id.
CALL_ID_FIELDS = {
    call_type: id_field for call_type, _, id_field in OUTPUT_TYPES.values()
}
_IGNORED_FIELDS = ("id", "status")  # fields that do not count when outputs are compared


class CallAlreadyAnswered(BadRequest):
    """This call has another output already; the first one counts."""

    code, status = "E_CALL_ANSWERED", 409
    openai_code = "call_already_answered"


class CallAbandoned(BadRequest):
    """The conversation went on without an output of this call."""

    code, status = "E_CALL_GIVEN_UP", 409
    openai_code = "call_given_up"


class OutputsMissing(BadRequest):
    """Other calls wait for an output as well; send all of them together."""

    code = "E_OUTPUTS_MISSING"
    openai_code = "missing_output"


@dataclass(slots=True)
class _CallState:
    """State of a call; `answer` is None while it has no output."""

    is_answered_by_server: bool
    answer: Item | None = None
    is_abandoned: bool = False


class ClientCalls:
    """The calls of one chain of turns and their outputs, as far as it was read."""

    def __init__(self) -> None:
        self._calls: dict[str, _CallState] = {}

    def read(
        self, items: Iterable[Item], server_calls: Collection[str] = ()
    ) -> ClientCalls:
        """Add items of earlier turns, oldest first. `server_calls` are the ids of the
        calls among them that the server itself answers."""
        for item in items:
            self._read(item, server_calls)
        return self

    def new_items(self, items: Iterable[Item]) -> Iterator[Item]:
        """Those of `items` that are not exact repetitions of earlier outputs.

        Raises CallAlreadyAnswered, CallAbandoned, OutputsMissing.
        """
        has_answers = False
        for item in items:
            if item["type"] not in OUTPUT_TYPES:
                self._read(item)
                yield item
                continue
            if not self._is_repetition(item):
                has_answers = has_answers or item["type"] != "mcp_approval_response"
                self._read(item)
                yield item
        if has_answers:
            self._check_complete()

    def _read(self, item: Item, server_calls: Collection[str] = ()) -> None:
        kind = item["type"]
        if id_field := CALL_ID_FIELDS.get(kind):
            if item.get("status", "completed") == "completed":
                id = str(item.get(id_field))
                self._calls[id] = _CallState(is_answered_by_server=id in server_calls)
        elif kind in OUTPUT_TYPES:
            if call := self._calls.get(call_id_of(item)):
                call.answer = item
        elif kind == "message" and item.get("role") != "assistant":
            for call in self._calls.values():
                call.is_abandoned = call.is_abandoned or call.answer is None

    def _is_repetition(self, item: Item) -> bool:
        id = call_id_of(item)
        call = self._calls.get(id)
        if call is None:  # the endpoint decides whether an unknown call is an error
            return False
        if call.answer is not None:
            if _content_of(call.answer) == _content_of(item):
                return True
            raise CallAlreadyAnswered(
                f"The call {id[:100]!r} already has a different output; it cannot be"
                " changed.",
                param="input",
            )
        if call.is_answered_by_server:
            raise CallAlreadyAnswered(
                f"The call {id[:100]!r} is run by the server; do not send an output.",
                param="input",
            )
        if call.is_abandoned:
            raise CallAbandoned(
                f"The call {id[:100]!r} was abandoned: the conversation continued"
                " without its output.",
                param="input",
            )
        return False

    def _check_complete(self) -> None:
        missing = [
            repr(id[:100])
            for id, call in self._calls.items()
            if call.answer is None
            and not call.is_abandoned
            and not call.is_answered_by_server
        ]
        if missing:
            raise OutputsMissing(
                f"An output of {', '.join(missing)} is missing; send the outputs of all"
                " calls together.",
                param="input",
            )


def call_id_of(answer: Item) -> str:
    """The id of the call that the output item answers."""
    _, name, _ = OUTPUT_TYPES[answer["type"]]
    return str(answer.get(name))


def _content_of(item: Item) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in _IGNORED_FIELDS}
