from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_save

from conversations.engine import faults


class CrashingConfig(AppConfig):
    name = "tests.crashing"

    def ready(self) -> None:
        from conversations.consumers import ConversationConsumer
        from conversations.models import Turn

        post_save.connect(_opened, sender=Turn, weak=False)
        _crash_after(ConversationConsumer, "_open_turn", "socket.accept:after")


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
