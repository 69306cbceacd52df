"""A request calls the model, whatever its last item is and whichever endpoint it used.

Its provider speaks the Responses API and is no demo: it counts requests, and always
gives the same answer.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.gateway.programs import PATIENCE, Gateway, events_of, text_of

MODEL = "heard"
REPLY = "Heard."
_ROWS = """
from llm.models import ApiKey, LanguageModel, Provider
host = Provider.objects.create(
    name="hearing", kind="openai", base_url={url!r}, allow_private_network=True
)
ApiKey.objects.create(provider=host, secret="sk-test")
LanguageModel.objects.create(provider=host, name="heard")
"""
USER = {"role": "user", "content": "Hello"}
SHELL = {"commands": ["ls"], "timeout_ms": 1000, "max_output_length": 100}
PATCH = {"type": "delete_file", "path": "a.txt"}
SCREEN = {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0="}


def _call(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "id": f"x_{kind}",
        "call_id": "call_1",
        "status": "completed",
        **fields,
    }


def _output(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"{kind}_output", "call_id": "call_1", **fields}


FUNCTION = _call("function_call", name="look", arguments="{}")
CUSTOM = _call("custom_tool_call", name="look", input="x")
COMPUTER = _call(
    "computer_call", action={"type": "screenshot"}, pending_safety_checks=[]
)
LOCAL = _call("local_shell_call", action={"type": "exec", "command": ["ls"], "env": {}})
REQUESTS = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "s",
    "name": "n",
    "arguments": "{}",
}
SEARCH = {"type": "search", "query": "Riga"}
ENDS: dict[str, list[dict[str, Any]]] = {
    "user": [USER],
    "developer": [{"role": "developer", "content": "Be brief."}],
    "assistant": [{"role": "assistant", "content": "Well,"}],
    "function_call": [FUNCTION],
    "function_call_output": [FUNCTION, _output("function_call", output="seen")],
    "custom_tool_call": [CUSTOM],
    "custom_tool_call_output": [CUSTOM, _output("custom_tool_call", output="seen")],
    "shell_call_output": [
        _call("shell_call", action=SHELL),
        _output("shell_call", output=[{"stdout": "a", "stderr": ""}]),
    ],
    "local_shell_call_output": [
        LOCAL,
        {"type": "local_shell_call_output", "id": "call_1", "output": "a"},
    ],
    "apply_patch_call_output": [
        _call("apply_patch_call", operation=PATCH),
        _output("apply_patch_call", status="completed", output="done"),
    ],
    "computer_call_output": [COMPUTER, _output("computer_call", output=SCREEN)],
    "mcp_approval_response": [
        REQUESTS,
        {
            "type": "mcp_approval_response",
            "approval_request_id": "mcpr_1",
            "approve": True,
        },
    ],
    "reasoning": [{"type": "reasoning", "id": "rs_1", "summary": []}],
    "web_search_call": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"}
        | {"action": SEARCH}
    ],
    "image_generation_call": [
        {"type": "image_generation_call", "id": "ig_1", "status": "completed"}
        | {"result": "iVBORw0="}
    ],
    "unknown": [{"type": "crystal_ball_call", "id": "cb_1", "vision": "fog"}],
}
WAYS = ["unstored", "stored", "streamed", "background", "socket", "unstored socket"]


class Host:
    """Listens while it is entered; `request_count` counts the requests."""

    def __init__(self) -> None:
        self.request_count = 0
        host = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                host.request_count += 1
                self._answer(json.loads(body))

            def _answer(self, body: dict[str, Any]) -> None:
                message = {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": REPLY}],
                }
                response = {
                    "id": "resp_1",
                    "model": MODEL,
                    "status": "completed",
                    "output": [message],
                    "usage": {"input_tokens": 3, "output_tokens": 1},
                }
                self.send_response(200)
                self.end_headers()
                if not body.get("stream"):
                    self.wfile.write(json.dumps(response).encode())
                    return
                delta = {"type": "response.output_text.delta", "output_index": 0}
                events = [
                    {"type": "response.created", "response": response},
                    {**delta, "item_id": "msg_1", "content_index": 0, "delta": REPLY},
                    {"type": "response.completed", "response": response},
                ]
                for event in events:
                    self.wfile.write(b"data: %s\n\n" % json.dumps(event).encode())

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Host:
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        ).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"


@pytest.fixture(scope="module")
def host(gateway: Gateway) -> Iterator[Host]:
    with Host() as host:
        gateway.server.manage("shell", "-v0", "-c", _ROWS.format(url=host.url))
        yield host
        gateway.rows('Provider.objects.filter(name="hearing").delete()')


def answer(gateway: Gateway, items: list[dict[str, Any]], api: str) -> dict[str, Any]:
    """The response, for each kind of request."""
    body: dict[str, Any] = {"model": MODEL, "input": items}
    match api:
        case "socket" | "unstored socket":
            return asyncio.run(_over_socket(gateway, body, api == "socket"))
        case "streamed":
            *_, last, _ = gateway.stream("/responses", body)  # then [DONE]
            return dict(json.loads(last.data)["response"])
        case "background":
            response = gateway.post("/responses", {**body, "background": True}).json()
            return _until_over(gateway, response["id"])
    answer = gateway.post("/responses", {**body, "store": api == "stored"})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def _over_socket(
    gateway: Gateway, body: dict[str, Any], store: bool
) -> dict[str, Any]:
    async with gateway.socket() as socket:
        create = {"type": "response.create", **body, "store": store}
        await socket.send(json.dumps(create))
        events = [event async for event in events_of(socket)]
    assert "response" in events[-1], events[-1]
    return dict(events[-1]["response"])


def _until_over(gateway: Gateway, id: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while True:
        response = dict(gateway.get(f"/responses/{id}").json())
        if response["status"] not in ("queued", "in_progress"):
            return response
        assert time.monotonic() < deadline, response


def assert_one_request(host: Host, gateway: Gateway, items: Any, api: str) -> None:
    before = host.request_count
    response = answer(gateway, items, api)
    assert response["status"] == "completed", response["error"]
    assert host.request_count == before + 1
    assert text_of(response) == REPLY


@pytest.mark.parametrize("api", WAYS)
@pytest.mark.parametrize("end", ENDS)
def test_the_model_is_called_whatever_item_is_last(
    gateway: Gateway, host: Host, end: str, api: str
) -> None:
    assert_one_request(host, gateway, [USER, *ENDS[end]], api)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=4, unique=True),
    st.sampled_from(WAYS),
)
def test_the_model_is_called_whatever_order_the_items_have(
    gateway: Gateway, host: Host, ends: list[str], api: str
) -> None:
    items = [_renamed(item, end) for end in ends for item in ENDS[end]]
    assert_one_request(host, gateway, items, api)


def _renamed(item: dict[str, Any], end: str) -> dict[str, Any]:
    """Each call has an id of its own."""
    if "call_id" in item:
        return {**item, "call_id": f"call_{end}"[:60]}
    return item
