from __future__ import annotations

from collections.abc import Collection, Iterator


class AllBut(Collection[str]):
    """An unbounded set of names: every name except the excluded ones."""

    def __init__(self, others: Collection[str] = ()) -> None:
        self._others = frozenset(others)

    def __contains__(self, name: object) -> bool:
        return name not in self._others

    def __iter__(self) -> Iterator[str]:
        raise TypeError("nobody can list them")

    def __len__(self) -> int:
        raise TypeError("nobody can count them")
