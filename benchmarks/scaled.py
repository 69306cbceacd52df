"""The scaled delivery: what a turn and a delta cost each process, Redis and PostgreSQL,
and how late followers read at other processes than the one that runs the turn.

PostgreSQL and Redis are started for it, so that nobody else's work is counted. All lags
are from the provider's write to the client's read, measured by the same client in the
same run; beside them the embedded delivery under the same load, so the difference is
what several processes add.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import psycopg
import redis

from benchmarks.client import Answer, Http, Refused
from benchmarks.processes import cpu_seconds, memory, python
from benchmarks.table import show
from benchmarks.world import World
from tests.conversations.stopping import teach
from tests.conversations.upstream import Upstream
from tests.programs import find_program
from tests.scaled import Cluster, PostgresProcess, RedisProcess, migrated
from tests.serving import ServerProcess, free_port

PACE = 50  # deltas a second of one stream
STREAMS = (20, 100, 200)
TURNS = 200  # of which the costs are counted
FLUSH = 11.0  # seconds after which an idle process of PostgreSQL has told its counts
SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "tests.settings_promises",  # with a tool of 40 MB
    "ENABLE_DEMO": "false",
}
WORLD = """
import json; from dataclasses import asdict; from benchmarks.world import make_world
print(json.dumps(asdict(make_world({port}, conversations={number}, earlier=()))))
"""

Figures = dict[str, float]


@dataclass(slots=True)
class Site:
    """Processes to ask and to follow at, and the rows that they have in common."""

    name: str
    webs: Sequence[ServerProcess]
    workers: Sequence[ServerProcess] = ()
    world: World | None = None
    failures: list[str] = field(default_factory=list)

    def prepare(self, upstream_port: int) -> None:
        code = WORLD.format(port=upstream_port, number=max(STREAMS) + 1)
        told = self.webs[0].manage("shell", "-v0", "-c", code)
        self.world = World(**json.loads(told.splitlines()[-1]))

    def cpu(self) -> tuple[float, float]:
        """Seconds of all web processes and of all workers."""
        webs, workers = (
            sum(cpu_seconds(_pid(process)) for process in processes)
            for processes in (self.webs, self.workers)
        )
        return webs, workers


def main() -> None:
    for program in ("redis-server", "initdb"):
        if find_program(program) is None:
            sys.exit(f"`scaled` starts servers of its own, and {program} is missing.")
    with ExitStack() as running:
        port = free_port()
        running.enter_context(python("benchmarks.upstream", port))
        with _embedded() as alone:
            alone.prepare(port)
            lags = {alone.name: _paced_all(alone)}
        servers = running.enter_context(_Servers())
        for webs, workers in ((1, 1), (4, 4)):
            with servers.cluster(webs, workers) as site:
                site.prepare(port)
                if not servers.figures:
                    servers.figures = asyncio.run(_costs(site, servers))
                lags[site.name] = _paced_all(site)
                if webs > 1:
                    large_port = free_port()
                    teach(site.webs[0], large_port)
                    lags[f"{site.name} and 40 MB"] = {
                        100: asyncio.run(_beside_large(site, large_port))
                    }
    _show_costs(servers.figures)
    _show_lags(lags)


# Sites


@contextmanager
def _embedded() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
    server = ServerProcess(folder / "data", SETTINGS).start()
    try:
        yield Site("embedded", [server])
    finally:
        server.stop()
        shutil.rmtree(folder)


class _Servers:
    """PostgreSQL and Redis, with nobody else at them."""

    figures: Figures | None = None

    def __enter__(self) -> _Servers:
        self._folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
        self.redis = RedisProcess(self._folder).start()
        self.postgres = PostgresProcess().start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.postgres.end()
        self.redis.kill()
        shutil.rmtree(self._folder)

    @contextmanager
    def cluster(self, webs: int, workers: int) -> Iterator[Site]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        with migrated(folder, self.postgres.url) as template:
            cluster = Cluster(
                folder,
                template,
                webs=webs,
                workers=workers,
                redis=self.redis.url,
                postgres=self.postgres.url,
                **SETTINGS,
            )
            try:
                cluster.start()
                self.database = cluster.database
                name = f"{webs} web, {workers} work"
                yield Site(name, cluster.webs, cluster.workers)
            finally:
                cluster.end()

    def counts(self) -> Figures:
        """What both have done since they were started."""
        with redis.Redis.from_url(self.redis.url) as client:
            commands = client.info("commandstats")
            cpu = client.info("cpu")
        with psycopg.connect(self.database.url) as rows:
            query = (
                "SELECT xact_commit, tup_inserted, tup_updated, tup_deleted,"
                " pg_current_wal_lsn() - '0/0' FROM pg_stat_database"
                " WHERE datname = current_database()"
            )
            found = rows.execute(query).fetchone()
        assert found
        commits, *written, wal = map(float, found)
        named = {
            f"redis {name.removeprefix('cmdstat_')}": float(told["calls"])
            for name, told in commands.items()
        }
        return {
            **named,
            "redis": sum(named.values()),
            "redis cpu": cpu["used_cpu_user"] + cpu["used_cpu_sys"],
            "commits": commits,
            "rows written": sum(written),
            "wal": wal,
        }


# What a turn and a delta cost


async def _costs(site: Site, servers: _Servers) -> Figures:
    """Of a turn of 5 deltas, and of a delta beyond: the slope between streams of 10 and
    of 200, so that the turn's own cost is out. What processes do when nothing is asked
    of them is out as well."""
    await _load(site, "c5-d0", connections=4, turns=5)  # imports, caches
    await asyncio.sleep(FLUSH)
    idle = await _counted(site, servers, asyncio.sleep(10))
    idle = {name: value / idle["seconds"] for name, value in idle.items()}

    async def each(model: str, connections: int, turns: int, spread: float) -> Figures:
        load = _load(site, model, connections=connections, turns=turns, spread=spread)
        spent = await _counted(site, servers, load)
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
    figures |= await _open_streams(site)
    for role, processes in (("web", site.webs), ("worker", site.workers)):
        pid = _pid(processes[0])
        figures[f"{role} to redis"] = _connections(pid, servers.redis.port)
        figures[f"{role} to postgres"] = _connections(pid, servers.postgres.port)
    return figures


async def _counted(site: Site, servers: _Servers, work: Awaitable[object]) -> Figures:
    """What was done while this went on, `seconds` long."""
    before, (webs, workers) = servers.counts(), site.cpu()
    begun = asyncio.get_running_loop().time()
    await work
    await asyncio.sleep(FLUSH)
    seconds = asyncio.get_running_loop().time() - begun
    after, (webs_after, workers_after) = servers.counts(), site.cpu()
    spent = {name: value - before.get(name, 0.0) for name, value in after.items()}
    spent |= {"web cpu": webs_after - webs, "worker cpu": workers_after - workers}
    return {**spent, "seconds": seconds}


async def _open_streams(site: Site) -> Figures:
    """Of streams of a delta a second."""
    processes = {"web": site.webs[0], "worker": site.workers[0]}
    before = {role: memory(_pid(process)) for role, process in processes.items()}
    loading = asyncio.ensure_future(
        _load(site, "c20-d1000", connections=100, spread=10)
    )
    await asyncio.sleep(14)  # all have begun, none has ended
    figures = {
        f"{role} open": (memory(_pid(process)) - before[role]) / 100 / 1024
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
    ours = (f for f in fields if f[9] in sockets and f[3] == "01")
    return sum(int(f[2].partition(":")[2], 16) == port for f in ours)


# Lags


def _paced_all(site: Site) -> dict[int, Figures]:
    found = {}
    gc.freeze()  # the client's own pauses would count as lag
    asyncio.run(_load(site, "c10-d20", connections=20))  # imports, caches
    for streams in STREAMS:
        print(f"measuring: {site.name}, {streams} streams ...", file=sys.stderr)
        found[streams] = asyncio.run(_paced(site, streams))
    return found


async def _paced(site: Site, streams: int) -> Figures:
    spread, loop = 4.0, asyncio.get_running_loop()
    begun, cpu = loop.time(), sum(site.cpu())
    answers = await _load(site, "c200-d20", connections=streams, spread=spread)
    wall = loop.time() - begun
    lags = [lag * 1e3 for answer in answers for lag in answer.lags]
    cuts = quantiles(lags, n=100)
    return {
        "stretch": wall / (spread * (streams - 1) / streams + 200 / PACE),
        "p50": cuts[49],
        "p95": cuts[94],
        "p99": cuts[98],
        "cores": (sum(site.cpu()) - cpu) / wall,
        "missing": sum(max(0, 200 - len(answer.lags)) for answer in answers),
        "again": sum(len(answer.lags) > 200 for answer in answers),
    }


async def _beside_large(site: Site, port: int) -> Figures:
    """A hundred streams, while one more turn has a tool return 40 MB."""
    assert site.world
    async with Upstream(port):
        streams = asyncio.ensure_future(_paced(site, 100))
        await asyncio.sleep(4)
        took = await _ask(
            site, site.webs[0], site.world.conversations[-1], "upstream", text=LARGE
        )
        figures = await streams
    print(f"The turn with 40 MB took {took.total:.1f} s", file=sys.stderr)
    return figures


LARGE = "a large result"  # what makes the provider of the tests call that tool


async def _load(
    site: Site,
    model: str,
    *,
    connections: int,
    turns: int = 1,
    spread: float = 0.0,  # seconds in which the connections begin
) -> list[Answer]:
    assert site.world
    conversations = site.world.conversations
    answers: list[Answer] = []

    async def one(number: int) -> None:
        await asyncio.sleep(spread * number / connections)
        for _ in range(turns):
            web = site.webs[number % len(site.webs)]
            name = f"bench-{model}"
            try:
                answers.append(await _ask(site, web, conversations[number], name))
            except (Refused, OSError, EOFError) as exc:
                site.failures.append(repr(exc))

    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(number))
    return answers


async def _ask(
    site: Site,
    web: ServerProcess,
    conversation: str,
    model: str,
    text: str = "Say something about the weather in Paris.",
) -> Answer:
    assert site.world
    headers = {"Authorization": f"Bearer {site.world.token}"}
    async with Http(web.port, headers) as http:
        return await http.post(
            f"/api/conversations/{conversation}/turns/",
            {"input": text, "model": model, "stream": True},
        )


def _pid(process: ServerProcess) -> int:
    assert process.process
    return process.process.pid


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


def _show_lags(lags: Mapping[str, Mapping[int, Figures]]) -> None:
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
    show(f"Streams of {PACE} deltas a second", head, rows)
