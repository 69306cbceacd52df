"""Secrets that come from code instead of an encrypted column."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PlainSecret:
    """A secret in memory, which is not in its repr."""

    _text: str = field(repr=False)

    def reveal(self) -> str:
        return self._text
