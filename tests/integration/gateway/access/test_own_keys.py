"""Own keys, group keys and shared keys, at a provider that notes whose key it got."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.integration.gateway.programs import PATIENCE, Gateway

pytestmark = pytest.mark.slow

MODEL = "noted"
REFUSED = "sk-refused-by-the-host"
_USERS = """
from django.contrib.auth.models import Group, User
from llm.models import ApiKey, LanguageModel, Provider
provider = Provider.objects.create(name="noted", kind="openai_compatible",
    allow_private_network=True, accepts_own_keys=True, base_url={url!r})
LanguageModel.objects.create(provider=provider, name="noted")
group = Group.objects.create(name="payers")
for name in ("ann", "ben", "cleo"):
    User.objects.create_user(name)
User.objects.get(username="cleo").groups.add(group)
ApiKey.objects.create(provider=provider, label="all", secret="sk-shared-key")
ApiKey.objects.create(provider=provider, label="group", secret="sk-group-key",
    group=group)
"""


#: Answers wait for it; each request that waits releases ARRIVED.
HELD = threading.Event()
HELD.set()
ARRIVED = threading.Semaphore(0)


class NotingHost(BaseHTTPRequestHandler):
    """Answers with the key of the request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Authorization"].removeprefix("Bearer ")
        if key == REFUSED:
            self._answer(401, {"error": {"message": "Incorrect API key provided"}})
            return
        if not HELD.is_set():
            ARRIVED.release()
            HELD.wait(PATIENCE)
        message = {"role": "assistant", "content": key}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "c", "object": "chat.completion", "model": MODEL}
        self._answer(200, {**body, "choices": [choice], "usage": usage})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def people(gateway: Gateway) -> Iterator[dict[str, Gateway]]:
    """The gateway with a token of each of three people, by name."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), NotingHost)
    threading.Thread(target=upstream.serve_forever, args=(0.01,)).start()
    url = f"http://127.0.0.1:{upstream.server_port}/v1"
    gateway.server.manage("shell", "-c", _USERS.format(url=url))
    found = {}
    for name in ("ann", "ben", "cleo"):
        found[name] = copy.copy(gateway)
        found[name].token = gateway.server.create_token(name)
    yield found
    upstream.shutdown()
    upstream.server_close()


def key_used(gateway: Gateway, **fields: Any) -> str:
    body = {"model": f"noted/{MODEL}", "input": "Whose key?", **fields}
    answer = gateway.post("/responses", body)
    assert answer.status_code == 200, answer.text
    (item,) = answer.json()["output"]
    text: str = item["content"][0]["text"]
    return text


def rest(gateway: Gateway, method: str, path: str = "", **options: Any) -> Any:
    with httpx.Client(
        base_url=gateway.server.url,
        headers={"Authorization": f"Bearer {gateway.token}"},
        timeout=PATIENCE,
    ) as http:
        return http.request(method, f"/api/keys/{path}", **options)


def provider_id(gateway: Gateway) -> int:
    (row,) = rest(gateway, "GET").json()["data"]
    number: int = row["id"]
    return number


def store(gateway: Gateway, secret: Any) -> httpx.Response:
    path = f"{provider_id(gateway)}/"
    answer: httpx.Response = rest(gateway, "PUT", path, json={"secret": secret})
    return answer


def test_each_person_s_calls_use_the_nearest_key_and_nobody_else_s(
    people: dict[str, Gateway],
):
    ann, ben, cleo = people["ann"], people["ben"], people["cleo"]
    assert key_used(ann) == key_used(ben) == "sk-shared-key"
    assert key_used(cleo) == "sk-group-key"
    stored = store(ann, "sk-of-ann-1234567890")
    assert stored.status_code == 200
    assert "sk-of-ann-1234567890" not in stored.text
    assert store(cleo, "sk-of-cleo-1234567890").status_code == 200

    expected = {"ann": "sk-of-ann-1234567890", "ben": "sk-shared-key"}
    expected["cleo"] = "sk-of-cleo-1234567890"
    names = [*expected] * 8
    with ThreadPoolExecutor(6) as threads:
        asking = [
            threads.submit(key_used, people[name], store=bool(number % 2))
            for number, name in enumerate(names)
        ]
        used = [each.result() for each in asking]
    assert used == [expected[name] for name in names]

    sources = ann.rows(
        "sorted(set(ModelCall.objects.filter(provider_name='noted')"
        ".values_list('key_source', flat=True)))"
    )
    assert sources == "['group', 'own', 'shared']"
    listed = rest(ben, "GET").json()["data"]
    assert [row["hint"] for row in listed] == [None]
    assert rest(ben, "DELETE", f"{provider_id(ben)}/").status_code == 404

    assert rest(ann, "DELETE", f"{provider_id(ann)}/").status_code == 204
    assert rest(cleo, "DELETE", f"{provider_id(cleo)}/").status_code == 204
    assert key_used(ann) == "sk-shared-key"
    assert key_used(cleo) == "sk-group-key"


def test_an_own_key_that_the_provider_refuses_is_not_used_again(
    people: dict[str, Gateway],
):
    ben = people["ben"]
    assert store(ben, REFUSED).status_code == 200
    body = {"model": f"noted/{MODEL}", "input": "Whose key?", "store": False}
    refused = ben.post("/responses", body)
    assert refused.status_code == 502
    assert "own key" in refused.json()["error"]["message"]
    assert REFUSED not in refused.text
    (row,) = rest(ben, "GET").json()["data"]
    assert row["state"] == "disabled"
    assert key_used(ben) == key_used(ben, store=False) == "sk-shared-key"
    assert key_used(people["ann"]) == "sk-shared-key"
    assert store(ben, "sk-of-ben-1234567890").json()["state"] == "active"
    assert key_used(ben) == "sk-of-ben-1234567890"
    assert rest(ben, "DELETE", f"{provider_id(ben)}/").status_code == 204


def test_a_call_whose_key_is_deleted_meanwhile_is_recorded_with_all_others(
    people: dict[str, Gateway],
):
    ann, ben = people["ann"], people["ben"]
    count = "ModelCall.objects.filter(provider_name='noted').count()"
    before = int(ann.rows(count))
    store(ann, "sk-of-ann-1234567890")
    for is_stored in (False, True):
        with ThreadPoolExecutor(4) as threads:
            HELD.clear()
            waiting = [
                threads.submit(key_used, people[name], store=is_stored)
                for name in ("ann", "ben", "ben")
            ]
            assert ARRIVED.acquire(timeout=PATIENCE)
            assert rest(ann, "DELETE", f"{provider_id(ann)}/").status_code == 204
            HELD.set()
            answers = [each.result() for each in waiting]
        assert answers[1:] == ["sk-shared-key"] * 2
        store(ann, "sk-of-ann-1234567890")
    assert rest(ann, "DELETE", f"{provider_id(ann)}/").status_code == 204
    key_used(ben)  # what was queued before it is written
    assert int(ann.rows(count)) >= before + 6


def test_wrong_keys_and_closed_providers_are_refused(people: dict[str, Gateway]):
    ann = people["ann"]
    for wrong in ("", "two words", "ключ-ключ-ключ", 5, None, "x" * 10_001):
        assert store(ann, wrong).status_code == 400
    assert rest(ann, "PUT", "999999/", json={"secret": "sk-x"}).status_code == 404
    assert ann.rows("ApiKey.every.exclude(owner=None).count()") == "0"
