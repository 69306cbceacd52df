"""Maintenance as this process knows it: a banner, whether messages are refused, and
whether the admin is read-only.

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
    admin_is_read_only: bool = False


class _State:
    """Plain attributes, as every request to the gateway reads them."""

    notice = Notice()


state = _State()
_RETRY_AFTER = 60.0  # seconds


def load() -> Notice:
    """Read the row. One query."""
    columns = ("banner", "refuses_messages", "admin_is_read_only")
    found = Maintenance.objects.order_by("pk").values_list(*columns)
    return note(Notice(*(found.first() or ())))


def note(notice: Notice) -> Notice:
    state.notice = notice
    return notice


def check_open() -> None:
    """Raises UnderMaintenance while new messages are refused."""
    if state.notice.refuses_messages:
        raise UnderMaintenance(state.notice.banner, retry_after=_RETRY_AFTER)
