from __future__ import annotations

from typing import Any

from django.apps import AppConfig

from conversations.engine.process import crash_points


class CrashingConfig(AppConfig):
    name = "tests.crashing"

    def ready(self) -> None:
        from conversations import turn_queue
        from conversations.engine import dispatcher

        _crash_after(
            turn_queue, "enqueue", "accept:inside"
        )  # the last of opening a turn
        _crash_after(dispatcher, "open_and_claim", "socket.accept:after")


def _crash_after(owner: Any, name: str, crash_point: str) -> None:
    function = getattr(owner, name)

    def crashing(*args: Any) -> Any:
        result = function(*args)
        crash_points.reach(crash_point)
        return result

    setattr(owner, name, crashing)
