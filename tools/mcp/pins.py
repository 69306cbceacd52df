"""What staff approved of a server's tools, against what the server lists now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff

import orjson

from tools.mcp.definitions import Definition


@dataclass(frozen=True, slots=True)
class Change:
    """A tool that is no longer what was approved."""

    pinned: Definition
    listed: Definition

    @property
    def diff(self) -> str:
        """As people read it: a line that went begins with "-", a new one with "+"."""
        return "\n".join(
            line
            for part in ("description", "parameters", "annotations")
            for line in _diff(part, self.pinned, self.listed)
        )


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
    """Both by the server's own names, each in its own order."""
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


def _diff(part: str, pinned: Definition, listed: Definition) -> Iterator[str]:
    old, new = _lines(getattr(pinned, part)), _lines(getattr(listed, part))
    lines = unified_diff(old, new, part, part, lineterm="", n=3)
    for line in lines:
        if not line.startswith(("---", "+++")) or line[3:].strip() != part:
            yield line
        elif line.startswith("+++"):
            yield f"{part}:"


def _lines(value: object) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    return orjson.dumps(value, option=options, default=dict).decode().splitlines()
