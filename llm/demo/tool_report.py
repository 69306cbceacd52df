"""The demo's texts before and after its tool calls, made from arguments and outputs.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from llm.demo.prompt import AnsweredCall
from llm.demo.steps import CallTool
from llm.demo.tool_selection import MATHS_TOOL, TIME_TOOL, WEATHER_TOOL

MAX_OUTPUT = 2_000  # characters of one output that are repeated
MAX_LINES = 20  # of one output

_CLOSING = (
    "The facts come from the tools, the sentences from a script: I am a demo and no AI."
)
_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-([01]\d|2[0-8])T([01]\d|2[0-3])(:[0-5]\d){1,2}"
    r"([+-][01]\d:[0-5]\d|Z)?"
)
_SPECIAL = re.compile(r"([\\`*])")


def preamble(calls: Sequence[CallTool]) -> str:
    names = [f"`{name}`" for name in dict.fromkeys(call.name for call in calls)]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    return f"Let me look that up with {listed}."


def report(answered: Sequence[AnsweredCall]) -> str:
    """Markdown with one entry for each call, in order."""
    found = "\n".join(line for call in answered for line in _entry(call))
    return f"### Here is what I found\n\n{found}\n\n{_CLOSING}"


def _entry(call: AnsweredCall) -> Iterator[str]:
    title = _title(call)
    match _value(call.output):
        case dict(fields) if fields:
            yield f"- **{title}**"
            argument_values = list(call.arguments.values())
            new_fields = [
                (name, value)
                for name, value in fields.items()
                if value not in argument_values
            ]
            for name, value in new_fields[:MAX_LINES]:
                yield f"    - {_label(name)}: {_format_value(value)}"
        case list(entries) if entries:
            yield f"- **{title}**"
            yield from (
                f"    - {_format_value(entry)}" for entry in entries[:MAX_LINES]
            )
        case value:
            yield from _text(title, value)


def _text(title: str, value: Any) -> Iterator[str]:
    lines = [line for line in _format_value(value).splitlines() if line.strip()] or [
        "nothing"
    ]
    if len(lines) == 1:
        yield f"- **{title}:** {lines[0].strip()}"
        return
    yield f"- **{title}**"
    yield from (f"    - {line.strip()}" for line in lines[:MAX_LINES])


def _title(call: AnsweredCall) -> str:
    subject = next((v for v in call.arguments.values() if isinstance(v, str)), "")
    subject = subject[:80]
    if not subject:
        return f"`{call.name}`"
    if WEATHER_TOOL.search(call.name):
        return f"Weather in {_escape_markdown(subject)}"
    if TIME_TOOL.search(call.name):
        return (
            f"Time in {_escape_markdown(subject.rpartition('/')[2].replace('_', ' '))}"
        )
    if MATHS_TOOL.search(call.name):
        return f"`{subject.replace('`', '')}`"
    return f"`{call.name}` for {_escape_markdown(subject)}"


def _value(output: str) -> Any:
    """The output as JSON if it is an object, a list or a string, else as it is."""
    if len(output) > MAX_OUTPUT:
        return f"{output[:MAX_OUTPUT]}…"
    try:
        value = orjson.loads(output)
    except orjson.JSONDecodeError:
        return output
    return value if isinstance(value, dict | list | str) else output


def _format_value(value: Any) -> str:
    match value:
        case str() if _TIME.fullmatch(value):
            time = datetime.fromisoformat(value)
            return f"{time.day} {time:%B %Y, %H:%M}"
        case str():
            return _escape_markdown(value)
        case bool():
            return "yes" if value else "no"
        case None:
            return "nothing"
        case Mapping() | list():
            return f"`{orjson.dumps(value).decode().replace('`', '')}`"
    return str(value)


def _label(name: str) -> str:
    """`wind_speed` as "Wind speed"."""
    text = _escape_markdown(name.replace("_", " ").strip())
    return (text[:1].upper() + text[1:]).replace("Utc", "UTC")


def _escape_markdown(text: str) -> str:
    """Escape Markdown in a tool's output."""
    return _SPECIAL.sub(r"\\\1", text)
