"""One finding of the command `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "error"]

PATIENCE = 5  # seconds for another server


@dataclass(frozen=True, slots=True)
class Diagnosis:
    name: str
    state: State
    text: str
    advice: str = ""


def judge(
    name: str, is_fine: bool, text: str, advice: str, state: State = "error"
) -> Diagnosis:
    if is_fine:
        return Diagnosis(name, "ok", "Fine.")
    return Diagnosis(name, state, text, advice)
