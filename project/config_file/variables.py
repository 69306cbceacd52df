"""Secrets in the file, which are references such as `"env:OPENAI_API_KEY"`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from project.config_file.findings import Findings

_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


class VariableNames:
    """Unique names of environment variables for the secrets of a dumped file."""

    def __init__(self) -> None:
        self._used_names: set[str] = set()

    def name_for(self, words: str, ending: str = "_KEY") -> str:
        base = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_") or "PROVIDER"
        base = f"_{base}{ending}" if base[0].isdigit() else f"{base}{ending}"
        name, number = base, 2
        while name in self._used_names:
            name, number = f"{base}_{number}", number + 1
        self._used_names.add(name)
        return name


@dataclass(frozen=True, slots=True)
class Secrets:
    """Look-up of secrets in the environment."""

    environment: Mapping[str, str]
    allow_literals: bool
    are_write_only: bool  # the user who loads the file may not read them
    findings: Findings

    def text(self, path: str, value: Any, noun: str, is_stored: bool) -> str:
        """Return the secret, or "" after a problem or a note.

        `noun` names the kind of secret in messages.
        """
        if not isinstance(value, str):
            self.findings.problems.append(f'{path}: write "env:NAME".')
            return ""
        variable = _VARIABLE.fullmatch(value)
        if value and not variable and not self.allow_literals:
            self.findings.problems.append(
                f'{path}: a {noun} does not belong in a file; write "env:NAME" and set'
                " NAME in the environment (or pass --allow-literal-keys)."
            )
            return ""
        text = self.environment.get(variable[1], "").strip() if variable else value
        if not text:
            missing = f"{variable[1]} is not set" if variable else "there is none"
            if self.are_write_only:
                missing = "files loaded here have no secrets"
            self._report_missing(path, missing, noun, is_stored)
        return text

    def _report_missing(
        self, path: str, missing: str, noun: str, is_stored: bool
    ) -> None:
        if is_stored:
            self.findings.notes.append(f"{path}: {missing}; the stored {noun} stays.")
        elif self.are_write_only:
            self.findings.notes.append(f"{path}: left out; enter the {noun} by hand.")
        else:
            self.findings.problems.append(
                f"{path}: {missing}, and no {noun} is stored yet."
            )
