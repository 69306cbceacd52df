from __future__ import annotations

import random

from django.apps import AppConfig
from django.conf import settings


class HangingConfig(AppConfig):
    name = "tests.hanging"

    def ready(self) -> None:
        if settings.DROP_HINTS:
            _drop(settings.DROP_HINTS)


def _drop(share: float) -> None:
    """What Redis publishes reaches this process only sometimes."""
    from conversations.engine.bus import Bus

    heard, dice = Bus.__init__, random.Random(7)

    def init(bus, url, on_hint, missed) -> None:
        def sometimes(kind: str, ids: list[str]) -> None:
            if dice.random() >= share:
                on_hint(kind, ids)

        heard(bus, url, sometimes, missed)

    Bus.__init__ = init  # type: ignore[method-assign]
