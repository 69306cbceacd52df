"""The announcements above the chat pages, for their templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest

from conversations.access.policy.announcements import Published, shown_to


def announcements(
    request: HttpRequest,
) -> dict[str, Callable[[], list[Published]]]:
    """Looked up only by a template that shows them."""
    return {"announcements": partial(_shown, request)}


def _shown(request: HttpRequest) -> list[Published]:
    user: Any = getattr(request, "user", None)
    return shown_to(user) if user is not None and user.is_authenticated else []
