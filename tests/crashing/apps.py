from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_save

from conversations.engine import faults


class CrashingConfig(AppConfig):
    name = "tests.crashing"

    def ready(self) -> None:
        from conversations.engine import core
        from conversations.models import Turn

        post_save.connect(_opened, sender=Turn, weak=False)
        _crash_after(core, "open_taken", "socket.accept:after")


def _opened(created: bool, **signal: Any) -> None:
    """In the transaction that takes a message in."""
    if created:
        faults.at("accept:inside")


def _crash_after(owner: Any, name: str, place: str) -> None:
    function = getattr(owner, name)

    def crashing(*args: Any) -> Any:
        result = function(*args)
        faults.at(place)
        return result

    setattr(owner, name, crashing)
