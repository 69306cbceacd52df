"""Comparison of a server's approved tools with the tools that it lists now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from tools.differences import Line, differing
from tools.mcp.definitions import Definition


@dataclass(frozen=True, slots=True)
class Change:
    """A tool whose definition differs from the approved one."""

    pinned: Definition
    listed: Definition

    @property
    def parts(self) -> list[tuple[str, list[Line]]]:
        """The parts that differ, each with its diff lines."""
        both = [
            (part, _text(getattr(self.pinned, part)), _text(getattr(self.listed, part)))
            for part in ("description", "parameters", "annotations")
        ]
        return [(part, differing(old, new)) for part, old, new in both if old != new]


@dataclass(frozen=True, slots=True)
class Comparison:
    new: tuple[Definition, ...] = ()
    changed: tuple[Change, ...] = ()
    gone: tuple[Definition, ...] = ()
    same: tuple[Definition, ...] = ()

    @property
    def has_news(self) -> bool:
        return bool(self.new or self.changed or self.gone)


def compare(
    pinned: Mapping[str, Definition], listed: Iterable[Definition]
) -> Comparison:
    """Matches the tools by the server's own names and keeps the order of each side."""
    found = {definition.name: definition for definition in listed}
    both = [(old, found[name]) for name, old in pinned.items() if name in found]
    return Comparison(
        new=tuple(each for name, each in found.items() if name not in pinned),
        changed=tuple(
            Change(old, now) for old, now in both if old.digest != now.digest
        ),
        gone=tuple(old for name, old in pinned.items() if name not in found),
        same=tuple(now for old, now in both if old.digest == now.digest),
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    return orjson.dumps(value, option=options, default=dict).decode()
