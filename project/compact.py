"""Connections that keep only what is their own: thousands may be open.

A connection of a server's has some forty attributes, most of them the same for all. In
a dict of its own they are 1.5 to 3 KB; in the dict of its class they are nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_CONSTANTS = (bool, float, int, str, type(None))
_NOTHING = object()


def compact(
    connection: Any,
    server: Any,
    *,
    shared: Collection[str],
    without: Collection[str] = (),
) -> None:
    """`connection` becomes one of a class that holds what it has alike with the others
    of `server`: constants, and what is named in `shared`.

    All of it is there as before, and may be set anew, but attributes named in
    `without`: those are its class's, if it has any.
    """
    own = {k: v for k, v in vars(connection).items() if k not in without}
    connection.__class__ = kind = _kind(type(connection), server, own, shared)
    own = {
        name: value
        for name, value in own.items()
        if getattr(kind, name, _NOTHING) is not value
    }
    connection.__dict__ = {}
    connection.__dict__.update(own)  # which is as small as it can be


_kinds: dict[tuple[type, Any], type] = {}


def _kind(
    kind: type, server: Any, own: dict[str, Any], shared: Collection[str]
) -> type:
    """The class of `server`'s open connections of this `kind`."""
    found = _kinds.get((kind, server))
    if found is None:
        alike = {
            name: staticmethod(value) if hasattr(value, "__get__") else value
            for name, value in own.items()
            if name in shared or type(value) in _CONSTANTS
        }
        found = type(kind.__name__, (kind,), {"__module__": __name__, **alike})
        # A connection may come here again, with its next request.
        _kinds[kind, server] = _kinds[found, server] = found
    return found
