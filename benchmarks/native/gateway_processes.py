"""Plain chat completions a second with and without `serve --workers`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from django.conf import settings

from benchmarks.dataset import make_dataset
from benchmarks.native.programs import (
    Programs,
    build,
    load,
    precise_cpu_seconds,
    provider,
)
from benchmarks.processes import memory
from benchmarks.table import show
from tests.serving import ServerProcess, free_port

ROUNDS = 3  # interleaved; the medians count
WORKERS = (0, 1, 2)
CONNECTIONS, REQUESTS = 64, 3_000
MODEL = "mock-c5-d0"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


@dataclass(frozen=True, slots=True)
class Result:
    rate: float  # answers a second
    median: float  # ms
    p95: float
    cpu: float  # ms an answer, of all processes
    shares: Sequence[float]  # of the CPU, by process, in percent
    memory: float  # MB, of all processes


def main() -> None:
    with ExitStack() as running:
        programs = build(Path(running.enter_context(tempfile.TemporaryDirectory())))
        upstream = free_port()
        running.enter_context(provider(programs, upstream))
        server = ServerProcess(settings.DATA, {"GATEWAY_PORT": str(free_port())})
        server.start()
        token = make_dataset(upstream, 1, (), (MODEL,), "").token
        server.stop()
        rounds = [
            {workers: _measure(programs, server, workers, token) for workers in WORKERS}
            for _ in range(ROUNDS)
        ]
    rows = {
        "answers a second": lambda each: each.rate,
        "ms, median": lambda each: each.median,
        "ms, 95th percentile": lambda each: each.p95,
        "CPU, ms an answer, all processes": lambda each: each.cpu,
        "memory of all processes, MB": lambda each: each.memory,
    }
    table: list[list[object]] = [
        [name, *(median(read(each[n]) for each in rounds) for n in WORKERS)]
        for name, read in rows.items()
    ]
    shares = [rounds[-1][n].shares for n in WORKERS]
    table.append(
        ["CPU by process, %", *(" ".join(f"{s:.0f}" for s in each) for each in shares)]
    )
    show(
        f"Chat completions, not streamed, over {CONNECTIONS} connections",
        ["", *(f"{number} gateway processes" for number in WORKERS)],
        table,
    )


def _measure(
    programs: Programs, server: ServerProcess, workers: int, token: str
) -> Result:
    server.environment["GATEWAY_WORKERS"] = str(workers)
    server.start()
    try:
        port = int(server.environment["GATEWAY_PORT"]) if workers else server.port
        _load(programs, port, token, REQUESTS // 10)  # imports and caches
        assert server.process
        pids = [server.process.pid, *_children(server.process.pid)]
        begun = [precise_cpu_seconds(pid) for pid in pids]
        report = _load(programs, port, token, REQUESTS)
        spent = [
            precise_cpu_seconds(pid) - before
            for pid, before in zip(pids, begun, strict=True)
        ]
        return Result(
            report["rps"],
            report["total"]["p50"],
            report["total"]["p95"],
            1e3 * sum(spent) / REQUESTS,
            [100 * each / sum(spent) for each in spent],
            sum(map(memory, pids)) / 1e6,
        )
    finally:
        server.stop()


def _load(
    programs: Programs, port: int, token: str, requests: int
) -> Mapping[str, Any]:
    return load(
        programs,
        port,
        "/v1/chat/completions",
        BODY,
        connections=CONNECTIONS,
        requests=requests,
        chunks=-1,
        headers=[f"Authorization: Bearer {token}"],
    )


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for task in tasks for each in task.read_text().split()]
