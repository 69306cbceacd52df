"""Return the memory of large responses to the operating system.

Some of it is in reference cycles, which Python's collector would free much later:
Django REST framework's response, view and request refer to one another. And glibc
keeps memory that is freed in the middle of its heap; `malloc_trim` returns whole pages
of it. Other C libraries have no such function; nothing is done there.

Source: https://man7.org/linux/man-pages/man3/malloc_trim.3.html
"""

from __future__ import annotations

import ctypes
import gc
import threading
from contextlib import suppress

MIN_SIZE = 1024 * 1024  # bytes; a collection is not worth its cost for less
DELAY = 5.0  # seconds before a collection, so that one serves several responses
THREAD_NAME = "freed memory"  # name of the thread that collects

_lock = threading.Lock()
_timers: list[threading.Timer] = []  # the pending one, if there is one


def schedule_trim(size: int) -> None:
    """Report that `size` bytes are unused, or soon will be. May be called in any
    thread; the collection runs in its own thread."""
    if size < MIN_SIZE:
        return
    with _lock:
        if _timers:
            return
        timer = threading.Timer(DELAY, _collect)
        _timers.append(timer)
    timer.name, timer.daemon = THREAD_NAME, True
    timer.start()


def trim_heap() -> None:
    """Takes some milliseconds, during which other threads cannot allocate."""
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _collect() -> None:
    with _lock:
        _timers.clear()
    gc.collect()
    trim_heap()
