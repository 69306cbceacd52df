"""Diffs of two texts line by line, and of two snapshots by field, for pages. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

CONTEXT = 3  # unchanged lines before and after a change
MAX_LINES = 2_000  # lines that are compared; the time grows with their square

Sign = Literal["+", "-", " ", "…"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    sign: Sign  # added, removed, unchanged, or unchanged lines left out
    text: str = ""


def diff_lines(before: str, after: str) -> list[DiffLine]:
    """Removed and added lines, with a few unchanged lines around them."""
    old, new = before.splitlines(), after.splitlines()
    start, rest = _count_equal_ends(old, new)
    if max(len(old), len(new)) - start - rest > MAX_LINES:
        return [DiffLine("…", f"{len(old)} lines became {len(new)}.")]
    # Of the equal ends, only what is shown around the changes is compared.
    skipped, left_out = max(start - CONTEXT - 1, 0), max(rest - CONTEXT - 1, 0)
    return _diff(old[skipped : len(old) - left_out], new[skipped : len(new) - left_out])


def _count_equal_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines at the start and, after them, at the end are the same."""
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    most = shorter - start
    differing = (n for n in range(most) if old[-1 - n] != new[-1 - n])
    return start, next(differing, most)


def _diff(old: list[str], new: list[str]) -> list[DiffLine]:
    lines: list[DiffLine] = []
    end = 0  # of the last reported group, as a line number of the old text
    for group in SequenceMatcher(None, old, new, False).get_grouped_opcodes(CONTEXT):
        if group[0][1] > end:
            lines.append(DiffLine("…"))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [DiffLine(" ", text) for text in old[i1:i2]]
                continue
            lines += [DiffLine("-", text) for text in old[i1:i2]]
            lines += [DiffLine("+", text) for text in new[j1:j2]]
        end = group[-1][2]
    if lines and end < len(old):
        lines.append(DiffLine("…"))
    return lines


@dataclass(frozen=True, slots=True)
class FieldDifference:
    field: str  # as shown to staff
    lines: list[DiffLine]


def diff_fields(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[FieldDifference]:
    """One difference for each field that changed, in the order of the fields."""
    return [
        FieldDifference(
            name, diff_lines(_to_text(before.get(name)), _to_text(after.get(name)))
        )
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _to_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, indent=2, ensure_ascii=False)
