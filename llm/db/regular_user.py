"""Stand-in for a user who is no superuser, of whom only the key is known."""

from __future__ import annotations


class RegularUser:
    """The argument of querysets such as `available_to`."""

    is_superuser = False

    def __init__(self, pk: int) -> None:
        self.pk = pk
