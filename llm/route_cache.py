"""Cache of the routes that were made of rows which have not changed since.

Every message resolves its model. To decrypt the key and to connect the endpoint again
for each of them runs thirty functions that find what they found the last time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

from llm.db.encrypted_field import Secret
from llm.models import ApiKey, LanguageModel
from llm.provider import Route

MAX_ROUTES = 1_000
MAX_AGE = 60.0  # seconds without use after which a route is dropped, and its key


class RouteCache:
    """For all threads of a process."""

    def __init__(self) -> None:
        #: What the route was made of, the route, and when it was last used; the one
        #: that has not been used for the longest time first.
        self._routes: OrderedDict[Hashable, tuple[str, Route, float]] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Hashable, rows: str) -> Route | None:
        """The route, if it was made of these `rows`."""
        now = time.monotonic()
        with self._lock:
            while self._routes:
                _, _, used_at = next(iter(self._routes.values()))
                if now - used_at <= MAX_AGE:
                    break
                self._routes.popitem(last=False)
            found = self._routes.pop(key, None)
            if found is None or found[0] != rows:
                return None
            self._routes[key] = rows, found[1], now
            return found[1]

    def store(self, key: Hashable, rows: str, route: Route) -> None:
        with self._lock:
            self._routes[key] = rows, route, time.monotonic()
            if len(self._routes) > MAX_ROUTES:
                self._routes.popitem(last=False)

    def clear(self, **_: Any) -> None:
        """Also a signal receiver."""
        with self._lock:
            self._routes.clear()


def describe_rows(model: LanguageModel, key: ApiKey | None) -> str:
    """A text of all columns that determine a route, with secrets as they are stored. In
    it 1 and True differ, which are equal in Python."""
    columns = [
        value.stored if isinstance(value, Secret) else value
        for row in (model, model.provider)
        for name, value in row.__dict__.items()
        if name != "_state"
    ]
    if key is not None:
        secret = key.__dict__["secret"]
        columns += [key.secret_id, key.owner_id, secret.stored if secret else ""]
    return repr(columns)
