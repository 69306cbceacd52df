"""Definitions of an MCP server's tools, and their names in Parley. Pure.

Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from tools.json_schema.arguments import why_invalid
from tools.json_schema.long_integers import as_floats
from tools.mcp.hidden_characters import count_hidden, reveal
from tools.runtime_tool import Replay

LONGEST_NAME = 64  # characters that every provider accepts
_HASH = 8  # characters
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as its server lists it. The schema is unchanged and not validated."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    annotations: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ToolDefinition:
        """The inverse of `as_dict`. Raises KeyError.

        Integers beyond 64 bits become floats, as no request could be written with them
        otherwise; PostgreSQL stores large floats as such integers.
        """
        return cls(
            name=stored["name"],
            description=stored["description"],
            parameters=as_floats(stored["parameters"]),
            annotations=as_floats(stored["annotations"]),
            title=stored["title"],
        )

    @property
    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "parameters": dict(self.parameters),
            "annotations": dict(self.annotations),
        }

    @property
    def digest(self) -> str:
        """Hash of all that a model or Parley's handling of the tool depends on."""
        relevant = [self.description, self.parameters, self.annotations]
        text = orjson.dumps(relevant, option=orjson.OPT_SORT_KEYS, default=dict)
        return sha256(text).hexdigest()

    @property
    def readable(self) -> str:
        """Parameters and annotations as indented JSON, hidden characters as codes."""
        return reveal(self._readable)

    @property
    def readable_description(self) -> str:
        return reveal(self.description)

    @property
    def hidden_characters(self) -> int:
        """How many characters a model reads that no page shows."""
        return count_hidden(self.description) + count_hidden(self._readable)

    @property
    def _readable(self) -> str:
        shown = {"parameters": self.parameters, "annotations": self.annotations}
        return orjson.dumps(shown, option=orjson.OPT_INDENT_2, default=dict).decode()

    @property
    def why_invalid(self) -> str:
        """Why no call of the tool can run, for staff; "" if its schema is valid."""
        return why_invalid(self.parameters)

    @property
    def reads_only(self) -> bool:
        """True if the server says so; staff approve the annotations too."""
        return self.annotations.get("readOnlyHint") is True

    @property
    def replay(self) -> Replay:
        """The replay class from the server's hints, which staff approve too."""
        if self.reads_only:
            return "safe"
        return (
            "idempotent" if self.annotations.get("idempotentHint") is True else "once"
        )


def build_tool_name(server: str, tool: str) -> str:
    """`server__tool`, in a form that every provider accepts.

    A name that has to be changed or cut ends in a hash of the original, so that
    different tools have different names.
    """
    name = f"{server}__{_INVALID_CHARACTER.sub('_', tool)}"
    if name == f"{server}__{tool}" and len(name) <= LONGEST_NAME:
        return name
    digest = sha256(tool.encode()).hexdigest()[:_HASH]
    return f"{name[: LONGEST_NAME - _HASH - 1]}_{digest}"
