"""Comparison of a server's approved tools with the tools that it lists now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import orjson

from tools.mcp.hidden_characters import reveal
from tools.mcp.tool_definition import ToolDefinition
from tools.text_diff import DiffLine, diff_lines


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A tool whose definition differs from the approved one."""

    pinned: ToolDefinition
    listed: ToolDefinition

    @property
    def parts(self) -> list[tuple[str, list[DiffLine]]]:
        """The parts that differ, each with its diff lines."""
        both = [
            (part, _text(getattr(self.pinned, part)), _text(getattr(self.listed, part)))
            for part in ("description", "parameters", "annotations")
        ]
        return [(part, diff_lines(old, new)) for part, old, new in both if old != new]


@dataclass(frozen=True, slots=True)
class ToolComparison:
    new: tuple[ToolDefinition, ...] = ()
    changed: tuple[ToolChange, ...] = ()
    gone: tuple[ToolDefinition, ...] = ()
    same: tuple[ToolDefinition, ...] = ()

    @property
    def has_news(self) -> bool:
        return bool(self.new or self.changed or self.gone)


def compare(
    pinned: Mapping[str, ToolDefinition], listed: Iterable[ToolDefinition]
) -> ToolComparison:
    """Match the tools by the server's own names and keep the order of each side."""
    found = {definition.name: definition for definition in listed}
    both = [(old, found[name]) for name, old in pinned.items() if name in found]
    return ToolComparison(
        new=tuple(each for name, each in found.items() if name not in pinned),
        changed=tuple(
            ToolChange(old, now) for old, now in both if old.digest != now.digest
        ),
        gone=tuple(old for name, old in pinned.items() if name not in found),
        same=tuple(now for old, now in both if old.digest == now.digest),
    )


def leave_out(
    comparison: ToolComparison, rejected: Mapping[str, str]
) -> ToolComparison:
    """The comparison without listed definitions that have these digests, by name."""
    return replace(
        comparison,
        new=tuple(
            each for each in comparison.new if rejected.get(each.name) != each.digest
        ),
        changed=tuple(
            each
            for each in comparison.changed
            if rejected.get(each.listed.name) != each.listed.digest
        ),
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return reveal(value)
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    return reveal(orjson.dumps(value, option=options, default=dict).decode())
