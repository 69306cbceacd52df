"""Whether this process may create what a data folder lacks.

A command that only looks (`doctor`, `--help`) or copies (`backup`) may run in a wrong
folder, or as root: secrets and an empty database that it created there would be in the
way of the user as whom the server runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_READ_ONLY_COMMANDS = frozenset(
    {"", "-h", "--help", "--version", "doctor", "help", "version"}
)
_COPYING_COMMANDS = frozenset({"backup"})


@dataclass(slots=True)
class DataFolderPolicy:
    may_create: bool = True
    needs_secrets: bool = False  # those that are there, and no others for this time

    def apply_command(self, arguments: Sequence[str]) -> None:
        """`arguments`: the command and its own, before the settings are read."""
        command = next(iter(arguments), "")
        has_help = not {"-h", "--help"}.isdisjoint(arguments)
        looks = command in _READ_ONLY_COMMANDS or has_help
        self.needs_secrets = command in _COPYING_COMMANDS and not looks
        self.may_create = not looks and not self.needs_secrets


policy = DataFolderPolicy()
