"""Traces and JSON logs of real processes, received by a collector over OTLP/HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import StartServer
from tests.project.monitoring.mcp_caller import QUOTED
from tests.project.monitoring.otlp_receiver import Receiver, receiving
from tests.serving import BASE, PATIENCE, ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SECRET = "what-nobody-may-read"
CALL = {
    "input": f'/tool calculator {{"expression": "1+1 {SECRET}"}}',
    "wait": True,
    "options": {"server_tools": ["calculator"]},
}
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100"}  # ms between two batches
CONVERSATIONS = "/api/conversations/"


@pytest.fixture
def collector() -> Iterator[tuple[str, Receiver]]:
    with receiving() as found:
        yield found


def program(server: ServerProcess, **headers: str) -> httpx.Client:
    headers["Authorization"] = f"Bearer {server.create_token()}"
    return httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE)


def ask(http: httpx.Client, **body: object) -> httpx.Response:
    conversation = http.post(CONVERSATIONS, json={}).raise_for_status().json()["id"]
    path = f"{CONVERSATIONS}{conversation}/turns/"
    return http.post(path, json={**CALL, **body}).raise_for_status()


@pytest.mark.smoke
def test_request_turn_calls_and_tool_are_one_trace_and_its_logs_name_it(
    start_server: StartServer, collector: tuple[str, Receiver]
):
    url, receiver = collector
    server = start_server(
        OTEL_EXPORTER_OTLP_ENDPOINT=url,
        OTEL_SERVICE_NAME="chat",
        LOG_FORMAT="json",
        ACCESS_LOG="true",
        **SOON,
    )
    with program(server, traceparent=PARENT) as http:
        answer = ask(http)
    (turn,) = receiver.wait_for("invoke_agent")
    (request,) = (
        span
        for span in receiver.wait_for("POST", 2)
        if span.attributes["url.path"].endswith("/turns/")
    )
    assert (request.trace_id, request.parent_id) == (TRACE, "b7ad6b7169203331")
    assert request.attributes["http.response.status_code"] == 200
    assert request.resource["service.name"] == "chat"
    assert turn.parent_id == request.span_id
    assert turn.attributes["parley.request.id"] == answer.headers["x-request-id"]
    first, second = receiver.wait_for("chat demo", 2)
    (tool,) = receiver.wait_for("execute_tool calculator")
    for span in (first, second, tool):
        assert (span.trace_id, span.parent_id) == (TRACE, turn.span_id)
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert second.attributes["gen_ai.usage.output_tokens"] > 0
    assert first.schema == "https://opentelemetry.io/schemas/1.37.0"
    assert not any(SECRET.encode() in body for body in receiver.bodies)
    assert SECRET not in server.log()


@pytest.mark.smoke
def test_each_line_of_a_request_or_turn_has_its_ids(
    start_server: StartServer, collector: tuple[str, Receiver]
):
    url, receiver = collector
    server = start_server(
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{url}/v1/traces",
        LOG_FORMAT="json",
        ACCESS_LOG="true",
        **SOON,
    )
    with program(server, traceparent=PARENT) as http:
        answer = ask(http, input="/fail 400")
    (turn,) = receiver.wait_for("invoke_agent")
    (failed,) = receiver.wait_for("chat demo")
    assert failed.attributes["error.type"] == "E_LLM_BAD_REQUEST"
    assert turn.attributes["error.type"] == "failed"
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.log().splitlines()]
    (access,) = (each for each in lines if "/turns/" in each["message"])
    assert access["request"] == answer.headers["x-request-id"]
    assert access["trace"] == TRACE
    (warning,) = (each for each in lines if "a call of the model" in each["message"])
    assert warning["request"] == access["request"]
    assert warning["turn"] == answer.json()["id"]
    assert (warning["trace"], warning["span"]) == (TRACE, turn.span_id)


def test_a_stream_of_the_gateway_is_one_trace(
    start_server: StartServer, collector: tuple[str, Receiver]
):
    url, receiver = collector
    server = start_server(OTEL_EXPORTER_OTLP_ENDPOINT=url, **SOON)
    body = {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": f"/echo {SECRET}"}],
    }
    with program(server, traceparent=PARENT) as http:
        http.post("/v1/chat/completions", json=body).raise_for_status()
    (request,) = receiver.wait_for("POST")
    (call,) = receiver.wait_for("chat demo")
    assert (request.trace_id, request.parent_id) == (TRACE, PARENT.split("-")[2])
    assert (call.trace_id, call.parent_id) == (TRACE, request.span_id)
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert not any(SECRET.encode() in body for body in receiver.bodies)


def test_a_dead_collector_slows_no_turn_and_no_end(start_server: StartServer):
    with socket.socket() as silent:  # accepts connections, and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        server = start_server(OTEL_EXPORTER_OTLP_ENDPOINT=url, **SOON)
        with program(server) as http:
            for _ in range(3):
                assert ask(http).json()["status"] == "completed"
        assert server.stop() == 0
    assert "the last spans could not be sent in time" in server.log()


def test_spans_of_the_mcp_sdk_are_sent_without_texts_of_errors(
    collector: tuple[str, Receiver],
):
    url, receiver = collector
    done = subprocess.run(
        [sys.executable, "-m", "tests.project.monitoring.mcp_caller"],
        cwd=BASE,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (tool,) = receiver.wait_for("execute_tool ours__fail")
    sends = receiver.wait_for("MCP send tools/call fail")
    assert tool.is_error
    assert {span.trace_id for span in sends} == {tool.trace_id}
    assert sends[0].attributes["mcp.method.name"] == "tools/call"
    assert tool.trace_id in done.stdout.split("CallOutcome", 1)[1]
    assert QUOTED in done.stdout
    assert not any(QUOTED.encode() in body for body in receiver.bodies)
    assert not any(span.events or span.description for span in receiver.spans)
