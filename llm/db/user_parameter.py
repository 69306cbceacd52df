"""The user as a parameter of a compiled query: a key, and no superuser."""

from __future__ import annotations


class UserParameter:
    """What querysets such as `available_to` take instead of a row of a user."""

    is_superuser = False

    def __init__(self, pk: int) -> None:
        self.pk = pk
