"""Middleware: what a request does is the act of its user."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

from conversations.audit.act import Act, Channel, acting
from conversations.audit.watch import record_rest

_PREFIXES = (
    ("/admin/", Channel.ADMIN),
    ("/api/", Channel.REST),
    ("/scim/", Channel.REST),
)


def note_requests(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """What a request does is the act of its user."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        path = request.path_info
        named = (channel for prefix, channel in _PREFIXES if path.startswith(prefix))
        act = Act(channel=next(named, Channel.PAGE), request=request)
        if act.channel == Channel.ADMIN and request.method == "POST":
            act.waiting = {}
        with acting(act):
            response = get_response(request)
            if act.waiting:
                record_rest(act)
        return response

    return respond
