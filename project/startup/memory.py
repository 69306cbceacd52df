"""Memory settings of a process: glibc's heap and Python's garbage collector."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

from conversations.engine.process.malloc_trim import trim_heap

#: New objects between two garbage collections. Loading a long history creates about ten
#: thousand objects, none of them garbage; with Python's default of 700 it takes a third
#: longer.
_THRESHOLD = (20_000, 10, 10)
#: Parameters of glibc's mallopt. All threads share one arena, because a thread cannot
#: use memory that was freed in another thread's arena. Large blocks are mapped
#: separately and return to the system when freed; by default glibc allocates blocks of
#: up to 32 MB in the heap, where later blocks prevent their return. Up to _SPARE bytes
#: stay free at the heap's end.
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
_LARGE_BLOCK, _SPARE = 256 * 1024, 16 * 1024 * 1024  # bytes


def configure_malloc() -> None:
    """Configure glibc's malloc. Call before threads start."""
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _SPARE)


def freeze_startup_objects() -> None:
    """Exclude the objects of the start from garbage collection, and trim the heap.

    They live as long as the process. Takes 0.1 seconds, so call it in a thread.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)
    trim_heap()
