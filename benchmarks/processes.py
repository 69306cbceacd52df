"""CPU time and memory of processes, read from Linux's /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent
PATIENCE = 30  # seconds
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time since its start, precise to 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def memory(pid: int) -> float:
    """Resident bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@contextmanager
def python(module: str, port: int, *arguments: object) -> Iterator[int]:
    """Run a module that listens on `port`. Gives its process id."""
    command = [sys.executable, "-m", module, str(port), *map(str, arguments)]
    with program(command, port) as pid:
        yield pid


@contextmanager
def program(
    command: Sequence[str],
    port: int,
    *,
    patience: float = PATIENCE,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run `command`, which listens on `port`. Gives its process id."""
    process = subprocess.Popen(command, cwd=BASE, env={**os.environ, **(env or {})})
    try:
        _wait_for(port, patience)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, seconds: float) -> None:
    patience = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.02)
