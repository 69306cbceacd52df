"""Places at which a test may end this process, as a crash would.

Inert unless the settings name one in `CRASH_AT`, which ours never do:
`rows.finish:before`, or `rows.advance:after#2` for the second time.
"""

from __future__ import annotations

import os
import signal

from django.conf import settings

_place, _, _count = getattr(settings, "CRASH_AT", "").partition("#")
_left = int(_count or 1)

IS_ARMED = bool(_place)


def at(place: str) -> None:
    global _left
    if place != _place:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
