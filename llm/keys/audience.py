"""`KeyAudience`: whose calls may use the keys of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KeySource = Literal["", "own", "group", "shared", "call"]


@dataclass(frozen=True, slots=True)
class KeyAudience:
    """One user, the members of one group, or everybody if both are None."""

    user_id: int | None = None
    group_id: int | None = None

    @property
    def source(self) -> KeySource:
        if self.user_id is not None:
            return "own"
        return "shared" if self.group_id is None else "group"


EVERYBODY = KeyAudience()
