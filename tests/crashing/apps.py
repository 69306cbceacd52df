from __future__ import annotations

from typing import Any

from django.apps import AppConfig

from conversations.engine.process import crash_points


class CrashingConfig(AppConfig):
    name = "tests.crashing"

    def ready(self) -> None:
        from conversations import turn_queue
        from conversations.engine import dispatcher
        from conversations.models import conversation

        # The last of opening a turn: in PostgreSQL the insert queues it as well.
        _crash_after(turn_queue, "enqueue", "accept:inside")
        _crash_after(conversation, "insert_together", "accept:inside")
        _crash_after(dispatcher, "open_and_claim", "socket.accept:after")


def _crash_after(owner: Any, name: str, crash_point: str) -> None:
    function = getattr(owner, name)

    def crashing(*args: Any) -> Any:
        result = function(*args)
        crash_points.reach(crash_point)
        return result

    setattr(owner, name, crashing)
