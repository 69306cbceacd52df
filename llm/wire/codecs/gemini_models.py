"""What Gemini models take, read off their names: versions, thinking, limits.

The families differ in what they refuse, and the list of models does not tell; a name
that we do not know counts as the newest.

Source: https://ai.google.dev/gemini-api/docs/thinking
"""

from __future__ import annotations

import re
from typing import Any

Version = tuple[int, int]

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?![\d.])")
_NEWEST: Version = (99, 0)
#: The first version that thinks; before it any thinkingConfig is refused.
_THINKING: Version = (2, 5)
#: From here on there are levels; before it budgets of tokens.
_LEVELS: Version = (3, 0)
#: From here on the model may be told in parts of a tool's output what it looks like,
#: and takes functions beside hosted tools and beside a JSON Schema of the answer.
MULTIMODAL_OUTPUTS: Version = (3, 0)
#: From here on a call without a signature is refused.
SIGNED_CALLS: Version = (3, 0)
#: From here on the mode VALIDATED exists.
VALIDATED_CALLS: Version = (2, 5)
#: From here on temperature, topP and topK do nothing.
FIXED_SAMPLING: Version = (3, 5)

_BUDGETS = {  # tokens
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
    "max": 24576,
}
_PRO_BUDGET = 128  # tokens; the least that 2.5 Pro takes, it cannot do without
_LEVEL_OF = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}


def bare_name(model: str) -> str:
    """Without the path in front: "models/", "publishers/google/models/"."""
    return model.rpartition("/")[2]


def version(model: str) -> Version:
    """As in the name; (0, 0) for a Gemma, the newest where the name tells none."""
    name = bare_name(model)
    if is_gemma(name):
        return (0, 0)
    found = _VERSION.match(name)
    return (int(found[1]), int(found[2] or 0)) if found else _NEWEST


def is_gemma(model: str) -> bool:
    """Gemma takes no system instruction and no thinkingConfig."""
    return bare_name(model).startswith("gemma")


def thinks(model: str) -> bool:
    """False where any thinkingConfig is refused."""
    name = bare_name(model)
    other_kinds = ("-image", "-tts", "-live", "embedding")
    return version(model) >= _THINKING and not any(kind in name for kind in other_kinds)


def thinking_of(model: str, effort: str | None) -> dict[str, Any]:
    """How hard to think, as this model is told it; {} where it cannot be."""
    if effort not in _LEVEL_OF or not thinks(model):
        return {}
    if version(model) < _LEVELS:
        budget = _BUDGETS[effort]
        if "-pro" in bare_name(model):
            budget = max(budget, _PRO_BUDGET)
        return {"thinkingBudget": budget}
    return {"thinkingLevel": _nearest(model, _LEVEL_OF[effort])}


def takes_effort(model: str, effort: str | None) -> bool:
    """True where this very effort exists, and not only the nearest one."""
    if effort is None or not thinks(model):
        return effort in (None, "none")
    told = thinking_of(model, effort)
    if effort == "none":
        return told.get("thinkingBudget") == 0
    if effort in ("xhigh", "max"):
        return False
    return told.get("thinkingLevel", effort.upper()) == effort.upper() and bool(told)


def _nearest(model: str, level: str) -> str:
    name, number = bare_name(model), version(model)
    if name.startswith("gemini-3-pro"):
        return "LOW" if level in ("MINIMAL", "LOW") else "HIGH"
    if level == "MINIMAL" and (number >= (3, 7) or name.startswith("gemini-3.1-pro")):
        return "LOW"
    return level
