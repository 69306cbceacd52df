"""What a turn does next, read off its output. Pure: no IO, no clock, no database.

The items of the response, and how many of them stood when a host last ended a provider
call, are the loop's whole state. So a turn that stopped (a restart, an answer that the
client owes, a cancelled stream) goes on by asking again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.wire.items import Item

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
    output: Sequence[Item],
    *,
    ended_output: int | None,
    client_tools: Collection[str] = (),
    needs_approval: Callable[[Item], bool] = lambda call: False,
    steps_left: int,
) -> Step:
    """`output` is what the response holds so far; what was asked has been asked, so
    the model has its say whatever stands last in it.

    `ended_output` is the length of the output when a host last ended a provider call,
    None where it ended none or wants to be asked again. Without it nothing is over: an
    output that a crash left behind looks like a whole answer. A call of a tool that
    nobody has is ours to answer: with an error.
    """
    pending = unanswered_calls(output)
    ours = [call for call in pending if call["name"] not in client_tools]
    if free := [call for call in ours if not needs_approval(call)]:
        return CallTools(free)
    if ours:
        return AwaitApproval(ours)
    if pending:
        return AwaitClient(pending)
    if ended_output == len(output):
        return Finish()
    if goes_in_circles(output):
        return Finish("repeated_tool_calls")
    return Generate() if steps_left > 0 else Finish("max_steps")


def is_midway(output: Sequence[Item], ended_output: int | None) -> bool:
    """Whether the model has begun an answer that no host has ended."""
    return not all(
        _asks_the_model(item) or item.get("parley:interrupted")
        for item in output[ended_output or 0 :]
    )


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


def _asks_the_model(item: Item) -> bool:
    """Whether we have put it into the response: the output of a call, or a result that
    came in the background."""
    return item["type"] == "function_call_output" or item.get("role") == "user"
