from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from django.apps import AppConfig
from django.conf import settings


class HangingConfig(AppConfig):
    name = "tests.hanging"

    def ready(self) -> None:
        signal.signal(signal.SIGUSR1, _block)
        if settings.DROP_HINTS:
            _drop(settings.DROP_HINTS)


def _block(*_: object) -> None:
    """The main thread, where the event loop runs; those of the database go on."""
    time.sleep(settings.BLOCKED)
    with (Path(settings.DATA) / "blocked").open("a") as blocked:
        blocked.write(f"{os.getpid()}\n")


def _drop(share: float) -> None:
    """What Redis publishes reaches this process only sometimes; the kinds of what does
    not are in the file `dropped`."""
    from conversations.engine.bus import Bus

    make, dice = Bus.__init__, random.Random(7)

    def init(bus, url, on_hint, missed) -> None:
        def sometimes(kind: str, ids: list[str]) -> None:
            if dice.random() >= share:
                on_hint(kind, ids)
            else:
                with (Path(settings.DATA) / "dropped").open("a") as dropped:
                    dropped.write(f"{kind}\n")

        make(bus, url, sometimes, missed)

    Bus.__init__ = init
