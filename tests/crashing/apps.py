from __future__ import annotations

from typing import Any

from django.apps import AppConfig

from conversations.engine.process import crash_points


class CrashingConfig(AppConfig):
    name = "tests.crashing"

    def ready(self) -> None:
        from conversations import engine
        from conversations.engine import engine as core

        _crash_after(engine, "enqueue", "accept:inside")  # the last of opening a turn
        _crash_after(core, "open_and_claim", "socket.accept:after")


def _crash_after(owner: Any, name: str, place: str) -> None:
    function = getattr(owner, name)

    def crashing(*args: Any) -> Any:
        result = function(*args)
        crash_points.reach(place)
        return result

    setattr(owner, name, crashing)
