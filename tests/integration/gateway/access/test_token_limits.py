"""Limits of tokens at the gateway's endpoints, in every dialect, at a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.integration.gateway.programs import FAST, PATIENCE, Gateway
from tests.serving import ServerProcess

MESSAGE = [{"role": "user", "content": "Reply with exactly: hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"model": FAST, "messages": MESSAGE, "max_tokens": 50},
    "/messages": {"model": FAST, "max_tokens": 50, "messages": MESSAGE},
    "/responses": {
        "model": FAST,
        "input": "Reply with exactly: hi",
        "store": False,
        "max_output_tokens": 50,
    },
}
STORED = {**BODIES["/responses"], "store": True}
EVERY_API = pytest.mark.parametrize("path", BODIES)


@pytest.fixture
def priced(gateway: Gateway) -> Iterator[None]:
    """A model that costs a dollar per million tokens, as long as the test runs."""
    _price(gateway, {"input": 1, "output": 1})
    yield
    _price(gateway, {})


def _price(gateway: Gateway, prices: dict[str, int]) -> None:
    rows = f"LanguageModel.objects.filter(name={FAST!r})"
    gateway.rows(f"{rows}.update(prices={prices})")
    # The server has cached it, and no other process notifies it.
    body = {**BODIES["/responses"], "max_output_tokens": 1}
    holder = Holder(gateway, "--budget", "5")
    wanted = 200 if prices else 403
    while holder.http("POST", "/responses", body).status_code != wanted:
        pass


class Holder:
    """A program with a token of its own."""

    def __init__(self, gateway: Gateway, *limits: str) -> None:
        self.gateway = gateway
        made = gateway.server.manage("create_token", "admin", *limits)
        self.token = made.splitlines()[-1]

    def http(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.gateway.url}{path}"
        return httpx.request(method, url, json=body, headers=headers, timeout=PATIENCE)

    def post(self, path: str, **fields: Any) -> httpx.Response:
        return self.http("POST", path, {**BODIES[path], **fields})

    def row(self, expression: str) -> Any:
        """Of `token`, as JSON."""
        find = f"(lambda token: {expression})(AccessToken.objects.find('{self.token}'))"
        return json.loads(self.gateway.rows(f"__import__('json').dumps({find})"))

    def spent(self) -> int:
        return int(self.row("sum(b.spent for b in token.balances.all())"))

    def reserved(self) -> int:
        return int(self.row("sum(b.reserved for b in token.balances.all())"))


def refusal(answer: httpx.Response, path: str) -> tuple[int, str]:
    error = answer.json()["error"]
    code = error["type"] if path.startswith("/messages") else error["code"]
    return answer.status_code, code


@EVERY_API
def test_a_token_without_the_scope_is_refused(gateway: Gateway, path: str):
    answer = Holder(gateway, "--scope", "chat").post(path)
    assert refusal(answer, path) in [
        (403, "insufficient_scope"),
        (403, "permission_error"),
    ]
    assert "'gateway'" in answer.json()["error"]["message"]


@EVERY_API
def test_so_is_one_for_other_places(gateway: Gateway, path: str):
    answer = Holder(gateway, "--network", "192.0.2.0/24").post(path)
    assert answer.status_code == 403
    assert "127.0.0.1" in answer.json()["error"]["message"]
    assert Holder(gateway, "--network", "127.0.0.0/8").post(path).status_code == 200


@EVERY_API
def test_a_model_that_a_token_may_not_use_does_not_exist_for_it(
    gateway: Gateway, path: str
):
    holder = Holder(gateway, "--model", "demo-slow")
    answer = holder.post(path)
    unknown = holder.post(path, model="nonesuch")
    assert answer.status_code == unknown.status_code == 404
    message, known = (a.json()["error"]["message"] for a in (answer, unknown))
    assert message.replace(FAST, "nonesuch") == known


def test_nor_does_the_model_list_show_it(gateway: Gateway):
    holder = Holder(gateway, "--model", "demo-slow")
    listed = holder.http("GET", "/models").json()["data"]
    assert {model["id"] for model in listed} == {"demo-slow", "demo/demo-slow"}
    assert holder.http("GET", f"/models/{FAST}").status_code == 404
    assert holder.http("GET", "/models/demo-slow").status_code == 200


@EVERY_API
def test_a_rate_limited_client_is_told_when_to_retry(gateway: Gateway, path: str):
    holder = Holder(gateway, "--requests-per-minute", "2")
    responses = [holder.post(path, stream=number == 1) for number in range(3)]
    assert [answer.status_code for answer in responses] == [200, 200, 429]
    for answer, left in zip(responses, ("1", "0", "0"), strict=True):
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == left
        ours = "anthropic-ratelimit-requests-remaining" in answer.headers
        assert ours == (path == "/messages")
    assert refusal(responses[-1], path)[1] in (
        "rate_limit_exceeded",
        "rate_limit_error",
    )
    assert 1 <= int(responses[-1].headers["retry-after"]) <= 30


@EVERY_API
def test_tokens_of_a_minute_are_counted_after_the_answer(gateway: Gateway, path: str):
    holder = Holder(gateway, "--tokens-per-minute", "60")
    answer = holder.post(path)
    assert answer.status_code == 200
    assert answer.headers["x-ratelimit-limit-tokens"] == "60"
    while (answer := holder.post(path)).status_code == 200:
        pass
    assert refusal(answer, path)[1] in ("rate_limit_exceeded", "rate_limit_error")
    assert "60 tokens a minute" in answer.json()["error"]["message"]


@EVERY_API
@pytest.mark.usefixtures("priced")
def test_a_budget_is_spent_to_its_end_and_no_further(gateway: Gateway, path: str):
    holder = Holder(gateway, "--budget", "0.000200")  # 200 tokens
    statuses = []
    while (answer := holder.post(path, stream=False)).status_code == 200:
        statuses.append(answer.status_code)
    assert statuses
    assert refusal(answer, path) in [
        (429, "insufficient_quota"),
        (429, "rate_limit_error"),
    ]
    assert answer.headers["x-should-retry"] == "false"
    assert 0 < holder.spent() <= 200_000
    assert holder.reserved() == 0
    streamed = holder.post(path, stream=True)
    assert streamed.status_code == 429, "before the first byte it is a status"


@pytest.mark.slow
@pytest.mark.usefixtures("priced")
def test_so_is_a_client_of_stored_responses(gateway: Gateway):
    holder = Holder(gateway, "--budget", "0.000200")
    count = 0
    while (answer := holder.http("POST", "/responses", STORED)).status_code == 200:
        count += 1
    assert count
    assert refusal(answer, "/responses") == (429, "insufficient_quota")
    assert 0 < holder.spent() <= 200_000
    assert holder.reserved() == 0


@pytest.mark.usefixtures("priced")
def test_of_many_calls_at_once_no_more_are_made_than_the_budget_has_room_for(
    gateway: Gateway,
):
    holder = Holder(gateway, "--budget", "0.000500")
    path = "/chat/completions"
    with ThreadPoolExecutor(40) as threads:
        statuses = list(threads.map(lambda _: holder.post(path).status_code, range(40)))
    assert set(statuses) == {200, 429}
    assert holder.spent() <= 500_000
    assert holder.reserved() == 0


def test_a_model_without_a_price_is_not_for_a_budget(gateway: Gateway):
    answer = Holder(gateway, "--budget", "5").post("/chat/completions")
    assert refusal(answer, "") == (403, "model_without_price")


@pytest.mark.slow
def test_a_token_without_a_budget_leaves_no_rows(gateway: Gateway):
    holder = Holder(gateway)
    assert holder.post("/responses").status_code == 200
    assert holder.row("token.balances.count()") == 0


def socket_of(holder: Holder) -> Any:
    return connect(
        f"{holder.gateway.server.ws_url}/v1/responses",
        additional_headers={"Authorization": f"Bearer {holder.token}"},
    )


def test_a_token_without_the_scope_opens_no_socket(gateway: Gateway):
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        socket_of(Holder(gateway, "--scope", "tools")).recv()


def test_each_message_of_a_socket_counts(gateway: Gateway):
    holder = Holder(gateway, "--requests-per-minute", "2")  # one opens it
    frames = []
    with socket_of(holder) as socket:
        for _ in range(2):
            request_body = {"type": "response.create", **BODIES["/responses"]}
            socket.send(json.dumps(request_body))
            while True:
                event = json.loads(socket.recv(timeout=PATIENCE))
                if event["type"] in ("response.completed", "error"):
                    break
            frames.append(event)
    assert frames[0]["type"] == "response.completed"
    assert frames[1]["status"] == 429
    assert frames[1]["error"]["code"] == "rate_limit_exceeded"


def test_a_token_revoked_elsewhere_is_refused_within_seconds(gateway: Gateway):
    holder = Holder(gateway)
    assert holder.http("GET", "/models").status_code == 200
    holder.row("token.revoke()")  # in another process: within the cache's seconds
    while (status := holder.http("GET", "/models").status_code) == 200:
        pass
    assert status == 401


@pytest.mark.slow
def test_the_sweep_charges_reservations_of_a_killed_server(
    server: ServerProcess,
):
    gateway = Gateway(server)
    models = "LanguageModel.objects.filter(name='demo-slow')"
    gateway.rows(f"{models}.update(prices={{'input': 1, 'output': 1}})")
    holder = Holder(gateway, "--budget", "0.001")
    request_body = {"messages": [{"role": "user", "content": "/slow 60"}]}
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(
            holder.post, "/chat/completions", model="demo-slow", **request_body
        )
        while holder.reserved() == 0:
            assert not answer.done()
        server.kill()
        with pytest.raises(httpx.HTTPError):
            answer.result()
    reserved = holder.reserved()
    assert reserved > 0
    module = "__import__('conversations.models', fromlist=['x'])"
    entries = f"{module}.LedgerEntry.objects"
    gateway.rows(f"{entries}.update(deadline='2020-01-01T00:00:00Z')")
    server.start()
    while holder.reserved() > 0:
        pass
    assert holder.spent() == reserved
