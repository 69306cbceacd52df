"""Sets of names that are not listed: every name except some."""

from __future__ import annotations

from collections.abc import Collection, Iterator


class AllExcept(Collection[str]):
    """An unbounded set of names: every name except the excluded ones."""

    def __init__(self, excluded: Collection[str] = ()) -> None:
        self._excluded = frozenset(excluded)

    def __contains__(self, name: object) -> bool:
        return name not in self._excluded

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the set of names is unbounded")

    def __len__(self) -> int:
        raise TypeError("the set of names is unbounded")
