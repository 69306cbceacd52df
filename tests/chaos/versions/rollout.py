"""A web process and a worker of each version, over one database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.chaos.deliveries import SETTINGS
from tests.chaos.offered import offer
from tests.scaled import REDIS, Database, WorkerProcess
from tests.serving import ServerProcess

from .old_version import OldServer, OldWorker

_ROWS = """
from llm.models import LanguageModel, Provider
from tools.models import Tool
demo = Provider.objects.get(kind="demo")
LanguageModel.objects.get_or_create(provider=demo, name="demo-fast")
Tool.objects.filter(name="weather_demo").update(approval="always")
"""
#: Web processes let requests end; workers hand their turns over.
WEB_GRACE, WORKER_GRACE = "5", "0.3"


class Rollout:
    """`redis`: None for PostgreSQL alone."""

    def __init__(self, folder: Path, old: Path, redis: str | None = REDIS) -> None:
        self.database = Database()
        environment = {
            **SETTINGS,
            "DATABASE_URL": self.database.url,
            "REDIS_URL": redis or "",
            "DRAIN_GRACE": WEB_GRACE,
        }
        self.data = folder / "data"
        self.old_web = OldServer(old, self.data, environment)
        self.new_web = ServerProcess(self.data, environment)
        environment["DRAIN_GRACE"] = WORKER_GRACE
        # A worker finds the demo provider at this port.
        of_old, of_new = (
            {**environment, "PORT": str(web.port)}
            for web in (self.old_web, self.new_web)
        )
        self.old_worker = OldWorker(old, self.data, of_old)
        self.new_worker = WorkerProcess(self.data, of_new)

    async def start_old(self, provider_port: int) -> None:
        """As they ran before: the tables and rows are made by the earlier version."""
        web = self.old_web
        await asyncio.to_thread(web.manage, "migrate", "--verbosity=0")
        await asyncio.gather(
            asyncio.to_thread(web.start), asyncio.to_thread(self.old_worker.start)
        )
        await asyncio.to_thread(offer, web, provider_port)
        await asyncio.to_thread(web.manage, "shell", "-v0", "-c", _ROWS)

    async def migrate(self) -> None:
        await asyncio.to_thread(self.new_web.manage, "migrate", "--verbosity=0")

    async def start_new(self) -> None:
        await asyncio.gather(
            asyncio.to_thread(self.new_web.start),
            asyncio.to_thread(self.new_worker.start),
        )

    async def stop_old(self) -> list[int]:
        """By SIGTERM, one after another. Returns the exit codes."""
        return [
            await asyncio.to_thread(process.stop)
            for process in (self.old_worker, self.old_web)
        ]

    def end(self) -> None:
        processes = self.old_worker, self.new_worker, self.old_web, self.new_web
        for process in processes:
            if process.process:
                process.kill()
        self.database.drop()

    def faults(self) -> list[str]:
        """Lines of the logs that report a fault of the processes."""
        return [
            f"{name}: {line}"
            for name, process in (("old", self.old_web), ("new", self.new_web))
            if process.log_path.exists()
            for line in process.faults()
            if "Traceback" in line or " ERROR " in line
        ]
