"""What a process that has started gives back, and need not look at again."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

from llm import prices

#: New objects before a look for garbage. A long history is some ten thousand at once,
#: none of which is garbage; Python's own 700 makes reading it a third dearer.
_THRESHOLD = (20_000, 10, 10)


def settle() -> None:
    """Load what is still to be loaded; takes a second, in a thread of its own.

    The price list takes half of it, and no answer shall wait for that. What the start
    has made stays for good, so Python's collector passes over it from now on; what it
    has freed, above all by the first migrations, goes back to the system.
    """
    prices.warm()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)
    with suppress(OSError, AttributeError, TypeError):  # glibc's alone
        ctypes.CDLL(None).malloc_trim(0)
