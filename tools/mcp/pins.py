"""What staff approved of a server's tools, against what the server lists now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from tools.differences import Line, differing
from tools.mcp.definitions import Definition


@dataclass(frozen=True, slots=True)
class Change:
    """A tool that is no longer what was approved."""

    pinned: Definition
    listed: Definition

    @property
    def parts(self) -> list[tuple[str, list[Line]]]:
        """Those that are not the same, each line by line."""
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


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    return orjson.dumps(value, option=options, default=dict).decode()
