"""Secrets in the file: names of environment variables, as in `"env:OPENAI_API_KEY"`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from project.config_file.findings import Findings

_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


class VariableNames:
    """Names of environment variables for a file's secrets, each given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def name_for(self, words: str, ending: str = "_KEY") -> str:
        base = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_") or "PROVIDER"
        base = f"_{base}{ending}" if base[0].isdigit() else f"{base}{ending}"
        name, number = base, 2
        while name in self._given:
            name, number = f"{base}_{number}", number + 1
        self._given.add(name)
        return name


@dataclass(frozen=True, slots=True)
class Secrets:
    """Looks up what a file's secrets stand for."""

    environment: Mapping[str, str]
    allow_literals: bool
    findings: Findings

    def text(self, place: str, told: Any, what: str, is_stored: bool) -> str:
        """The secret, or "" where there is none, which is told; `what` is its word."""
        if not isinstance(told, str):
            self.findings.problems.append(f'{place}: write a text, "env:NAME".')
            return ""
        variable = _VARIABLE.fullmatch(told)
        if told and not variable and not self.allow_literals:
            self.findings.problems.append(
                f'{place}: a {what} does not belong in a file; write "env:NAME" and set'
                " NAME in the environment (or pass --allow-literal-keys)."
            )
            return ""
        text = self.environment.get(variable[1], "").strip() if variable else told
        if not text:
            missing = f"{variable[1]} is not set" if variable else "there is none"
            self._tell_missing(place, missing, what, is_stored)
        return text

    def _tell_missing(
        self, place: str, missing: str, what: str, is_stored: bool
    ) -> None:
        if is_stored:
            self.findings.notes.append(f"{place}: {missing}; the stored {what} stays.")
        else:
            self.findings.problems.append(
                f"{place}: {missing}, and no {what} is stored yet."
            )
