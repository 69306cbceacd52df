"""Costs of a turn and a delta in the scaled delivery, and lags of its subscribers.

The benchmark starts its own PostgreSQL and Redis, so no other work is counted. A lag is
the time from the provider's write to the client's read. The embedded delivery is
measured in the same run under the same load; the difference is what several processes
add.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles

from benchmarks.client import Answer, Http, RequestFailed
from benchmarks.dataset import MODELS
from benchmarks.processes import memory, python
from benchmarks.scaled.deployments import (
    Deployment,
    Figures,
    Servers,
    embedded,
    process_id,
)
from benchmarks.table import show
from tests.integration.stopping import teach
from tests.integration.upstream import Upstream
from tests.programs import find_program
from tests.serving import ServerProcess, free_port

PACE = 50  # deltas a second of one stream
STREAMS = (20, 100, 200)
QUIET_PACE = 10  # deltas a second in the comparison of Redis with PostgreSQL alone
QUIET_SPREAD = 10.0  # seconds in which its streams begin: all are open for as long
ROUNDS = 3  # of that comparison, in turn
TURNS = 200  # whose costs are measured
FLUSH = 11.0  # seconds after which an idle PostgreSQL process has reported its counts


def main() -> None:
    for program in ("redis-server", "initdb"):
        if find_program(program) is None:
            sys.exit(f"`scaled` starts its own servers, and {program} is missing.")
    with ExitStack() as running:
        port = free_port()
        running.enter_context(python("benchmarks.upstream", port))
        with embedded() as alone:
            alone.prepare(port, MODELS, conversations=max(STREAMS) + 1)
            lags = {alone.name: _paced_all(alone)}
        servers, costs = running.enter_context(Servers()), None
        for webs, workers in ((1, 1), (4, 4)):
            with servers.cluster(webs, workers) as deployment:
                deployment.prepare(port, MODELS, conversations=max(STREAMS) + 1)
                costs = costs or asyncio.run(_costs(deployment, servers))
                lags[deployment.name] = _paced_all(deployment)
                if webs > 1:
                    large_port = free_port()
                    teach(deployment.webs[0], large_port)
                    lags[f"{deployment.name} and 40 MB"] = {
                        100: asyncio.run(_beside_large(deployment, large_port))
                    }
    _show_costs(costs)
    _show_lags(lags)


def compare_exchanges() -> None:
    """Lags of 200 quiet streams over Redis and over PostgreSQL alone, in turn, beside
    one process: what several processes add."""
    with ExitStack() as running:
        port = free_port()
        running.enter_context(python("benchmarks.upstream", port))
        servers = running.enter_context(Servers())
        deployments = [
            running.enter_context(embedded()),
            running.enter_context(servers.cluster(4, 4)),
            running.enter_context(servers.cluster(4, 4, has_redis=False)),
        ]
        for deployment in deployments:
            deployment.prepare(port, MODELS, conversations=max(STREAMS) + 1)
            asyncio.run(_load(deployment, "c10-d20", connections=20))
        lags: dict[str, dict[int, Figures]] = {}
        gc.freeze()
        for number in range(1, ROUNDS + 1):
            for deployment in deployments:
                print(f"measuring: {deployment.name}", file=sys.stderr)
                lags[f"{number}. {deployment.name}"] = {
                    STREAMS[-1]: asyncio.run(
                        _paced(
                            deployment,
                            STREAMS[-1],
                            "c200-d100",
                            QUIET_PACE,
                            QUIET_SPREAD,
                        )
                    )
                }
    _show_lags(lags, QUIET_PACE)


# Costs of a turn and a delta


async def _costs(deployment: Deployment, servers: Servers) -> Figures:
    """Costs of a turn of 5 deltas, and of one more delta.

    A delta's cost is the slope between streams of 10 and of 200, which excludes the
    turn's own cost. The costs of idle processes are subtracted.
    """
    await _load(deployment, "c5-d0", connections=4, turns=5)  # imports, caches
    await asyncio.sleep(FLUSH)
    idle = await _counted(deployment, servers, asyncio.sleep(10))
    idle = {name: value / idle["seconds"] for name, value in idle.items()}

    async def each(model: str, connections: int, turns: int, spread: float) -> Figures:
        load = _load(
            deployment, model, connections=connections, turns=turns, spread=spread
        )
        spent = await _counted(deployment, servers, load)
        seconds, number = spent["seconds"], connections * turns
        return {
            name: (value - idle.get(name, 0.0) * seconds) / number
            for name, value in spent.items()
        }

    turn = await each("c5-d0", 4, TURNS // 4, 0.0)
    short = await each("c10-d20", 40, 1, 4.0)
    long = await each("c200-d20", 40, 1, 4.0)
    figures = {f"turn {name}": value for name, value in turn.items()}
    figures |= {f"idle {name}": value for name, value in idle.items()}
    for name, value in long.items():
        figures[f"delta {name}"] = (value - short.get(name, 0.0)) / 190
    figures |= await _open_streams(deployment)
    for role, processes in (("web", deployment.webs), ("worker", deployment.workers)):
        pid = process_id(processes[0])
        figures[f"{role} to redis"] = _connections(pid, servers.redis.port)
        figures[f"{role} to postgres"] = _connections(pid, servers.postgres.port)
    return figures


async def _counted(
    deployment: Deployment, servers: Servers, work: Awaitable[object]
) -> Figures:
    """Counters' growth during `work`, and its length in `seconds`."""
    before, (webs, workers) = servers.counts(), deployment.cpu()
    begun = asyncio.get_running_loop().time()
    await work
    await asyncio.sleep(FLUSH)
    seconds = asyncio.get_running_loop().time() - begun
    after, (webs_after, workers_after) = servers.counts(), deployment.cpu()
    spent = {name: value - before.get(name, 0.0) for name, value in after.items()}
    spent |= {"web cpu": webs_after - webs, "worker cpu": workers_after - workers}
    return {**spent, "seconds": seconds}


async def _open_streams(deployment: Deployment) -> Figures:
    """KB of memory per open stream of one delta a second."""
    processes = {"web": deployment.webs[0], "worker": deployment.workers[0]}
    before = {role: memory(process_id(process)) for role, process in processes.items()}
    loading = asyncio.ensure_future(
        _load(deployment, "c20-d1000", connections=100, spread=10)
    )
    await asyncio.sleep(14)  # all have begun, none has ended
    figures = {
        f"{role} open": (memory(process_id(process)) - before[role]) / 100 / 1024
        for role, process in processes.items()
    }
    await loading
    return figures


def _connections(pid: int, port: int) -> int:
    """Open TCP connections of a process to this port."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with_inode = str(link.readlink()) if link.is_symlink() else ""
        if with_inode.startswith("socket:["):
            sockets.add(with_inode[8:-1])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    established = (f for f in fields if f[9] in sockets and f[3] == "01")
    return sum(int(f[2].partition(":")[2], 16) == port for f in established)


# Lags


def _paced_all(deployment: Deployment) -> dict[int, Figures]:
    found = {}
    gc.freeze()  # a pause of the client's garbage collector would count as lag
    asyncio.run(_load(deployment, "c10-d20", connections=20))  # imports, caches
    for streams in STREAMS:
        print(f"measuring: {deployment.name}, {streams} streams ...", file=sys.stderr)
        found[streams] = asyncio.run(_paced(deployment, streams))
    return found


async def _paced(
    deployment: Deployment,
    streams: int,
    model: str = "c200-d20",
    pace: int = PACE,
    spread: float = 4.0,  # seconds in which the streams begin
) -> Figures:
    count = int(model[1:].partition("-")[0])
    loop = asyncio.get_running_loop()
    begun, cpu = loop.time(), sum(deployment.cpu())
    answers = await _load(deployment, model, connections=streams, spread=spread)
    wall = loop.time() - begun
    lags = [lag * 1e3 for answer in answers for lag in answer.lags]
    cuts = quantiles(lags, n=100)
    return {
        "stretch": wall / (spread * (streams - 1) / streams + count / pace),
        "p50": cuts[49],
        "p95": cuts[94],
        "p99": cuts[98],
        "cores": (sum(deployment.cpu()) - cpu) / wall,
        "missing": sum(max(0, count - len(answer.lags)) for answer in answers),
        "again": sum(len(answer.lags) > count for answer in answers),
    }


async def _beside_large(deployment: Deployment, port: int) -> Figures:
    """A hundred streams, while one more turn has a tool return 40 MB."""
    assert deployment.dataset
    async with Upstream(port):
        streams = asyncio.ensure_future(_paced(deployment, 100))
        await asyncio.sleep(4)
        took = await _post_turn(
            deployment,
            deployment.webs[0],
            deployment.dataset.conversations[-1],
            "upstream",
            text=LARGE,
        )
        figures = await streams
    print(f"The turn with 40 MB took {took.total:.1f} s", file=sys.stderr)
    return figures


LARGE = "a large result"  # makes the test provider call the tool with the large result


async def _load(
    deployment: Deployment,
    model: str,
    *,
    connections: int,
    turns: int = 1,
    spread: float = 0.0,  # seconds in which the connections begin
) -> list[Answer]:
    assert deployment.dataset
    conversations = deployment.dataset.conversations
    answers: list[Answer] = []

    async def one(number: int) -> None:
        await asyncio.sleep(spread * number / connections)
        for _ in range(turns):
            web = deployment.webs[number % len(deployment.webs)]
            name = f"bench-{model}"
            try:
                answers.append(
                    await _post_turn(deployment, web, conversations[number], name)
                )
            except (RequestFailed, OSError, EOFError) as exc:
                deployment.failures.append(repr(exc))

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(number))
    return answers


async def _post_turn(
    deployment: Deployment,
    web: ServerProcess,
    conversation: str,
    model: str,
    text: str = "Say something about the weather in Paris.",
) -> Answer:
    assert deployment.dataset
    headers = {"Authorization": f"Bearer {deployment.dataset.token}"}
    async with Http(web.port, headers) as http:
        return await http.post(
            f"/api/conversations/{conversation}/turns/",
            {"input": text, "model": model, "stream": True},
        )


# Tables

_COSTS: Mapping[str, tuple[str, float]] = {
    "web cpu": ("CPU of the web process, µs", 1e6),
    "worker cpu": ("CPU of the worker, µs", 1e6),
    "redis cpu": ("CPU of Redis, µs", 1e6),
    "redis": ("commands of Redis", 1),
    "redis eval": ("- EVAL", 1),
    "redis xadd": ("- XADD, within it", 1),
    "redis publish": ("- PUBLISH, within it", 1),
    "redis xrange": ("- XRANGE", 1),
    "commits": ("commits of PostgreSQL", 1),
    "rows written": ("rows it wrote", 1),
    "wal": ("bytes of its log", 1),
}


def _show_costs(figures: Figures | None) -> None:
    assert figures

    def cell(of: str, name: str, unit: float) -> float:
        return figures.get(f"{of} {name}", 0.0) * unit

    rows = [
        [title, *(cell(of, name, unit) for of in ("turn", "delta", "idle"))]
        for name, (title, unit) in _COSTS.items()
    ]
    head = ["", "a turn of 5 deltas", "a delta at 50/s", "a second of nothing"]
    show("Scaled: 1 web process, 1 worker, 40 streams", head, rows)
    names = ("to redis", "to postgres", "open")
    rows = [
        [role, *(figures[f"{role} {name}"] for name in names)]
        for role in ("web", "worker")
    ]
    head = ["", "connections to Redis", "to PostgreSQL", "KB an open stream"]
    show("Of one process", head, rows)


def _show_lags(lags: Mapping[str, Mapping[int, Figures]], pace: int = PACE) -> None:
    rows: list[list[object]] = [
        [
            f"{name}, {streams} streams",
            *(figures[key] for key in ("stretch", "p50", "p95", "p99", "cores")),
            *(int(figures[key]) for key in ("missing", "again")),
        ]
        for name, found in lags.items()
        for streams, figures in found.items()
    ]
    head = [
        "",
        "wall / ideal",
        "lag p50, ms",
        "p95",
        "p99",
        "cores",
        "deltas missing",
        "taken over",
    ]
    show(f"Streams of {pace} deltas a second", head, rows)
