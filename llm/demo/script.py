"""The demo's answers: a prompt in, a script out. Pure and deterministic.

The demo answers a few questions, calls the tools in the request, and follows
instructions that begin with a slash, which also produce each kind of failure. *Stage
directions* (`/think`, `/slow 5`, `/cut`, `/fail stream`) set how the rest of the
message is answered and may be combined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson

from llm.demo.problem import Problem, find_failure
from llm.demo.prompt import DemoPrompt
from llm.demo.schema_sample import Endless, sample
from llm.demo.steps import CallTool, Ending, Say, Script, Step, Think
from llm.demo.texts import (
    GREETING,
    HELP,
    NO_NAME,
    NO_TOOL,
    NOTHING_BEFORE,
    SHOWPIECE,
    THANKS,
)
from llm.demo.tool_report import preamble, report
from llm.demo.tool_selection import MAX_READ, choose_calls, find_topic

MAX_DELAY = 600.0  # seconds for `/slow`
MAX_NUMBERS = 100_000  # words of `/long`
MAX_DIRECTIONS = 10
STAGED_NUMBERS = 60  # counted for `/cut` and `/fail stream` without a question

_DIRECTION = re.compile(
    r"\s*/(?:(think)|(cut)|slow +(\d{1,4}(?:\.\d{1,3})?)|fail +(stream))(?:\s+|\Z)"
)
_THINK = re.compile(
    r"^think\b|\bthink (hard|harder|carefully|first|about|it through)\b"
    r"|\bstep by step\b",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(r"\s*(/\S+)\s?(.*)", re.DOTALL)
_EXACTLY = re.compile(
    r"\b(?:(?:reply|say|answer|respond|repeat)\b[^:\n]{0,60}\bexactly|repeat after me)"
    r"[^:\n]{0,20}:\s*(?=\S)",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"\bcount (?:slowly )?(?:from (\d{1,6}) )?(?:down )?to (\d{1,6})", re.IGNORECASE
)
_MY_NAME = re.compile(r"\b(?:my name is|call me|i am called) (\w[\w'’-]*)", re.I)
_WHOSE_NAME = re.compile(r"\bwhat(?:’s|'s| is) my name\b|\bwho am i\b", re.IGNORECASE)
_BEFORE = re.compile(
    r"\bwhat did i (?:just )?(?:say|ask|write)\b"
    r"|\bmy (?:last|previous) (?:message|question)\b",
    re.IGNORECASE,
)
#: The message in which Parley reports the result of a background call.
_ARRIVED = re.compile(r"Result of the call \S+ of (\S+) in the background:\s*")
_THANKS = re.compile(r"\s*(thanks|thank you|thx|cheers)\b", re.IGNORECASE)


def script_for(prompt: DemoPrompt) -> Script:
    """Raises Problem if the prompt requests an error status."""
    prompt, staging = _take_directions(prompt)
    steps = _steps(prompt)
    if prompt.effort or _THINK.search(prompt.question[:200]):
        steps = [Think(_thoughts(prompt, steps)), *steps]
    return replace(staging, steps=steps).truncate(prompt.max_words)


def _take_directions(prompt: DemoPrompt) -> tuple[DemoPrompt, Script]:
    """Remove the stage directions from the question, and return both."""
    position, effort, delay = 0, prompt.effort, 0.0
    ending: Ending = "whole"
    for _ in range(MAX_DIRECTIONS):
        if not (match := _DIRECTION.match(prompt.question, position)):
            break
        position = match.end()
        effort = "medium" if match[1] else effort
        delay = min(delay + float(match[3] or 0), MAX_DELAY)
        ending = "cut" if match[2] else "error" if match[4] else ending
    question = prompt.question[position:]
    if ending != "whole" and not question:
        question = f"/long {STAGED_NUMBERS}"
    staging = Script(steps=(), delay=delay, ending=ending)
    return replace(prompt.with_question(question), effort=effort), staging


def _steps(prompt: DemoPrompt) -> list[Step]:
    if arrived := _ARRIVED.match(prompt.question):
        result = prompt.question[arrived.end() :][:500]
        return [Say(f"The result of `{arrived[1]}` is there: {result}")]
    text = _follow_instruction(prompt)
    if text is not None and not prompt.must_call:
        return [Say(text)]
    if calls := choose_calls(prompt):
        preamble_steps = (
            [] if prompt.answered else [Say(preamble(calls), phase="commentary")]
        )
        return [*preamble_steps, *calls]
    if prompt.schema is not None:
        return [Say(_answer_by_schema(prompt))]
    if prompt.answered:
        return [Say(report(prompt.answered))]
    return [Say(_reply(prompt))]


def _follow_instruction(prompt: DemoPrompt) -> str | None:
    """The answer to a slash instruction; None if there is none or a tool answers."""
    match = _INSTRUCTION.match(prompt.question)
    if match is None:
        return None
    return _INSTRUCTIONS.get(match[1], _unknown)(prompt, match[2])


def _fail(prompt: DemoPrompt, rest: str) -> str:
    if problem := find_failure(rest.strip() or "500"):
        raise problem
    return _unknown(prompt, rest)


def _long(prompt: DemoPrompt, rest: str) -> str:
    number = rest.strip() or "1000"
    if not number.isdecimal() or len(number) > 6:
        return _unknown(prompt, rest)
    return " ".join(map(str, range(1, min(int(number), MAX_NUMBERS) + 1)))


def _tool(prompt: DemoPrompt, rest: str) -> str | None:
    name = rest.partition(" ")[0]
    if prompt.answered or any(tool.name == name for tool in prompt.tools):
        return None
    offered = ", ".join(f"`{tool.name}`" for tool in prompt.tools) or "none"
    return f"I was not offered that tool. The tools on offer: {offered}."


def _unknown(prompt: DemoPrompt, rest: str) -> str:
    return f"I do not know that instruction.\n\n{HELP}"


_INSTRUCTIONS: dict[str, Callable[[DemoPrompt, str], str | None]] = {
    "/fail": _fail,
    "/long": _long,
    "/tool": _tool,
    "/markdown": lambda prompt, rest: SHOWPIECE,
    "/echo": lambda prompt, rest: rest,
    "/help": lambda prompt, rest: HELP,
}


def _answer_by_schema(prompt: DemoPrompt) -> str:
    assert prompt.schema is not None
    try:
        return orjson.dumps(sample(prompt.schema)).decode()
    except Endless as exc:
        raise Problem(
            400,
            f"Invalid schema for response_format: {exc}",
            code="invalid_json_schema",
            param="text.format.schema",
        ) from exc


def _reply(prompt: DemoPrompt) -> str:
    question = prompt.question[:MAX_READ]
    if match := _EXACTLY.search(question):
        return prompt.question[match.end() :].rstrip()
    if match := _COUNT.search(question):
        return _count(int(match[1] or 1), int(match[2]))
    if _WHOSE_NAME.search(question):
        return _name(prompt)
    if _BEFORE.search(question):
        return _before(prompt)
    if topic := find_topic(question):
        return NO_TOOL[topic]
    if _THANKS.match(question):
        return THANKS
    return _greeting(prompt)


def _count(first: int, last: int) -> str:
    step = 1 if first <= last else -1
    last = max(min(last, first + MAX_NUMBERS), first - MAX_NUMBERS)
    return ", ".join(map(str, range(first, last + step, step)))


def _name(prompt: DemoPrompt) -> str:
    for message in reversed(prompt.user_messages):
        if match := _MY_NAME.search(message.text):
            return f"Your name is {match[1]}."
    return NO_NAME


def _before(prompt: DemoPrompt) -> str:
    if len(prompt.user_messages) < 2:
        return NOTHING_BEFORE
    before = prompt.user_messages[-2].text[:300].replace("\n", "\n> ")
    return f"Before this you wrote:\n\n> {before}"


def _greeting(prompt: DemoPrompt) -> str:
    attached = prompt.user_messages[-1].attachments if prompt.user_messages else 0
    if not attached:
        return GREETING
    things = "one attachment" if attached == 1 else f"{attached} attachments"
    return f"I got {things}, but a script cannot look inside.\n\n{GREETING}"


def _thoughts(prompt: DemoPrompt, steps: Sequence[Step]) -> tuple[str, ...]:
    """The scripted reasoning summary."""
    question = " ".join(prompt.question.split())
    quoted = question if len(question) <= 120 else f"{question[:119]}…"
    reading = f"**Reading the question**\n\nThe person wrote: “{quoted}”."
    calls = [step.name for step in steps if isinstance(step, CallTool)]
    names = " and ".join(f"`{name}`" for name in dict.fromkeys(calls))
    if calls:
        plan = f"This needs {names}; with the results I can answer."
    elif prompt.answered:
        plan = "The tools have answered; what is left is to put it in a few words."
    else:
        plan = "No tool is needed for this; the script has the words."
    return reading, f"**Planning the answer**\n\n{plan}"
