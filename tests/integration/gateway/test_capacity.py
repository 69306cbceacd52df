"""All connections to providers are in use: a status of ours, before any byte."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import StartServer
from tests.integration.gateway.programs import Gateway
from tests.integration.gateway.test_hang_up import Upstream, bodies

#: Seconds; longer than a stream that has been sent may be silent before it begins.
WAIT = 1.6
_CALLS = """
from llm.models import ModelCall
print([(call.status, call.error_code) for call in ModelCall.objects.all()])
"""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def full(start_server: StartServer, upstream: Upstream) -> Gateway:
    return Gateway(
        start_server(
            OPENAI_COMPATIBLE_API_BASE=upstream.url,
            OPENAI_COMPATIBLE_MODEL="slow",
            LLM_MAX_CONNECTIONS="1",
            LLM_CONNECTION_WAIT=str(WAIT),
        )
    )


@pytest.mark.slow
def test_no_connection_is_a_status_before_any_byte(full: Gateway, upstream: Upstream):
    with full.http() as http:
        request_body = {"model": "slow", "stream": True}
        first = http.build_request(
            "POST", "/responses", json={**request_body, "input": "hi", "store": False}
        )
        holding = http.send(first, stream=True)
        beginning = holding.iter_raw()  # to drop it would hang up
        next(beginning)
        for path, body in bodies():
            for stream in (True, False):
                refused = http.post(
                    path, json={**request_body, "stream": stream, **body}
                )
                assert_refused(refused, path)
        holding.close()
        assert upstream.left.wait(60)
    calls = full.server.manage("shell", "-c", _CALLS).splitlines()[-1]
    assert calls == "[('cancelled', '')]"


def assert_refused(answer: httpx.Response, path: str) -> None:
    assert answer.status_code == 503, path
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["message"].startswith("All connections to providers are in use")
