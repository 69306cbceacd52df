"""The port at which a worker, which serves nothing else, serves `/metrics`."""

from __future__ import annotations

from typing import Self

from aiohttp import web
from django.conf import settings

from conversations import engine
from project.environment.configuration_error import ConfigurationError
from project.monitoring.exposition import (
    CHALLENGE,
    CONTENT_TYPE,
    REFUSAL,
    write_metrics,
)
from project.monitoring.metrics_access import Scrape, refuse_scrape


class MetricsPort:
    """Close it on the event loop on which it was opened."""

    def __init__(self, runner: web.AppRunner | None) -> None:
        self._runner = runner

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Port 0 opens none. Raises ConfigurationError."""
        if not port:
            return cls(None)
        application = web.Application()
        application.router.add_get("/metrics", _answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as exc:
            await runner.cleanup()
            reason = f"cannot listen at {host}:{port} ({exc.strerror})."
            raise ConfigurationError("METRICS_PORT", reason) from exc
        return cls(runner)

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


async def _answer(request: web.Request) -> web.Response:
    headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
    scrape = Scrape(
        request.headers.get("authorization", ""),
        request.remote or "",
        {name.lower() for name in request.headers},
    )
    if status := refuse_scrape(scrape, settings.MONITORING):
        if status == 401:
            headers["WWW-Authenticate"] = CHALLENGE
        return web.Response(status=status, text=REFUSAL, headers=headers)
    # In a thread of the engine, which has a connection to the database.
    body = await engine.read(write_metrics)
    return web.Response(body=body, headers=headers)
