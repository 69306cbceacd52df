"""Changes, notes and problems of a load; each line begins with a path in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class ConfigError(Exception):
    """The file has problems, each with the path of its table or field."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


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
