"""Limits that the child process of an isolated tool sets on itself.

It does so before it imports the tool's code, and takes away its right to raise them.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CPU_SECONDS = 600  # of one call
MEMORY = 1024  # MiB beyond what the start needs, where the tool names no other number
FILE_SIZE = 64  # MiB of each file
OPEN_FILES = 256
PROCESSES = 64  # and threads, beyond those that the account has already
_MEMORY_OF_REPORT = 64  # MiB that are left to report that the memory is used up


def limit_process(*, is_sandboxed: bool) -> None:
    """Raises nothing: a system that knows a limit not has it not."""
    started = 0 if is_sandboxed else _count_tasks()
    _lower(resource.RLIMIT_CPU, CPU_SECONDS)
    _lower(resource.RLIMIT_FSIZE, FILE_SIZE * 2**20)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_NPROC, started + PROCESSES)
    _lower(resource.RLIMIT_CORE, 0)


@contextmanager
def limited_memory(mebibytes: int | None) -> Iterator[None]:
    """Limits what is allocated from here on."""
    most = _address_space() + (mebibytes or MEMORY) * 2**20
    hard = _lower(resource.RLIMIT_AS, most + _MEMORY_OF_REPORT * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (min(most, hard), hard))
    try:
        yield
    finally:  # reporting an error needs memory too
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def _lower(kind: int, value: int) -> int:
    """Set both limits to the value, or to the present hard limit if that is lower."""
    _soft, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
    return value


def _count_tasks() -> int:
    """Processes and threads of all accounts, which are no fewer than this one's."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):  # only Linux has it
        return 4096


def _address_space() -> int:
    """Bytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # only Linux has it
        return 0
    return pages * resource.getpagesize()
