"""Deployments that the benchmarks start: one process, or several over PostgreSQL."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import redis

from benchmarks.dataset import Dataset
from benchmarks.processes import cpu_seconds
from tests.scaled import Cluster, PostgresProcess, RedisProcess, migrated
from tests.serving import ServerProcess

SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "tests.settings_promises",  # with a tool of 40 MB
    "ENABLE_DEMO": "false",
}
MAKE_DATASET = """
import json; from dataclasses import asdict; from benchmarks.dataset import make_dataset
print(json.dumps(asdict(make_dataset(
    {port}, conversations={conversations}, earlier=(), models={models},
    prefix={prefix!r},
))))
"""

Figures = dict[str, float]


@dataclass(slots=True)
class Deployment:
    """The processes of one deployment, and the dataset that they share."""

    name: str
    webs: Sequence[ServerProcess]
    workers: Sequence[ServerProcess] = ()
    dataset: Dataset | None = None
    failures: list[str] = field(default_factory=list)

    def prepare(
        self,
        upstream_port: int,
        models: Sequence[str],
        *,
        conversations: int = 0,
        prefix: str = "bench-",
    ) -> None:
        """Create the rows of the dataset; names of models are `models` after the
        prefix."""
        code = MAKE_DATASET.format(
            port=upstream_port,
            conversations=conversations,
            models=tuple(models),
            prefix=prefix,
        )
        printed = self.webs[0].manage("shell", "-v0", "-c", code)
        self.dataset = Dataset(**json.loads(printed.splitlines()[-1]))

    def cpu(self) -> tuple[float, float]:
        """Seconds of all web processes and of all workers."""
        webs, workers = (
            sum(cpu_seconds(process_id(process)) for process in processes)
            for processes in (self.webs, self.workers)
        )
        return webs, workers


def process_id(process: ServerProcess) -> int:
    assert process.process
    return process.process.pid


@contextmanager
def embedded() -> Iterator[Deployment]:
    folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
    server = ServerProcess(folder / "data", SETTINGS).start()
    try:
        yield Deployment("embedded", [server])
    finally:
        server.stop()
        shutil.rmtree(folder)


class Servers:
    """PostgreSQL and Redis for this benchmark alone."""

    def __enter__(self) -> Servers:
        self._folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
        self.redis = RedisProcess(self._folder).start()
        self.postgres = PostgresProcess().start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.postgres.end()
        self.redis.kill()
        shutil.rmtree(self._folder)

    @contextmanager
    def cluster(
        self, webs: int, workers: int, *, has_redis: bool = True
    ) -> Iterator[Deployment]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        with migrated(folder, self.postgres.url) as template:
            cluster = Cluster(
                folder,
                template,
                webs=webs,
                workers=workers,
                redis=self.redis.url if has_redis else None,
                postgres=self.postgres.url,
                **SETTINGS,
            )
            try:
                cluster.start()
                self.database = cluster.database
                name = f"{webs} web, {workers} work"
                name += "" if has_redis else ", no Redis"
                yield Deployment(name, cluster.webs, cluster.workers)
            finally:
                cluster.end()

    def counts(self) -> Figures:
        """Counters of both servers since their start."""
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
            f"redis {name.removeprefix('cmdstat_')}": float(counts["calls"])
            for name, counts in commands.items()
        }
        return {
            **named,
            "redis": sum(named.values()),
            "redis cpu": cpu["used_cpu_user"] + cpu["used_cpu_sys"],
            "commits": commits,
            "rows written": sum(written),
            "wal": wal,
        }
