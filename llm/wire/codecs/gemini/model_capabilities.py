"""Capabilities of Gemini models that the API does not report, by their names.

The families refuse different parameters, and the list of models does not report it; an
unknown name counts as the newest version.

Source: https://ai.google.dev/gemini-api/docs/thinking
"""

from __future__ import annotations

import re
from typing import Any

Version = tuple[int, int]

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?![\d.])")
_NEWEST: Version = (99, 0)
#: The first version that thinks; earlier ones refuse any thinkingConfig.
_THINKING: Version = (2, 5)
#: The first version with thinking levels; earlier ones have budgets of tokens.
_LEVELS: Version = (3, 0)
#: The first version that takes media inside a tool's output, functions beside hosted
#: tools, and tools together with a JSON Schema for the answer.
MULTIMODAL_OUTPUTS: Version = (3, 0)
#: The first version that refuses a call without a signature.
SIGNED_CALLS: Version = (3, 0)
#: The first version with the mode VALIDATED.
VALIDATED_CALLS: Version = (2, 5)
#: The first version that ignores temperature, topP and topK.
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
_PRO_BUDGET = 128  # tokens; the minimum of 2.5 Pro, which cannot turn thinking off
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
    """The name without a path like "models/" or "publishers/google/models/"."""
    return model.rpartition("/")[2]


def version(model: str) -> Version:
    """The version in the name; (0, 0) for a Gemma, the newest if the name has none."""
    name = bare_name(model)
    if is_gemma(name):
        return (0, 0)
    found = _VERSION.match(name)
    return (int(found[1]), int(found[2] or 0)) if found else _NEWEST


def is_gemma(model: str) -> bool:
    """Gemma takes no system instruction and no thinkingConfig."""
    return bare_name(model).startswith("gemma")


def thinks(model: str) -> bool:
    """False if the model refuses any thinkingConfig."""
    name = bare_name(model)
    other_kinds = ("-image", "-tts", "-live", "embedding")
    return version(model) >= _THINKING and not any(kind in name for kind in other_kinds)


def thinking_of(model: str, effort: str | None) -> dict[str, Any]:
    """The `thinkingConfig` for an effort; {} if the model takes none."""
    if effort not in _LEVEL_OF or not thinks(model):
        return {}
    if version(model) < _LEVELS:
        budget = _BUDGETS[effort]
        if "-pro" in bare_name(model):
            budget = max(budget, _PRO_BUDGET)
        return {"thinkingBudget": budget}
    return {"thinkingLevel": _nearest(model, _LEVEL_OF[effort])}


def takes_effort(model: str, effort: str | None) -> bool:
    """Whether the model has exactly this effort, and not only a near one."""
    if effort is None or not thinks(model):
        return effort in (None, "none")
    config = thinking_of(model, effort)
    if effort == "none":
        return config.get("thinkingBudget") == 0
    if effort in ("xhigh", "max"):
        return False
    return config.get("thinkingLevel", effort.upper()) == effort.upper() and bool(
        config
    )


def _nearest(model: str, level: str) -> str:
    name, number = bare_name(model), version(model)
    if name.startswith("gemini-3-pro"):
        return "LOW" if level in ("MINIMAL", "LOW") else "HIGH"
    if level == "MINIMAL" and (number >= (3, 7) or name.startswith("gemini-3.1-pro")):
        return "LOW"
    return level
