"""What a turn does next, read off its items. Pure: no IO, no clock, no database.

The items are the loop's whole state, so a turn that stopped (a restart, an answer that
the client owes, a cancelled stream) goes on by asking again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.wire.items import Item, user_message

#: For a turn of which nobody asks anything but what a model says to all before it.
SOMEBODY_ASKS: Sequence[Item] = (user_message(""),)
REPEATS = 3  # identical rounds of calls after which the model is going in circles


@dataclass(frozen=True, slots=True)
class Generate:
    """Ask the model."""


@dataclass(frozen=True, slots=True)
class CallTools:
    """Run these calls ourselves."""

    calls: Sequence[Item]


@dataclass(frozen=True, slots=True)
class AwaitClient:
    """These calls are the client's to answer; the turn ends here."""

    calls: Sequence[Item]


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Nothing is left to do until a person has agreed to these calls, or not."""

    calls: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has had its last word, or for `reason` gets no other."""

    reason: str | None = None


Step = Generate | CallTools | AwaitApproval | AwaitClient | Finish


def next_step(
    items: Sequence[Item],
    *,
    client_tools: Collection[str] = (),
    needs_approval: Callable[[Item], bool] = lambda call: False,
    steps_left: int,
) -> Step:
    """`items` of this turn, oldest first: what was asked, then what was answered.

    A call of a tool that nobody has is ours to answer: with an error.
    """
    pending = unanswered_calls(items)
    ours = [call for call in pending if call["name"] not in client_tools]
    if free := [call for call in ours if not needs_approval(call)]:
        return CallTools(free)
    if ours:
        return AwaitApproval(ours)
    if pending:
        return AwaitClient(pending)
    if not items or not _asks_the_model(items[-1]):
        return Finish()
    if goes_in_circles(items):
        return Finish("repeated_tool_calls")
    return Generate() if steps_left > 0 else Finish("max_steps")


def is_limited(choice: Any) -> bool:
    return isinstance(choice, Mapping) and choice.get("type") == "allowed_tools"


def is_allowed(name: str, choice: Any) -> bool:
    """False for a function that a choice among some tools leaves out.

    Not every host heeds the choice, so we do: a call of such a function is one of a
    tool that nobody has.
    """
    return not is_limited(choice) or any(
        tool.get("name") == name and tool.get("type") in ("function", "custom")
        for tool in choice["tools"]
    )


def choice_after_calls(choice: Any) -> Any:
    """A tool that must be called is called once; then the model may answer."""
    if is_limited(choice):
        return {**choice, "mode": "auto"}
    return choice if choice in (None, "none", "auto") else "auto"


def unanswered_calls(items: Sequence[Item]) -> list[Item]:
    """Whole calls without an output; one cut short is never run."""
    answered = {i["call_id"] for i in items if i["type"] == "function_call_output"}
    return [
        item
        for item in items
        if item["type"] == "function_call"
        and item["status"] == "completed"
        and item["call_id"] not in answered
    ]


def rounds(items: Sequence[Item]) -> int:
    """How often the model was asked for these items of its response."""
    count, asked = 0, True
    for item in items:
        if _asks_the_model(item):
            asked = True
        elif asked:
            count, asked = count + 1, False
    return count


def goes_in_circles(items: Sequence[Item]) -> bool:
    """True where the last rounds of calls asked for exactly the same."""
    rounds: list[list[tuple[str, str]]] = []
    before = ""
    for item in items:
        if item["type"] == "function_call":
            if before != "function_call":
                rounds.append([])
            rounds[-1].append((item["name"], item["arguments"]))
        before = item["type"]
    last = rounds[-REPEATS:]
    return len(last) == REPEATS and all(r == last[0] for r in last)


#: What a client, or we, have brought about since the model spoke.
_OUTPUTS = ("function_call_output", "computer_call_output", "mcp_approval_response")


def _asks_the_model(item: Item) -> bool:
    return item["type"] in _OUTPUTS or item.get("role") in (
        "user",
        "system",
        "developer",
    )
