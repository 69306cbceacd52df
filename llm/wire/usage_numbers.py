"""Numbers in a provider's `usage`, and service tiers. Invalid ones count as unknown.
Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

#: The largest integer that every reader of JSON reads exactly. Sums of a few such
#: counts still fit into 64 bits; orjson writes no larger integers.
MAX_COUNT = 2**53 - 1
#: Service tiers with a model's usual prices, as hosts name them.
_USUAL_TIERS = frozenset(
    {
        "",
        "auto",
        "default",
        "on_demand",
        "service_tier_unspecified",
        "standard",
        "standard_only",
        "traffic_type_unspecified",
        "unspecified",
    }
)


#: How Vertex names the tiers of Gemini.
_ALIASES = {"on_demand_flex": "flex", "on_demand_priority": "priority"}
#: OpenAI's name of a request for the tier that its answers call `priority`.
OPENAI_ALIASES = {"fast": "priority"}
_DECIMAL = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?", re.ASCII)
_TIER = re.compile(r"[a-z0-9_.-]{1,40}")


def name_tier(tier: Any, aliases: Mapping[str, str] = _ALIASES) -> str | None:
    """The service tier of an answer, if it has other prices than the usual ones; None
    if it has those."""
    if not isinstance(tier, str) or (name := tier.lower()) in _USUAL_TIERS:
        return None
    return aliases.get(name, name) if _TIER.fullmatch(name) else "other"


def count(usage: Any, name: str) -> int | None:
    """Tokens: a whole number from 0 to MAX_COUNT; None for anything else."""
    value = amount(usage, name)
    if value is None or not 0 <= value <= MAX_COUNT or value != int(value):
        return None
    return int(value)


def amount(usage: Any, name: str) -> int | float | None:
    """Any finite number, also as decimal text, as Google's JSON has 64-bit integers;
    None for anything else."""
    value = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None
