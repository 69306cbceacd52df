"""Build and run the load client and the provider, which cost far less CPU than what
they measure. Their options are at the top of `loadgen.c` and `mock_llm.c`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import program

SOURCES = Path(__file__).resolve().parent
FLAGS = ("-O2", "-Wall", "-Wextra")


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the built programs."""

    client: Path
    provider: Path


def build(folder: Path) -> Programs:
    """Compile both into `folder`. Ends the program where there is no C compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("This benchmark needs a C compiler; set CC.")
    built = [folder / name for name in ("loadgen", "mock_llm")]
    for path in built:
        source = str(SOURCES / f"{path.name}.c")
        subprocess.run([compiler, *FLAGS, "-o", str(path), source], check=True)
    return Programs(*built)


@contextmanager
def provider(programs: Programs, port: int) -> Iterator[int]:
    """Run the provider. Gives its process id."""
    with program([str(programs.provider), "--port", str(port)], port) as pid:
        yield pid


def load(
    programs: Programs,
    port: int,
    path: str,
    body: Mapping[str, Any],
    *,
    connections: int,
    requests: int,
    chunks: int,
    headers: Sequence[str] = (),
    options: Sequence[object] = (),
) -> Mapping[str, Any]:
    """Send the requests, each of which must be answered with that many chunks; -1:
    with any number, as a server may merge chunks that come at once.

    Returns the client's report: `ok`, `errors`, and percentiles of `ttft` and `lag` in
    ms. Raises RuntimeError if an answer failed.
    """
    command: list[object] = [programs.client, "--port", port, "--path", path]
    command += ["--body", json.dumps(body), "-c", connections, "-n", requests]
    command += ["--expect", chunks, *options]
    for header in headers:
        command += ["--header", header]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{path}: {done.stdout}{done.stderr}")
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def precise_cpu_seconds(pid: int) -> float:
    """CPU time of the process's threads in nanoseconds' precision; `/proc/PID/stat`
    counts in hundredths of a second."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has just ended
            spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9
