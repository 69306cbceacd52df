from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from conversations.engine.process import crash_points

DOORS = {"turns": "accept", "answer": "decide"}  # by the end of the path

Answer = Callable[[HttpRequest], HttpResponseBase]


def crash_at_the_door(answer: Answer) -> Answer:
    """Before anything is written, or once it is committed and not answered yet."""

    def at_the_door(request: HttpRequest) -> HttpResponseBase:
        door = DOORS.get(request.path.rstrip("/").rpartition("/")[2])
        if door is None or request.method != "POST":
            return answer(request)
        crash_points.reach(f"{door}:before")
        response = answer(request)
        crash_points.reach(f"{door}:after")
        return response

    return at_the_door
