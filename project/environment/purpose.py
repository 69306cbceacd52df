"""Whether this process may create what a data folder lacks.

A command that only looks (`doctor`, `--help`) or copies (`backup`) may run in a wrong
folder, or as root: secrets and an empty database that it created there would be in the
way of the user as whom the server runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LOOKING = frozenset({"", "-h", "--help", "--version", "doctor", "help", "version"})
_COPYING = frozenset({"backup"})


@dataclass(slots=True)
class Purpose:
    creates: bool = True
    needs_secrets: bool = False  # those that are there, and no others for this time

    def set_by(self, arguments: Sequence[str]) -> None:
        """`arguments`: the command and its own, before the settings are read."""
        command = next(iter(arguments), "")
        looks = command in _LOOKING or not {"-h", "--help"}.isdisjoint(arguments)
        self.needs_secrets = command in _COPYING and not looks
        self.creates = not looks and not self.needs_secrets


purpose = Purpose()
