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
        act = Act(channel=_channel_of(request.path_info), request=request)
        if act.channel == Channel.ADMIN and request.method == "POST":
            act.waiting = {}
        with acting(act):
            response = get_response(request)
            record_rest(act)
        return response

    return respond


def _channel_of(path: str) -> str:
    for prefix, channel in _PREFIXES:
        if path.startswith(prefix):
            return channel
    return Channel.PAGE
