"""What a process that has started gives back, and need not look at again."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

#: New objects before a look for garbage. A long history is some ten thousand at once,
#: none of which is garbage; Python's own 700 makes reading it a third dearer.
_THRESHOLD = (20_000, 10, 10)
_M_ARENA_MAX = -8  # of glibc's mallopt


def share_heap() -> None:
    """Before there are threads. glibc gives each of them a heap of its own, and what
    one has freed no other can use."""
    with suppress(OSError, AttributeError, TypeError):  # glibc's alone
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def settle() -> None:
    """Takes a tenth of a second, in a thread of its own.

    What the start has made stays for good, so Python's collector passes over it from
    now on; what it has freed goes back to the system.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)
    with suppress(OSError, AttributeError, TypeError):  # glibc's alone
        ctypes.CDLL(None).malloc_trim(0)
