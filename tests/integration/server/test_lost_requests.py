"""An Idempotency-Key after its server was killed in the middle of the answer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.serving import PATIENCE, ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

MESSAGES = [{"role": "user", "content": "/long 60"}]


def kill_while_answering(
    server: ServerProcess, path: str, body: Any, headers: dict[str, str]
) -> None:
    http = httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE)
    with http, http.stream("POST", path, json=body) as running:
        lines = running.iter_lines()
        next(lines)
        server.kill()
        list(lines)


def test_a_request_of_a_killed_server_may_be_sent_again(server: ServerProcess):
    token = server.create_token()
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "one"}
    body = {"model": "demo", "stream": True, "messages": MESSAGES}
    path = "/v1/chat/completions"
    with pytest.raises(httpx.RemoteProtocolError):
        kill_while_answering(server, path, body, headers)
    server.start()
    # The minute of the lease passes.
    with closing(sqlite3.connect(server.data / "parley.sqlite3")) as rows, rows:
        leases = "UPDATE conversations_answeredrequest SET lease_expires_at = ?"
        assert rows.execute(leases, ["2026-01-01 00:00:00"]).rowcount == 1
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE) as http:
        again, repeated = (http.post(path, json=body) for _ in range(2))
    assert again.text.endswith("data: [DONE]\n\n"), again.text
    assert "idempotent-replayed" not in again.headers
    assert (repeated.text, repeated.headers["idempotent-replayed"]) == (
        again.text,
        "true",
    )
