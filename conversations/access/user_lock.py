"""A lock of a user's row, under which rows of the user are counted and inserted."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model


def lock_user(user: Any) -> None:
    """Until the end of the caller's transaction. SQLite has one writer anyway."""
    users = get_user_model()._default_manager.select_for_update(no_key=True)
    users.filter(pk=user.pk).values_list("pk", flat=True).first()
