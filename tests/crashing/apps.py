from __future__ import annotations

from typing import Any

from django.apps import AppConfig

from conversations.engine import faults


class CrashingConfig(AppConfig):
    name = "tests.crashing"

    def ready(self) -> None:
        from conversations import engine
        from conversations.engine import core

        _crash_after(engine, "enqueue", "accept:inside")  # the last of opening a turn
        _crash_after(core, "open_taken", "socket.accept:after")


def _crash_after(owner: Any, name: str, place: str) -> None:
    function = getattr(owner, name)

    def crashing(*args: Any) -> Any:
        result = function(*args)
        faults.at(place)
        return result

    setattr(owner, name, crashing)
