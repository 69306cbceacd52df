"""Changes, notes and problems of a load; each line begins with a path in the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_WORD = 200  # characters, of a name that a problem repeats
MAX_PROBLEM = 2_000  # characters

_LONG_WORD = re.compile(rf"\S{{{MAX_WORD},}}")


class ConfigError(Exception):
    """The file has problems, each with the path of its table or field."""

    def __init__(self, problems: Sequence[str]) -> None:
        shown = [_cut(each) for each in problems]
        super().__init__("\n".join(shown))
        self.problems = shown


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a load, as lines. `notes` lists what stayed unchanged and why."""

    changes: Sequence[str]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Findings:
    """Lines collected during a load. After a problem the load is rolled back."""

    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _cut(problem: str) -> str:
    """Without most of a name that was filled with something else, such as a key."""
    words = _LONG_WORD.sub(lambda found: f"{found[0][: MAX_WORD // 2]}…", problem)
    return words if len(words) <= MAX_PROBLEM else f"{words[:MAX_PROBLEM]}…"
