"""Percentiles of durations, for pages of staff."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(values: Sequence[float], percent: int) -> float | None:
    """The percentile by nearest rank; None without values."""
    if not values:
        return None
    rank = math.ceil(len(values) * percent / 100)
    return sorted(values)[max(0, rank - 1)]
