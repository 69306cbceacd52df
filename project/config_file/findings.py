"""What a load finds out, in lines that each begin with the place in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class ConfigError(Exception):
    """The file cannot be loaded; each problem names its table and field."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Report:
    """What a load did, a line each; notes are no changes."""

    changes: Sequence[str]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a load has found so far. Where there is a problem, nothing is kept."""

    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
