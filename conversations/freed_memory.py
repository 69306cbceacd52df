"""What large answers have taken, given back to the system when they are gone.

Some of it is in cycles that Python's collector would come by much later: Django REST
framework's response, view and request hold one another. And glibc keeps what is freed
in the middle of its heap; where it is asked to, it gives back whole pages of it. Other
C libraries have no such function, and are left alone.

Source: https://man7.org/linux/man-pages/man3/malloc_trim.3.html
"""

from __future__ import annotations

import ctypes
import gc
import threading
from contextlib import suppress

LARGE = 1024 * 1024  # bytes that are worth a look at the whole heap
PAUSE = 5.0  # seconds until then, in which more is freed perhaps
THREAD = "freed memory"  # the name of the one that looks

_lock = threading.Lock()
_timers: list[threading.Timer] = []  # the one that waits, if one does


def note_freed(size: int) -> None:
    """So many bytes are of no use any more, or will be in a moment. From any thread;
    the work is done in one of its own."""
    if size < LARGE:
        return
    with _lock:
        if _timers:
            return
        timer = threading.Timer(PAUSE, _collect)
        _timers.append(timer)
    timer.name, timer.daemon = THREAD, True
    timer.start()


def give_back() -> None:
    """Takes some milliseconds, while other threads run but cannot allocate."""
    with suppress(OSError, AttributeError, TypeError):  # glibc's alone
        ctypes.CDLL(None).malloc_trim(0)


def _collect() -> None:
    with _lock:
        _timers.clear()
    gc.collect()
    give_back()
