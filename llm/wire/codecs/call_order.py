"""Outputs of calls where every host takes them: behind the calls of their round. Pure.

The Responses API lets a user speak between a call and its output, and models go on
after some of their calls were answered. Others refuse a call whose output does not
follow at once, and all of them a call without one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import count

from llm.wire.items import CALL_OUTPUTS, CALLS, Item

#: The output of a call that has none.
NOT_RUN = "Error: the call was not run."


def pair_calls(
    items: Sequence[Item], answered: Collection[str], *, moves: bool = True
) -> Sequence[Item]:
    """Return `items` with an output for each function call, right behind the calls of
    its round; `items` itself if they are so already. `answered` has the ids of calls
    with outputs.

    Without `moves`, missing outputs are added, and only outputs that come before their
    calls are moved.
    """
    waiting: set[str] = set()
    has_output = False  # a call of this round was answered
    for item in items:
        kind = item.get("type", "message")
        if kind in CALLS:
            if waiting and has_output:
                break
            if kind == "function_call" or item["call_id"] in answered:
                waiting.add(item["call_id"])
            has_output = False
        elif kind in CALL_OUTPUTS:
            waiting.discard(item["call_id"])
            has_output = True
        elif waiting and (has_output or _ends_round(kind, item)):
            break
    else:
        if not waiting:
            return items
    return list(_pair(items, _match(items), moves=moves))


def separate_equal_ids(items: Sequence[Item]) -> Sequence[Item]:
    """Give ids of their own to calls of one round that have the same id, or none. Their
    outputs, which come in the order of the calls, get the same ids. Returns `items`
    itself if there is no such call. The new ids are the same each time, so hosts find
    the prompt in their caches."""
    if not _has_equal_ids(items):
        return items
    pairs, result = _match(items), list(items)
    known = {item["call_id"] for item in items if item.get("type") in CALLS}
    numbers: dict[str, Iterator[int]] = {}  # of the new ids
    used: set[str] = set()  # in this round
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if _ends_round(kind, item):
            used = set()
        elif kind in CALLS:
            call_id = item["call_id"]
            if not call_id or call_id in used:
                number = numbers.setdefault(call_id, count(2))
                ids = (f"{call_id or 'call'}_{each}" for each in number)
                call_id = next(each for each in ids if each not in known)
                known.add(call_id)
                result[index] = {**item, "call_id": call_id}
                if (output := pairs.get(index)) is not None:
                    result[output] = {**items[output], "call_id": call_id}
            used.add(call_id)
    return result


def _has_equal_ids(items: Sequence[Item]) -> bool:
    used: set[str] = set()
    for item in items:
        kind = item.get("type", "message")
        if kind in CALLS:
            if not item["call_id"] or item["call_id"] in used:
                return True
            used.add(item["call_id"])
        elif used and _ends_round(kind, item):
            used = set()
    return False


def _ends_round(kind: str, item: Item) -> bool:
    if kind == "message":
        return item.get("role") != "assistant"
    return kind in CALL_OUTPUTS or kind == "computer_call_output"


def _match(items: Sequence[Item]) -> dict[int, int]:
    """Indexes of outputs, by those of their calls. Some hosts count their calls anew
    with every answer: an output belongs to the last round that has its id. One that
    comes before its call, in the same turn, counts if there is no later one."""
    pairs: dict[int, int] = {}
    early: dict[str, deque[int]] = {}  # outputs of this turn without calls so far
    too_early: dict[int, int] = {}  # such outputs by their calls
    waiting: dict[str, list[tuple[int, deque[int]]]] = {}  # calls by their rounds
    number = 0
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in CALLS:
            rounds = waiting.setdefault(item["call_id"], [])
            if not rounds or rounds[-1][0] != number:
                rounds.append((number, deque()))
            rounds[-1][1].append(index)
            if outputs := early.get(item["call_id"]):
                too_early[index] = outputs.popleft()
            continue
        number += _ends_round(kind, item)
        if kind not in CALL_OUTPUTS:
            if _ends_round(kind, item):
                early = {}
        elif rounds := waiting.get(item["call_id"], []):
            calls = rounds[-1][1]
            pairs[calls.popleft()] = index
            if not calls:
                rounds.pop()
        else:
            early.setdefault(item["call_id"], deque()).append(index)
    return too_early | pairs


def _pair(
    items: Sequence[Item], pairs: dict[int, int], *, moves: bool
) -> Iterator[Item]:
    moved = {output for call, output in pairs.items() if moves or output < call}
    calls: list[int] = []
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if _ends_round(kind, item):
            yield from _outputs(items, calls, pairs, moves=moves)
            calls = []
        if index not in moved:
            yield item
        if kind in CALLS:
            calls.append(index)
    yield from _outputs(items, calls, pairs, moves=moves)


def _outputs(
    items: Sequence[Item], calls: Sequence[int], pairs: dict[int, int], *, moves: bool
) -> Iterator[Item]:
    """The outputs of a round. A custom call without one was not meant for the client:
    xAI reports calls of its own tools so."""
    for index in calls:
        if (output := pairs.get(index)) is not None:
            if moves or output < index:
                yield items[output]
        elif items[index]["type"] == "function_call":
            call_id = items[index]["call_id"]
            yield {
                "type": "function_call_output",
                "call_id": call_id,
                "output": NOT_RUN,
            }
