"""Outputs that a client posts for calls of its own functions: each counts once.

A call is answered in the line of turns that leads to the new one: another branch may
answer it otherwise. Whoever posts the very same again (a lost reply, two workers) is
told what came of the first time; anything else is refused. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from llm.errors import BadRequest
from llm.wire.items import Item

#: Answer and what it answers: the type of the one, and of the other; under which names
#: both have the id that joins them.
ANSWERS = {
    "function_call_output": ("function_call", "call_id", "call_id"),
    "computer_call_output": ("computer_call", "call_id", "call_id"),
    "mcp_approval_response": ("mcp_approval_request", "approval_request_id", "id"),
}
#: What is answered, and the name of its id.
CALLS = {asks: asked_as for asks, _, asked_as in ANSWERS.values()}
_FORMAL = ("id", "status")  # of an item, beside what it says


class CallAnswered(BadRequest):
    """This call has another output already; the first one counts."""

    code, status = "E_CALL_ANSWERED", 409
    openai_code = "call_already_answered"


class CallGivenUp(BadRequest):
    """The conversation went on without an output of this call."""

    code, status = "E_CALL_GIVEN_UP", 409
    openai_code = "call_given_up"


class OutputsMissing(BadRequest):
    """Other calls wait for an output as well; send all of them together."""

    code = "E_OUTPUTS_MISSING"
    openai_code = "missing_output"


@dataclass(slots=True)
class _Call:
    """What became of a call: `answer` is None while nobody has answered it."""

    is_ours: bool
    answer: Item | None = None
    is_given_up: bool = False


class Line:
    """The calls of one line of turns, and their answers, as far as it was read."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}

    def read(self, items: Iterable[Item], ours: Collection[str] = ()) -> Line:
        """Takes what has been said, oldest first. `ours` are the calls of these items
        that are answered here."""
        for item in items:
            self._read(item, ours)
        return self

    def news(self, given: Iterable[Item]) -> Iterator[Item]:
        """Of `given`, what was not said before in the very same words.

        Raises CallAnswered, CallGivenUp, OutputsMissing.
        """
        has_answers = False
        for item in given:
            if item["type"] not in ANSWERS:
                self._read(item)
                yield item
                continue
            if not self._repeats(item):
                has_answers = has_answers or item["type"] != "mcp_approval_response"
                self._read(item)
                yield item
        if has_answers:
            self._check_whole()

    def _read(self, item: Item, ours: Collection[str] = ()) -> None:
        kind = item["type"]
        if asked_as := CALLS.get(kind):
            if item.get("status", "completed") == "completed":
                id = str(item.get(asked_as))
                self._calls[id] = _Call(is_ours=id in ours)
        elif kind in ANSWERS:
            if call := self._calls.get(id_of(item)):
                call.answer = item
        elif kind == "message" and item.get("role") != "assistant":
            for call in self._calls.values():
                call.is_given_up = call.is_given_up or call.answer is None

    def _repeats(self, item: Item) -> bool:
        id = id_of(item)
        call = self._calls.get(id)
        if call is None:  # whether it may be unknown, the doors decide
            return False
        if call.answer is not None:
            if _said(call.answer) == _said(item):
                return True
            raise CallAnswered(
                f"The call {id[:100]!r} has another output already; the first one"
                " counts.",
                param="input",
            )
        if call.is_ours:
            raise CallAnswered(
                f"The call {id[:100]!r} is answered here and not by the client.",
                param="input",
            )
        if call.is_given_up:
            raise CallGivenUp(
                f"The call {id[:100]!r} was given up: the conversation went on without"
                " its output.",
                param="input",
            )
        return False

    def _check_whole(self) -> None:
        missing = [
            repr(id[:100])
            for id, call in self._calls.items()
            if call.answer is None and not call.is_given_up and not call.is_ours
        ]
        if missing:
            raise OutputsMissing(
                f"An output of {', '.join(missing)} is missing; send the outputs of all"
                " calls together.",
                param="input",
            )


def id_of(answer: Item) -> str:
    """Of the call that it answers."""
    _, name, _ = ANSWERS[answer["type"]]
    return str(answer.get(name))


def _said(item: Item) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in _FORMAL}
