"""The act that this thread or task performs: who does it, and from where.

The middleware begins an act for each request; commands and jobs begin their own. An
event that is recorded outside of any act is the system's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import models
from django.http import HttpRequest
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

#: Where the session has the reason that staff gave for reading what others wrote.
READING_REASON = "reading_reason"


class Channel(models.TextChoices):
    PAGE = "page", _("page")
    ADMIN = "admin", _("admin")
    REST = "rest", "REST"
    GATEWAY = "gateway", _("gateway")
    SOCKET = "socket", "WebSocket"
    COMMAND = "command", _("command")
    SYSTEM = "system", _("system")


@dataclass(slots=True, kw_only=True)
class Act:
    channel: str = Channel.SYSTEM
    actor: Any = None  # a user; None: the one of the request
    request: HttpRequest | None = None
    #: In the admin, changes of rows wait here for the log entry of their form, so
    #: that a form with rows inside it is one event. Keyed by kind and id.
    waiting: dict[tuple[str, str], Any] | None = None
    #: Deletions of rows wait in `waiting` like other changes. If False, each deletion
    #: is an event at once.
    waits_for_deletions: bool = False
    #: A page of people's words, which is recorded once, whatever the page logs.
    is_reading: bool = False
    #: More about who acts, such as the command's name.
    identity: dict[str, str] = field(default_factory=dict)

    def find_actor(self) -> Any:
        user = self.actor or getattr(self.request, "user", None)
        return user if getattr(user, "pk", None) is not None else None

    def describe(self) -> dict[str, str]:
        """Address, browser and token of the request."""
        found = dict(self.identity)
        if (request := self.request) is None:
            return found
        find_address = import_string(settings.AUDIT_ADDRESS_CALLABLE)
        found["address"] = find_address(request)
        if agent := request.headers.get("User-Agent", ""):
            found["browser"] = agent[:255]
        if (token := getattr(request, "auth", None)) is not None:
            found["token"] = str(getattr(token, "pk", ""))
        return found


_SYSTEM = Act()
_current: ContextVar[Act] = ContextVar("audit_act", default=_SYSTEM)


def current_act() -> Act:
    return _current.get()


@contextmanager
def acting(act: Act) -> Iterator[Act]:
    reset = _current.set(act)
    try:
        yield act
    finally:
        _current.reset(reset)
