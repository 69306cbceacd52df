"""Registry of this process's metrics, and labels whose values are bounded.

Names of models, providers and tools are rows, which staff may create by the thousand,
and each value of a label is a time series for ever. So the first names get series of
their own and all later ones share "other".
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, disable_created_metrics

disable_created_metrics()  # one more series for each counter, which nothing reads
REGISTRY = CollectorRegistry(auto_describe=True)
OTHER = "other"
MAX_LENGTH = 100  # characters of a label's value


class BoundedNames:
    """The label values of the first `limit` names, or combinations of names."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def find(self, *names: str) -> tuple[str, ...]:
        if (values := self._known.get(names)) is not None:
            return values
        if len(self._known) >= self._limit:
            return (OTHER,) * len(names)
        values = self._known[names] = tuple(map(_printable, names))
        return values


def _printable(name: str) -> str:
    """A name as one line that UTF-8 can encode; quotes are escaped when it is
    written."""
    text = "".join(letter if letter.isprintable() else " " for letter in name)
    return text[:MAX_LENGTH]
