"""What a turn costs when many long conversations are in use, one after another.

Two hundred conversations of a thousand turns each get a turn in rotation, through a
real embedded server, beside as many conversations of one turn. CPU of the server's
process; the first round, which reads the rows, is shown apart.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from django.conf import settings
from django.db import connection, models

from benchmarks.client import Http
from benchmarks.dataset import make_dataset
from benchmarks.native.programs import build, precise_cpu_seconds, provider
from benchmarks.processes import memory
from benchmarks.table import show
from conversations.models import Conversation, Item, Turn
from tests.serving import ServerProcess, free_port

CONVERSATIONS = int(os.environ.get("ROTATION", "200"))
EARLIER = 1_000  # turns
ROUNDS = 4  # the first one fills the cache


def main() -> None:
    with ExitStack() as running:
        server = ServerProcess(settings.DATA, {"ENABLE_DEMO": "false"}).start()
        running.callback(server.stop)
        assert server.process
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        running.enter_context(provider(build(folder), port))
        data = make_dataset(
            port, CONVERSATIONS, (1, EARLIER), ("c20-d0",), prefix="mock-"
        )
        long = [data.long[EARLIER], *_copies(data.long[EARLIER], CONVERSATIONS - 1)]
        fresh = [data.long[1], *_copies(data.long[1], CONVERSATIONS - 1)]
        pid, rows = server.process.pid, []
        Turn.objects.update(is_indexed=True)  # or the server would index them meanwhile
        costs: dict[str, list[float]] = {"fresh": [], "long": []}
        for number in range(ROUNDS):
            for name, ids in (("fresh", fresh), ("long", long)):
                began = precise_cpu_seconds(pid)
                asyncio.run(_talk(server.port, data.token, ids))
                spent = 1e3 * (precise_cpu_seconds(pid) - began) / len(ids)
                costs[name].append(spent)
                megabytes = f"{memory(pid) / 1e6:.0f}"
                rows.append([name, str(number + 1), f"{spent:.2f}", megabytes])
        show(
            "Long conversations in turn",
            ["conversations", "round", "CPU ms a turn", "MB"],
            rows,
        )
        ratio = median(costs["long"][1:]) / median(costs["fresh"][1:])
        print(f"long / fresh, medians after the first round: {ratio:.2f}")


async def _talk(port: int, token: str, ids: Sequence[str]) -> None:
    async with Http(port, {"Authorization": f"Bearer {token}"}) as http:
        for pk in ids:
            body = {"input": "And now?", "model": "mock-c20-d0", "stream": True}
            await http.post(f"/api/conversations/{pk}/turns/", body)


def _copies(source: str, count: int) -> list[str]:
    """Copy the conversation by SQL: 400,000 items by the ORM would take minutes."""
    ids = [f"{source}_{number}" for number in range(count)]
    with connection.cursor() as cursor:
        for number in range(count):
            suffix = f"_{number}"
            for model, condition in (
                (Conversation, "id = %s"),
                (Turn, "conversation_id = %s"),
                (Item, "turn_id IN (SELECT id FROM conversations_turn"
                       " WHERE conversation_id = %s)"),
            ):  # fmt: skip
                columns, values = _columns(model, suffix)
                table = model._meta.db_table
                cursor.execute(
                    f"INSERT INTO {table} ({columns}) SELECT {values} FROM {table}"
                    f" WHERE {condition}",
                    [source],
                )
    return ids


_RENAMED = {"id", "conversation_id", "turn_id", "parent_id"}


def _columns(model: type[models.Model], suffix: str) -> tuple[str, str]:
    fields = [
        field.column
        for field in model._meta.concrete_fields
        if not isinstance(field, models.AutoField)
    ]
    values = [
        f"{name} || '{suffix}'" if name in _RENAMED else f'"{name}"' for name in fields
    ]
    return ", ".join(f'"{name}"' for name in fields), ", ".join(values)


if __name__ == "__main__":
    main()
