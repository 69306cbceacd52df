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
    """Drop some announcements of Redis and PostgreSQL to this process, and write their
    kinds into the file `dropped`."""
    from conversations.engine.postgresql.bus import EVENTS, PostgresBus
    from conversations.engine.redis.pubsub import RedisBus

    take, dice = RedisBus.dispatch, random.Random(7)
    take_notice = PostgresBus.dispatch

    def sometimes(bus, reply) -> None:
        if reply[0] != b"message" or dice.random() >= share:
            take(bus, reply)
            return
        drop("event" if b":told:" in reply[1] else reply[2].decode().split(" ")[0])

    def sometimes_a_notice(bus, channel, payload) -> None:
        if dice.random() >= share:
            take_notice(bus, channel, payload)
        else:
            drop("event" if channel == EVENTS else payload.split(" ")[0])

    def drop(kind: str) -> None:
        with (Path(settings.DATA) / "dropped").open("a") as dropped:
            dropped.write(f"{kind}\n")

    RedisBus.dispatch = sometimes
    PostgresBus.dispatch = sometimes_a_notice
