"""The tools of an MCP server as it lists them, and what we call them. Pure.

Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from tools.registry import Replay

LONGEST_NAME = 64  # what every provider takes
_HASH = 8  # characters
_ODD = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """`name` is the server's own. The schema is kept as it came, unread."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    annotations: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Definition:
        """The inverse of `stored`. Raises KeyError."""
        return cls(
            name=stored["name"],
            description=stored["description"],
            parameters=stored["parameters"],
            annotations=stored["annotations"],
            title=stored["title"],
        )

    @property
    def stored(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "parameters": dict(self.parameters),
            "annotations": dict(self.annotations),
        }

    @property
    def digest(self) -> str:
        """Of all that a model or our own handling of the tool depends on."""
        told = [self.description, self.parameters, self.annotations]
        text = orjson.dumps(told, option=orjson.OPT_SORT_KEYS, default=dict)
        return sha256(text).hexdigest()

    @property
    def readable(self) -> str:
        """Arguments and annotations, for people."""
        told = {"parameters": self.parameters, "annotations": self.annotations}
        return orjson.dumps(told, option=orjson.OPT_INDENT_2, default=dict).decode()

    @property
    def reads_only(self) -> bool:
        """As far as the server says. Staff approve it with the rest."""
        return self.annotations.get("readOnlyHint") is True

    @property
    def replay(self) -> Replay:
        """What the server says a crash may repeat. Staff approve it with the rest."""
        if self.reads_only:
            return "safe"
        return (
            "idempotent" if self.annotations.get("idempotentHint") is True else "once"
        )


def namespaced(server: str, tool: str) -> str:
    """`server__tool`, as every provider takes it; for other tools another name.

    A name that has to be mended or cut ends in a digest of what it was.
    """
    mended = f"{server}__{_ODD.sub('_', tool)}"
    if mended == f"{server}__{tool}" and len(mended) <= LONGEST_NAME:
        return mended
    digest = sha256(tool.encode()).hexdigest()[:_HASH]
    return f"{mended[: LONGEST_NAME - _HASH - 1]}_{digest}"
