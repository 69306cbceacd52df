from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from conversations.engine.process import crash_points

DOORS = {"turns": "accept", "answer": "decide"}  # by the end of the path

Answer = Callable[[HttpRequest], HttpResponseBase]


def crash_at_the_door(answer: Answer) -> Answer:
    """Before anything is written, or once it is committed and not answered yet."""

    def crash_around_endpoint(request: HttpRequest) -> HttpResponseBase:
        endpoint = DOORS.get(request.path.rstrip("/").rpartition("/")[2])
        if endpoint is None or request.method != "POST":
            return answer(request)
        crash_points.reach(f"{endpoint}:before")
        response = answer(request)
        crash_points.reach(f"{endpoint}:after")
        return response

    return crash_around_endpoint
