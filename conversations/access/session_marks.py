"""Marks in a session: what its person must do first, and what was proven when.

`project.accounts` sets them at the sign-in. They are in the session's own data, so that
every request and every WebSocket reads them without another query.
"""

from __future__ import annotations

import math
import time
from collections.abc import MutableMapping
from typing import Any

from django.conf import settings

#: The password must be changed before anything else.
PASSWORD_CHANGE = "parley:must_change_password"
#: When the person last proved who it is, in seconds since 1970.
PROVEN_AT = "parley:proven_at"
#: The newest version of the terms of use that the session's user has accepted.
TERMS = "parley:terms"
#: A second factor, or a provider that asks for one, took part.
SECOND_FACTOR = "parley:second_factor"

Session = MutableMapping[str, Any]


def is_restricted(session: Session) -> bool:
    """Whether the session may do nothing yet but what it must do first."""
    return bool(session.get(PASSWORD_CHANGE))


def lacks_second_factor(session: Session) -> bool:
    """Whether everybody needs one, and none took part in the session's sign-in."""
    return settings.SECOND_FACTOR_FOR_ALL and not session.get(SECOND_FACTOR)


def mark_proven(session: Session, at: float = math.inf) -> None:
    """`at`: seconds since 1970, where it was proven before now."""
    session[PROVEN_AT] = min(at, time.time())


def is_proven_lately(session: Session) -> bool:
    """Whether the person signed in, or proved again who it is, a short while ago."""
    proven_at = session.get(PROVEN_AT)
    if not isinstance(proven_at, float | int):
        return False
    return 0 <= time.time() - proven_at < settings.REAUTHENTICATE_AFTER
