"""Amounts of use in four measures, and the limits that apply to a call. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from conversations.models.limits.usage_limit import DEFAULT_WARNING

MEASURES = ("requests", "tokens", "cost", "size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    requests: int = 0
    tokens: int = 0
    cost: int = 0  # billionths of a USD
    size: int = 0  # bytes

    def __add__(self, other: Amounts) -> Amounts:
        return self._combine(other, int.__add__)

    def __sub__(self, other: Amounts) -> Amounts:
        return self._combine(other, int.__sub__)

    def at_least(self, other: Amounts) -> Amounts:
        """The larger of the two in each measure."""
        return self._combine(other, max)

    def at_most(self, other: Amounts) -> Amounts:
        """The smaller of the two in each measure."""
        return self._combine(other, min)

    def covers(self, other: Amounts) -> bool:
        return all(getattr(self, m) >= getattr(other, m) for m in MEASURES)

    def _combine(self, other: Amounts, join: Callable[[int, int], int]) -> Amounts:
        pairs = {m: join(getattr(self, m), getattr(other, m)) for m in MEASURES}
        return Amounts(**pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most of each measure; None is no limit."""

    requests: int | None = None
    tokens: int | None = None
    cost: int | None = None
    size: int | None = None
    warn_at: int = field(default=DEFAULT_WARNING, compare=False)  # percent of a cap

    def limited(self, amounts: Amounts) -> Amounts:
        """The amounts in the measures that have a cap, and 0 in the others."""
        free = {m: 0 for m in MEASURES if getattr(self, m) is None}
        return replace(amounts, **free)

    def fallback(self, other: Caps) -> Self:
        """These caps, with the other's where these have none."""
        changes: dict[str, Any] = {
            m: getattr(other, m) for m in MEASURES if getattr(self, m) is None
        }
        if self == Caps():
            changes["warn_at"] = other.warn_at
        return replace(self, **changes)

    def most(self, other: Caps) -> Caps:
        """The wider cap in each measure; one that is None does not count."""
        warn_at = max(self.warn_at, other.warn_at)
        return Caps(
            warn_at=other.warn_at if self == Caps() else warn_at,
            **{
                m: max(
                    (c for c in (getattr(self, m), getattr(other, m)) if c is not None),
                    default=None,
                )
                for m in MEASURES
            },
        )

    def raised(self, amounts: Amounts) -> Caps:
        changes: dict[str, Any] = {
            m: cap + getattr(amounts, m)
            for m in MEASURES
            if (cap := getattr(self, m)) is not None
        }
        return replace(self, **changes)

    def first_exceeded(self, amounts: Amounts) -> str | None:
        """The first measure in which the amounts do not fit under the cap."""
        for measure in MEASURES:
            cap = getattr(self, measure)
            if cap is not None and getattr(amounts, measure) > cap:
                return measure
        return None


@dataclass(frozen=True, slots=True)
class BalanceKey:
    """Whose balance, and of which period."""

    kind: str  # "user", "group" or "token": a field of LimitBalance
    owner_id: int
    period: str  # as `period_name` writes it
    model_id: int | None = None  # None: of all models together


@dataclass(frozen=True, slots=True)
class AppliedLimit:
    """One balance that a call is charged to, with its caps."""

    key: BalanceKey
    period: str  # "day", "month" or "total"
    caps: Caps
    model_name: str = ""  # for people, of the limit of one model


def limits_of_all_models(
    limits: tuple[AppliedLimit, ...],
) -> tuple[AppliedLimit, ...]:
    """The limits of all models together, without those of one model."""
    return tuple(each for each in limits if each.key.model_id is None)


def limits_of_models(
    limits: tuple[AppliedLimit, ...], *model_ids: int | None
) -> tuple[AppliedLimit, ...]:
    """The limits to which a call of one of these models is charged."""
    return tuple(each for each in limits if each.key.model_id in (None, *model_ids))
