"""Validate the tools that a client declares, and convert them to canonical form. Pure.

In: `options.tools` as it was sent. Out: definitions in the shape of the Responses API,
for functions that the client runs and for tools that the model's provider runs.
`llm.adaptation.hosted_tools` decides which of the latter a model supports.

Source: https://www.openresponses.org/specification (tools)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from conversations.input.checks import (
    MAX_DEPTH,
    InputError,
    boolean,
    is_deeper,
    mapping,
    record,
    require,
    short_repr,
    string,
)
from llm.wire.json_pointer import format_path
from tools.json_schema.schema_mistakes import EMPTY, schema_mistakes

MAX_DECLARED = 128  # tools; OpenAI accepts no more
MAX_DESCRIPTION = 10_000  # characters

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPE = re.compile(r"[a-z][a-z0-9_.:-]{0,63}")
#: Fields with secrets, which are refused: a turn's tools are stored unencrypted, and
#: all readers of its conversation can see them.
_SECRET_FIELDS = ("authorization", "headers")


def tools(value: Any, where: str) -> list[dict[str, Any]]:
    """Raises InputError."""
    if not isinstance(value, list):
        raise InputError(where, "expected a list of tools.", code="invalid_type")
    if len(value) > MAX_DECLARED:
        raise InputError(where, f"at most {MAX_DECLARED} tools are allowed.")
    declared = [_tool(each, f"{where}[{n}]") for n, each in enumerate(value)]
    names: set[str] = set()
    for index, tool in enumerate(declared):
        if tool["type"] != "function":
            continue
        if tool["name"] in names:
            problem = f"two functions are named {tool['name']!r}."
            raise InputError(f"{where}[{index}].name", problem)
        names.add(tool["name"])
    return declared


def function_name(value: Any, where: str) -> str:
    name = string(value, where)
    if not _NAME.fullmatch(name):
        raise InputError(where, "expected 1 to 64 letters, digits, '_' or '-'.")
    return name


def schema(value: Any, where: str) -> dict[str, Any]:
    """A JSON object with at most `MAX_DEPTH` levels."""
    checked = dict(mapping(value, where))
    if is_deeper(checked):
        raise InputError(where, f"nested more than {MAX_DEPTH} levels deep.")
    return checked


def _tool(value: Any, where: str) -> dict[str, Any]:
    fields = mapping(value, where)
    kind = require(fields, "type", where)
    if kind == "function":
        return _function(fields, where)
    if kind == "custom" or not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise InputError(
            f"{where}.type",
            f"{short_repr(kind)} cannot be declared; 'function' can, and tools that the"
            " model's provider runs, such as 'web_search'.",
        )
    return _hosted_tool(fields, where)


def _function(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    checked = _FUNCTION(fields, where)
    return {
        "type": "function",
        "name": checked["name"],
        "description": checked.get("description", ""),
        "parameters": checked.get("parameters", dict(EMPTY)),
        "strict": checked.get("strict", False),
    }


def _description(value: Any, where: str) -> str:
    text = string(value, where)
    if len(text) > MAX_DESCRIPTION:
        raise InputError(where, f"at most {MAX_DESCRIPTION} characters are allowed.")
    return text


def _parameters(value: Any, where: str) -> dict[str, Any]:
    checked = schema(value, where)
    for path, text in schema_mistakes(checked):
        at = f"at {format_path(path)}: " if path else ""
        raise InputError(where, f"{at}{text}.")
    return checked


_FUNCTION = record(
    {
        "type": string,
        "name": function_name,
        "description": _description,
        "parameters": _parameters,
        "strict": boolean,
    },
    ["name"],
)


def _hosted_tool(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    for name in _SECRET_FIELDS:
        if name in fields:
            raise InputError(
                f"{where}.{name}",
                "turns are stored unencrypted, so secrets must not be in them; ask the"
                " staff to set up this MCP server.",
            )
    return schema(fields, where)
