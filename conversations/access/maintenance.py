"""Maintenance as this process knows it: a banner, and whether messages are refused.

The engine reads the row every few seconds, so no request has to.
"""

from __future__ import annotations

from dataclasses import dataclass

from conversations.access.errors import UnderMaintenance
from conversations.models import Maintenance


@dataclass(frozen=True, slots=True)
class Notice:
    banner: str = ""
    refuses_messages: bool = False


class _State:
    """Plain attributes, as every request to the gateway reads them."""

    notice = Notice()


state = _State()
_RETRY_AFTER = 60.0  # seconds


def load() -> Notice:
    """Read the row. One query."""
    found = Maintenance.objects.order_by("pk").values_list("banner", "refuses_messages")
    return note(Notice(*(found.first() or ("", False))))


def note(notice: Notice) -> Notice:
    state.notice = notice
    return notice


def check_open() -> None:
    """Raises UnderMaintenance while new messages are refused."""
    if state.notice.refuses_messages:
        raise UnderMaintenance(state.notice.banner, retry_after=_RETRY_AFTER)
