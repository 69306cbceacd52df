"""A server at its limit tells programs when to retry, and running answers go on."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import StartServer
from tests.serving import PATIENCE, ServerProcess

BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "/echo Hi"}]},
    "/v1/messages": {
        "messages": [{"role": "user", "content": "/echo Hi"}],
        "max_tokens": 99,
    },
    "/v1/responses": {"input": "/echo Hi"},
}
LONG = {"input": "/long 5000", "stream": True, "model": "demo"}


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server(MAX_CONNECTIONS="1")


@pytest.fixture
def program(server: ServerProcess) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.create_token()}"}
    with httpx.Client(
        base_url=server.url, headers=headers, timeout=PATIENCE
    ) as program:
        yield program


def test_new_work_is_refused_until_there_is_room(program: httpx.Client):
    conversation = program.post("/api/conversations/", json={}).json()["id"]
    turns = f"/api/conversations/{conversation}/turns/"
    with program.stream("POST", "/v1/responses", json=LONG) as running:
        lines = running.iter_lines()
        next(lines)
        for path, body in BODIES.items():
            answer = program.post(path, json={**body, "model": "demo"})
            while answer.status_code == 200:  # the server has not counted it yet
                answer = program.post(path, json={**body, "model": "demo"})
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
            assert "busy" in answer.json()["error"]["message"]
        answer = program.post(turns, json={"input": "/echo Hi"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        # What reads and what stops needs no room.
        assert program.get("/v1/models").status_code == 200
        assert program.get(turns).json()["results"] == []
        assert program.post("/v1/responses/resp_none/cancel").status_code == 404
        assert next(line for line in lines if "output_text.delta" in line)
    for path, body in BODIES.items():
        answer = program.post(path, json={**body, "model": "demo"})
        while answer.status_code == 503:  # the server has not seen the end yet
            answer = program.post(path, json={**body, "model": "demo"})
        assert answer.status_code == 200, answer.text
