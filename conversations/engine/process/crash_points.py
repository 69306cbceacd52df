"""Crash points, at which a test may kill this process.

They do nothing unless the setting `CRASH_AT`, which only tests set, names one:
`turn_store.finish:before`, or `turn_store.advance:after#2` for the second time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.conf import settings

P = ParamSpec("P")
T = TypeVar("T")

_crash_point, _, _count = getattr(settings, "CRASH_AT", "").partition("#")
_left = int(_count or 1)

IS_ARMED = bool(_crash_point)


def reach(point: str) -> None:
    global _left
    if point != _crash_point:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def around(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` between its two crash points, in a test that names one."""
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    reach(f"{name}:before")
    result = function(*args, **kwargs)
    reach(f"{name}:after")
    return result
