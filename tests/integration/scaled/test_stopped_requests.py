"""Idempotency-Keys whose requests are under way in a process that gets SIGTERM: the
clients repeat them at another process, and each is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.integration.clients import Program
from tests.integration.stopping import MODEL, SETTINGS, teach, until
from tests.integration.upstream import Upstream, counted
from tests.scaled import Cluster, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]

NUMBER = 100


def _message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


@dataclass
class Case:
    """`requests`: how many the provider gets: a second one answers the repetition."""

    path: str
    body: Mapping[str, Any]
    requests: int
    key: str = ""
    first: httpx.Response | None = None  # if it was answered in full
    meanwhile: list[httpx.Response] = field(default_factory=list)  # while one stops
    afterwards: list[httpx.Response] = field(default_factory=list)

    def begin(self, name: str) -> None:
        #: What was counted before is repeated without pauses.
        text = f"count to {NUMBER} in 4 s ({name})"
        said = {"input": text} if self.path == "/v1/responses" else _message(text)
        self.key, self.body = text, {"model": MODEL, **said, **self.body}

    async def send(self, program: Program) -> httpx.Response:
        headers = {"Idempotency-Key": self.key}
        async with program.http() as http:
            return await http.post(self.path, json=self.body, headers=headers)


CASES = {
    "chat": Case("/v1/chat/completions", {}, 2),
    "chat stream": Case("/v1/chat/completions", {"stream": True}, 2),
    "messages": Case("/v1/messages", {"max_tokens": 500}, 2),
    "unstored": Case("/v1/responses", {"store": False}, 2),
    # A worker goes on with these.
    "stored": Case("/v1/responses", {}, 1),
    "stored stream": Case("/v1/responses", {"stream": True}, 1),
    "background": Case("/v1/responses", {"background": True}, 1),
}


async def _stop_one_of(cluster: Cluster) -> int:
    """With all requests under way. Returns how many the provider got."""
    port = free_port()
    await asyncio.to_thread(teach, cluster.webs[0], port)
    token = await asyncio.to_thread(cluster.webs[0].create_token)
    stays, stops = (Program(web, token=token) for web in cluster.webs)
    async with Upstream(port) as upstream:
        for name, case in CASES.items():
            case.begin(name)
        first = [asyncio.ensure_future(case.send(stops)) for case in CASES.values()]

        async def have_begun() -> bool:
            return all(upstream.counted_to(case.key) > 2 for case in CASES.values())

        await until(have_begun)
        stopping = asyncio.ensure_future(asyncio.to_thread(cluster.webs[1].stop))
        while not stopping.done():
            for case in CASES.values():
                case.meanwhile.append(await case.send(stays))
        assert stopping.result() == 0
        for case, answering in zip(CASES.values(), first, strict=True):
            with suppress(httpx.TransportError):
                case.first = await answering
            case.afterwards = [await case.send(stays) for _ in range(2)]
    return upstream.request_count


@pytest.fixture(scope="module")
def request_count(tmp_path_factory: pytest.TempPathFactory) -> int:
    folder = tmp_path_factory.mktemp("stopped")
    with migrated(folder) as template:
        cluster = Cluster(
            folder, template, webs=2, workers=1, **{**SETTINGS, "DRAIN_GRACE": "0.3"}
        )
        try:
            return asyncio.run(_stop_one_of(cluster.start()))
        finally:
            cluster.end()


@pytest.mark.parametrize("name", CASES)
def test_a_repetition_elsewhere_is_answered(request_count: int, name: str):
    case = CASES[name]
    answer, again = case.afterwards
    assert answer.status_code == 200, answer.text
    assert again.content == answer.content
    assert again.headers["idempotent-replayed"] == "true"
    if name == "background":
        assert case.first is not None
        assert case.first.json()["id"] == answer.json()["id"]
    elif not case.body.get("stream"):
        assert counted(NUMBER) in answer.text


@pytest.mark.parametrize("name", CASES)
def test_until_then_both_processes_ask_to_try_again(request_count: int, name: str):
    case = CASES[name]
    refused = [each for each in case.meanwhile if each.status_code != 200]
    assert {each.status_code for each in refused} <= {409}
    if case.first is not None and case.first.status_code != 200:
        assert case.first.status_code == 503
        assert "shutting down" in case.first.text
        refused.append(case.first)
    assert {each.headers["x-should-retry"] for each in refused} <= {"true"}


def test_the_provider_is_asked_again_only_for_what_was_cut(request_count: int):
    assert request_count == sum(case.requests for case in CASES.values())
