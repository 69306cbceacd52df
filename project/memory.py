"""What a process that has started gives back, and need not look at again."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

from conversations.freed_memory import give_back

#: New objects before a look for garbage. A long history is some ten thousand at once,
#: none of which is garbage; Python's own 700 makes reading it a third dearer.
_THRESHOLD = (20_000, 10, 10)
#: Of glibc's mallopt. Threads share one heap: what one has freed no other could use. A
#: block that is large is mapped by itself, and goes back when it is freed: left alone,
#: glibc puts up to 32 MB into the heap, and what lies behind them holds them there. Of
#: what is free at the heap's end so much stays for the next.
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
_LARGE_BLOCK, _SPARE = 256 * 1024, 16 * 1024 * 1024  # bytes


def share_heap() -> None:
    """Before there are threads."""
    with suppress(OSError, AttributeError, TypeError):  # glibc's alone
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _SPARE)


def settle() -> None:
    """Takes a tenth of a second, in a thread of its own.

    What the start has made stays for good, so Python's collector passes over it from
    now on; what it has freed goes back to the system.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)
    give_back()
