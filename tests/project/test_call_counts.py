"""How much of our code a request runs through before its provider is called.

The bounds are for a reader: they limit how many functions, in how many files, lie
between a request and the provider's bytes. `counting_server` defines what is counted.
The aim is 150 functions in 35 files for the gateway, which is reached, and 300 in 60
for REST, which is not in both. Lower a bound when a change allows it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import PATIENCE, SpawnedProcess

MODEL = "demo-fast"  # answers at once
_ROW = f"""
from llm.models import LanguageModel, Provider
host = Provider.objects.get(kind="demo")
LanguageModel.objects.create(provider=host, name={MODEL!r})
"""
TEXT = "Hi"
MESSAGES = [{"role": "user", "content": TEXT}]
RESPONSES = "/v1/responses"
#: Requests, and the bounds of functions and files. A response is stored by default.
GATEWAY = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}, (144, 35)),
    "messages": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 100}, (149, 35)),
    "response": (RESPONSES, {"input": TEXT, "store": False}, (101, 33)),
    "stored response": (RESPONSES, {"input": TEXT}, (307, 77)),
}
REST_BOUNDS = (314, 72)
#: Requests that are counted. The smallest count holds: in the others the server also
#: ends the request before, or renews leases.
REQUESTS = 24

pytestmark = pytest.mark.server


class CountingServer(SpawnedProcess):
    def arguments(self) -> list[str]:
        return [sys.executable, "-m", "tests.project.counting_server", "serve"]

    @property
    def calls(self) -> Path:
        return Path(self.environment["CALLS_FILE"])

    def smallest_count(self) -> set[str]:
        """The functions of the request that entered the fewest, as "file:name:line"."""
        lines = [json.loads(line) for line in self.calls.read_text().splitlines()]
        return min((set(functions) for _, functions in lines), key=len)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[CountingServer]:
    folder = tmp_path_factory.mktemp("counting")
    shutil.copytree(migrated_data, folder / "data")
    server = CountingServer(folder / "data", {"CALLS_FILE": str(folder / "calls")})
    server.start()
    server.manage("shell", "-v0", "-c", _ROW)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def program(server: CountingServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.create_token()}"}
    with httpx.Client(
        base_url=server.url, headers=headers, timeout=PATIENCE
    ) as program:
        yield program


def count(
    server: CountingServer, program: httpx.Client, path: str, body: dict[str, Any]
) -> set[str]:
    program.post(path, json=body).raise_for_status()  # warms the server
    server.calls.write_text("")
    for _ in range(REQUESTS):
        program.post(path, json=body).raise_for_status()
    return server.smallest_count()


def assert_within(found: set[str], bounds: tuple[int, int]) -> None:
    by_file: dict[str, list[str]] = defaultdict(list)
    for each in sorted(found):
        file, name, _ = each.split(":")
        by_file[file].append(name)
    counts = len(found), len(by_file)
    listed = "\n".join(f"{file}: {' '.join(by_file[file])}" for file in by_file)
    assert counts[0] <= bounds[0], f"{counts}\n{listed}"
    assert counts[1] <= bounds[1], f"{counts}\n{listed}"


@pytest.mark.parametrize("kind", GATEWAY)
def test_a_gateway_request_reaches_its_provider_by_a_short_path(
    server: CountingServer, program: httpx.Client, kind: str
):
    path, fields, bounds = GATEWAY[kind]
    body = {"model": MODEL, "stream": True, **fields}
    assert_within(count(server, program, path, body), bounds)


def test_a_message_over_rest_reaches_its_provider_by_a_short_path(
    server: CountingServer, program: httpx.Client
):
    conversations = "/api/conversations/"
    conversation = program.post(conversations, json={}).json()["id"]
    path = f"{conversations}{conversation}/turns/"
    found = count(server, program, path, {"input": TEXT, "model": MODEL, "wait": True})
    assert_within(found, REST_BOUNDS)
