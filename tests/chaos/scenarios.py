"""The scenarios: texts and calls of a model, one answer after another.

A step is the provider's next answer to a message. Which one is due is read off the
prompt, as a real model does, so a step that was interrupted is answered again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .answers import Answer, Call, End, Part, Say, Search, Think, numbered
from .prompt import Entry, Output, Result
from .prompt import Search as Searched
from .wish import Wish

#: A part of a step: its kind, or the name of the tool that is called.
Kind = str
CALLED = ("chaos_once", "chaos_same", "chaos_safe", "chaos_later", "chaos_again")
LATER = ("chaos_later", "chaos_again")


@dataclass(frozen=True, slots=True)
class Step:
    parts: tuple[Kind, ...]
    end: End = "stop"


def _calls(*parts: Kind) -> Step:
    return Step(parts, "calls")


def _reply(*parts: Kind) -> Step:
    return Step(parts)


SCENARIOS: Mapping[str, Sequence[Step]] = {
    "plain": [_reply("say")],
    "think": [_reply("think", "say")],
    "two messages": [_reply("think", "say", "think", "say")],
    "loop": [
        _calls("think", "chaos_safe"),
        _calls("think", "say", "chaos_once"),
        _reply("think", "say"),
    ],
    "parallel": [
        _calls("think", "chaos_once", "chaos_same", "chaos_safe"),
        _reply("think", "say"),
    ],
    "background": [
        _calls("think", "chaos_later"),
        _reply("say"),
        _reply("think", "say"),
    ],
    "two in the background": [
        _calls("chaos_later", "chaos_again"),
        _reply("think", "say"),
        _reply("think", "say"),
        _reply("think", "say"),
    ],
    "hosted": [_reply("think", "search", "say")],
    "pause": [Step(("think", "search"), "pause"), _reply("think", "say")],
    "continuation": [_reply("think", "say")],
    "huge": [_reply("say")],
}
#: Ended by nothing but a bound or a Stop: each result makes the model call again. No
#: storm draws it.
ENDLESS = "endless"
_ENDLESS_STEPS = [_calls("chaos_again"), _reply("say")]
#: Scenarios that only some wire formats can express.
ONLY_ON: Mapping[str, Sequence[str]] = {
    "two messages": ("responses", "anthropic", "gemini"),
    "hosted": ("responses", "anthropic", "gemini"),
    "pause": ("anthropic",),
    "continuation": ("gemini",),
}


def step_due(scenario: str, entries: Sequence[Entry]) -> int:
    """The number of the step that follows these entries, all after the wish."""
    if scenario == ENDLESS:
        return int(bool(entries) and isinstance(entries[-1], Output))
    steps = SCENARIOS[scenario]
    results = sum(isinstance(entry, Result) for entry in entries)
    if results:
        return min(len(steps) - _later_calls(steps) - 1 + results, len(steps) - 1)
    if scenario == "pause":
        return int(any(isinstance(entry, Searched) for entry in entries))
    done = sum(isinstance(entry, Output) for entry in entries)
    number = 0
    for step in steps:
        called = sum(part in CALLED for part in step.parts)
        if not called or done < called:
            break
        done -= called
        number += 1
    return number


def _later_calls(steps: Sequence[Step]) -> int:
    return sum(part in LATER for step in steps for part in step.parts)


def answer_to(wish: Wish, step: int, request_number: int) -> Answer:
    """Each request gets other words, unless the wish says `same`."""
    planned = SCENARIOS.get(wish.scenario, _ENDLESS_STEPS)[step]
    source = f"s{step}" if wish.same else f"a{request_number}"
    parts = tuple(
        _part(kind, wish, source, number) for number, kind in enumerate(planned.parts)
    )
    return Answer(source, step, parts, planned.end)


def _part(kind: Kind, wish: Wish, source: str, number: int) -> Part:
    if make := _PARTS.get(kind):
        return make(wish, source, number)
    mark = f"{wish.id}_{source}_{number}"
    return Call(f"call_{mark}", kind, {"mark": mark, "work": wish.work})


def _think(wish: Wish, source: str, number: int) -> Think:
    words = max(1, wish.words // 4)
    return Think(numbered(source, number, words), f"proof_{wish.id}_{source}_{number}")


def _say(wish: Wish, source: str, number: int) -> Say:
    return Say(numbered(source, number, wish.words, wish.size))


def _search(wish: Wish, source: str, number: int) -> Search:
    mark = f"{wish.id}_{source}_{number}"
    return Search(f"ws_{mark}", f"{source}-{number}-1", f"https://example.com/{mark}")


_PARTS: Mapping[Kind, Callable[[Wish, str, int], Part]] = {
    "think": _think,
    "say": _say,
    "search": _search,
}
