"""Compute a turn's next step from its output. Pure: no IO, no clock, no database.

The loop's whole state is the response's items and their number when a host last ended a
provider call. So a turn that stopped (a restart, an output that the client has to send,
a cancelled stream) resumes by computing its next step again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.wire.items import Item, is_compaction
from tools.loop.late_results import CALL_ID_KEY

REPEATS = 3  # rounds of equal calls with equal outputs after which a turn ends
EQUAL_CALLS = 20  # rounds of equal calls after which it ends whatever their outputs


@dataclass(frozen=True, slots=True)
class Generate:
    """Call the model."""


@dataclass(frozen=True, slots=True)
class CallTools:
    """Run these calls on the server."""

    calls: Sequence[Item]


@dataclass(frozen=True, slots=True)
class AwaitClient:
    """End the turn; the client has to send the outputs of these calls."""

    calls: Sequence[Item]


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Suspend the turn until a user approves or declines these calls."""

    calls: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Finish:
    """End the turn; with a `reason` before the model's answer is complete."""

    reason: str | None = None


Step = Generate | CallTools | AwaitApproval | AwaitClient | Finish


def next_step(
    output: Sequence[Item],
    *,
    ended_output: int | None,
    client_tools: Collection[str] = (),
    needs_approval: Callable[[Item, Sequence[Item]], bool] = lambda call, output: False,
    steps_left: int,
) -> Step:
    """The next step of a turn whose response holds the items `output` so far.

    `ended_output` is the length of the output when a host last ended a provider call;
    None if no call ended, or if the host wants to be called again. Only it shows that
    an answer is complete: an output that a crash left behind may look complete too. A
    call of an unknown tool is run on the server, which answers it with an error.
    """
    pending = calls_without_output(output)
    server_calls = [call for call in pending if call["name"] not in client_tools]
    runnable = [call for call in server_calls if not needs_approval(call, output)]
    if runnable:
        return CallTools(runnable)
    if server_calls:
        return AwaitApproval(server_calls)
    if pending:
        return AwaitClient(pending)
    if ended_output == len(output):
        return Finish()
    if goes_in_circles(output):
        return Finish("repeated_tool_calls")
    return Generate() if steps_left > 0 else Finish("max_steps")


def is_midway(output: Sequence[Item], ended_output: int | None) -> bool:
    """Whether the output has part of an answer whose provider call did not end."""
    return not all(
        _asks_the_model(item) or item.get("parley:interrupted")
        for item in output[ended_output or 0 :]
    )


def is_limited(choice: Any) -> bool:
    return isinstance(choice, Mapping) and choice.get("type") == "allowed_tools"


def is_allowed(name: str, choice: Any) -> bool:
    """False for a function that an `allowed_tools` choice does not list.

    Some hosts ignore the choice, so it is checked here: a call of such a function is
    treated as a call of an unknown tool.
    """
    return not is_limited(choice) or any(
        tool.get("name") == name and tool.get("type") in ("function", "custom")
        for tool in choice["tools"]
    )


def choice_after_calls(choice: Any) -> Any:
    """The tool choice after a round of calls: a required call is required only once."""
    if is_limited(choice):
        return {**choice, "mode": "auto"}
    return choice if choice in (None, "none", "auto") else "auto"


def calls_without_output(items: Sequence[Item]) -> list[Item]:
    """Completed calls that have no output. An incomplete call is never run."""
    call_ids_with_output = {
        i["call_id"] for i in items if i["type"] == "function_call_output"
    }
    return [
        item
        for item in items
        if item["type"] == "function_call"
        and item["status"] == "completed"
        and item["call_id"] not in call_ids_with_output
    ]


def rounds(items: Sequence[Item]) -> int:
    """The number of provider calls that produced these items."""
    count, is_new_round = 0, True
    for item in items:
        if _asks_the_model(item):
            is_new_round = True
        elif is_new_round:
            count, is_new_round = count + 1, False
    return count


def goes_in_circles(items: Sequence[Item]) -> bool:
    """Whether the last `REPEATS` rounds had the same calls with the same outputs, and
    no user message came between them; or the last `EQUAL_CALLS` had the same calls.

    A model that asks for a job's state until it changes repeats its call, and learns
    something at last. But an output with a time or a number of its own differs each
    time, and teaches nothing; so does the result of a background call.
    """
    if len(items) < 2 * REPEATS:  # a round has a call and its output at least
        return False
    outputs = {
        item["call_id"]: item["output"]
        for item in items
        if item["type"] == "function_call_output"
    }
    since_message = _rounds_of_calls(items, is_border=_is_user_message)
    last = [
        [(*_name_and_arguments(call), outputs.get(call["call_id"])) for call in calls]
        for calls in since_message[-REPEATS:]
    ]
    if _are_equal(last, REPEATS):
        return True
    since_person = _rounds_of_calls(items, is_border=_is_of_person)
    return _are_equal(
        [list(map(_name_and_arguments, each)) for each in since_person[-EQUAL_CALLS:]],
        EQUAL_CALLS,
    )


def _rounds_of_calls(
    items: Sequence[Item], is_border: Callable[[Item], bool]
) -> list[list[Item]]:
    """The calls of each round after the last border."""
    rounds: list[list[Item]] = []
    before = ""
    for item in items:
        if is_border(item):
            rounds = []
        elif item["type"] == "function_call":
            if before != "function_call":
                rounds.append([])
            rounds[-1].append(item)
        before = item["type"]
    return rounds


def _are_equal(rounds: Sequence[Any], count: int) -> bool:
    return len(rounds) == count and all(each == rounds[0] for each in rounds)


def _name_and_arguments(call: Item) -> tuple[str, str]:
    return call["name"], call["arguments"]


def _is_user_message(item: Item) -> bool:
    return item.get("role") == "user"


def _is_of_person(item: Item) -> bool:
    return _is_user_message(item) and CALL_ID_KEY not in item


def _asks_the_model(item: Item) -> bool:
    """Whether the server added this item: a call's output, the result of a background
    call as a user message, or a summary of earlier items."""
    if item["type"] == "function_call_output" or item.get("role") == "user":
        return True
    return is_compaction(item)
