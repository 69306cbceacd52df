"""Line-by-line diff of two texts, for display. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

CONTEXT = 3  # unchanged lines before and after a change
MAX_LINES = 2_000  # lines that are compared; the time grows with their square

Sign = Literal["+", "-", " ", "…"]


@dataclass(frozen=True, slots=True)
class Line:
    sign: Sign  # added, removed, unchanged, or unchanged lines left out
    text: str = ""


def differing(before: str, after: str) -> list[Line]:
    """Removed and added lines, with a few unchanged lines around them."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MAX_LINES:
        return [Line("…", f"{len(old)} lines became {len(new)}.")]
    lines: list[Line] = []
    end = 0  # of the last reported group, as a line number of the old text
    for group in SequenceMatcher(None, old, new, False).get_grouped_opcodes(CONTEXT):
        if group[0][1] > end:
            lines.append(Line("…"))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [Line(" ", text) for text in old[i1:i2]]
                continue
            lines += [Line("-", text) for text in old[i1:i2]]
            lines += [Line("+", text) for text in new[j1:j2]]
        end = group[-1][2]
    if lines and end < len(old):
        lines.append(Line("…"))
    return lines
