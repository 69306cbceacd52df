"""What thousands of open streams cost: CPU and memory of each kind of process.

Streams of stored responses at `/v1` begin one after another, and are all open in the
`WINDOW` that is measured. docs/scaling.md computes ten thousand from it. PostgreSQL,
Redis, client and provider run on the same machine; client and provider are the programs
of `benchmarks/native/`, which cost little.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.native.programs import Programs, build, load, provider
from benchmarks.processes import cpu_seconds, memory
from benchmarks.scaled.deployments import Deployment, Figures, Servers, process_id
from benchmarks.table import show
from tests.serving import free_port

PROCESSES = 2  # web processes, and as many workers
STARTS = 40.0  # streams that begin in a second
SETTLE = 3.0  # seconds after the last one has begun
WINDOW = 15.0  # seconds that are measured
TAIL = 4.0  # seconds until the first one ends


@dataclass(frozen=True, slots=True)
class Load:
    streams: int
    pace: int  # deltas a second of each
    has_redis: bool = True

    @property
    def begin(self) -> float:
        """Seconds in which the streams begin."""
        return self.streams / STARTS

    @property
    def chunks(self) -> int:
        """Number of an answer's chunks: it lasts until the window is over."""
        return round((self.begin + SETTLE + WINDOW + TAIL) * self.pace)

    @property
    def model(self) -> str:
        return f"c{self.chunks}-d{1_000 // self.pace}"

    def __str__(self) -> str:
        kind = "" if self.has_redis else ", no Redis"
        return f"{self.streams} streams, {self.pace} deltas/s{kind}"


LOADS = (
    Load(250, 20),
    Load(1_000, 2),
    Load(2_000, 2),
    Load(250, 20, has_redis=False),
    Load(1_000, 2, has_redis=False),
)


def main() -> None:
    _raise_open_file_limit()
    rows: dict[str, Figures] = {}
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        programs = build(folder)
        port = free_port()
        running.enter_context(provider(programs, port))
        servers = running.enter_context(Servers())
        for has_redis in (True, False):
            loads = [each for each in LOADS if each.has_redis == has_redis]
            with servers.cluster(
                PROCESSES, PROCESSES, has_redis=has_redis
            ) as deployment:
                models = ["c5-d0", *(each.model for each in loads)]
                deployment.prepare(port, models, prefix="mock-")
                _warm_up(deployment, programs)
                for each in loads:
                    rows[str(each)] = _measure(deployment, servers, programs, each)
    _show(rows)


def _raise_open_file_limit() -> None:
    """The client and the provider inherit the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _warm_up(deployment: Deployment, programs: Programs) -> None:
    with ThreadPoolExecutor(PROCESSES) as pool:
        for each in _begin(pool, deployment, programs, "c5-d0", 100, 0.0):
            each.result()


def _begin(
    pool: ThreadPoolExecutor,
    deployment: Deployment,
    programs: Programs,
    model: str,
    streams: int,
    seconds: float,
) -> list[Future[Mapping[str, Any]]]:
    """Begin the streams, at each web process an equal part of them."""
    assert deployment.dataset
    body = {"model": f"mock-{model}", "input": "Hi", "stream": True}
    each = streams // len(deployment.webs)
    return [
        pool.submit(
            load,
            programs,
            web.port,
            "/v1/responses",
            body,
            connections=each,
            requests=each,
            chunks=-1,  # merged ones are counted as missing
            headers=[f"Authorization: Bearer {deployment.dataset.token}"],
            options=["--stagger", int(seconds * 1_000), "--match", ".delta"],
        )
        for web in deployment.webs
    ]


def _measure(
    deployment: Deployment, servers: Servers, programs: Programs, wanted: Load
) -> Figures:
    print(f"measuring: {wanted}", flush=True)
    idle = _memory(deployment)
    with ThreadPoolExecutor(PROCESSES) as pool:
        begun = _begin(
            pool,
            deployment,
            programs,
            wanted.model,
            wanted.streams,
            wanted.begin,
        )
        time.sleep(wanted.begin + SETTLE)
        before, before_at = _cpu(deployment, servers), time.monotonic()
        counts = servers.counts()
        time.sleep(WINDOW)
        after, seconds = _cpu(deployment, servers), time.monotonic() - before_at
        grown = {name: value - counts[name] for name, value in servers.counts().items()}
        memories = _memory(deployment)
        connections = _connections(servers)
        reports = [each.result() for each in begun]
    deltas = wanted.streams * wanted.pace * seconds
    received = sum(report["chunks"] for report in reports)
    return {
        **{
            f"{name} us": (value - before[name]) / deltas * 1e6
            for name, value in after.items()
        },
        "cores": (sum(after.values()) - sum(before.values())) / seconds,
        "redis commands": grown["redis"] / deltas,
        "commits": grown["commits"] / seconds,
        "wal": grown["wal"] / deltas,
        **{
            f"{name} KB": (value - idle[name]) / wanted.streams / 1024
            for name, value in memories.items()
        },
        "connections": connections,
        "lag p50": max(report["lag"]["p50"] for report in reports),
        "lag p95": max(report["lag"]["p95"] for report in reports),
        "missing": 1 - received / (wanted.streams * wanted.chunks),
    }


def _cpu(deployment: Deployment, servers: Servers) -> Figures:
    """CPU seconds since their start, by the kind of process."""
    webs, workers = deployment.cpu()
    return {
        "web": webs,
        "worker": workers,
        "redis": servers.counts()["redis cpu"],
        "postgres": sum(cpu_seconds(pid) for pid in _backends(servers)),
    }


def _backends(servers: Servers) -> Sequence[int]:
    """Ids of PostgreSQL's processes, without the one that runs this query."""
    with psycopg.connect(servers.database.url) as rows:
        query = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        return [pid for (pid,) in rows.execute(query)]


def _connections(servers: Servers) -> float:
    with psycopg.connect(servers.database.url) as rows:
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        found = rows.execute(query).fetchone()
    assert found
    return float(found[0])


def _memory(deployment: Deployment) -> Figures:
    """Resident bytes of all web processes and of all workers."""
    return {
        name: sum(memory(process_id(process)) for process in processes)
        for name, processes in (
            ("web", deployment.webs),
            ("worker", deployment.workers),
        )
    }


_COLUMNS = {
    "web us": "web, µs a delta",
    "worker us": "worker",
    "redis us": "Redis",
    "postgres us": "PostgreSQL",
    "cores": "cores",
    "redis commands": "commands a delta",
    "commits": "commits/s",
    "wal": "WAL, bytes a delta",
    "connections": "connections",
    "web KB": "web, KB a stream",
    "worker KB": "worker, KB a stream",
    "lag p50": "lag p50, ms",
    "lag p95": "p95",
    "missing": "deltas merged or missing, share",
}


def _show(rows: Mapping[str, Figures]) -> None:
    table = [[name, *(row[key] for key in _COLUMNS)] for name, row in rows.items()]
    head = ["", *_COLUMNS.values()]
    show(f"Open streams: {PROCESSES} web, {PROCESSES} workers", head, table)
