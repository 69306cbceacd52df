"""The receiver of docs/webhooks.md, as it stands there."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import HTTPServer
from typing import Any

import orjson
import pytest
from asgiref.sync import sync_to_async
from django.db.models import F
from openai import OpenAI

from conversations.models import Delivery, EventType, WebhookEndpoint
from conversations.models.webhooks.signature import generate_secret, sign
from tests.serving import BASE

pytestmark = pytest.mark.django_db(transaction=True)

BODY = b'{"type": "response.completed"}'


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    text = (BASE / "docs/webhooks.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block, "docs/webhooks.md", "exec"), names)
    return names


@pytest.fixture
def served(example) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), example["Receiver"])
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("is_its_own", "status"), [(True, 204), (False, 401)])
async def test_it_takes_what_its_own_secret_has_signed(
    served, make_endpoint, job, monkeypatch, is_its_own, status
):
    endpoint, secret = await sync_to_async(make_endpoint)(url=served)
    known = secret if is_its_own else generate_secret()
    monkeypatch.setenv("WEBHOOK_SECRET", known)
    row = await Delivery.objects.acreate(endpoint=endpoint, type=EventType.COMPLETED)
    await job.run()
    await row.arefresh_from_db()
    assert row.last_status == status


async def test_it_takes_the_old_secret_for_a_day(
    served, make_endpoint, job, monkeypatch
):
    endpoint, old = await sync_to_async(make_endpoint)(url=served)
    monkeypatch.setenv("WEBHOOK_SECRET", old)
    await sync_to_async(endpoint.renew_secret)()
    statuses = []
    for passed in (timedelta(), timedelta(days=1)):
        until = F("previous_secret_until") - passed
        await WebhookEndpoint.objects.aupdate(previous_secret_until=until)
        row = await Delivery.objects.acreate(endpoint=endpoint, type="x.y")
        await job.run()
        await row.arefresh_from_db()
        statuses.append(row.last_status)
    assert statuses == [204, 401]


def headers_of(secret: str, at: float, *, id: str = "evt_1") -> dict[str, str]:
    return {
        "webhook-id": id,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": sign(secret, id, int(at), BODY),
    }


def test_it_refuses_what_was_changed_or_is_old(example):
    is_genuine: Callable[..., bool] = example["is_genuine"]
    secret, now = generate_secret(), time.time()
    headers = headers_of(secret, now)
    assert is_genuine(secret, headers, BODY)
    assert not is_genuine(secret, headers, BODY + b" ")
    assert not is_genuine(secret, {**headers, "webhook-id": "evt_2"}, BODY)
    later = {**headers, "webhook-timestamp": str(int(now) + 1)}
    assert not is_genuine(secret, later, BODY)
    assert not is_genuine(secret, headers_of(secret, now - 3600), BODY)


def test_the_signature_is_that_of_the_specification():
    """Source: the test vector in the specification's repository."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signature = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_sdk_of_openai_verifies_and_reads_events():
    secret, at = generate_secret(), int(time.time())
    body = Delivery(type=EventType.COMPLETED, data={"id": "resp_1"}).envelope()
    text = orjson.dumps(body)
    id = body["id"]
    headers = {
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": sign(secret, id, at, text),
    }
    client = OpenAI(api_key="none", webhook_secret=secret)
    event = client.webhooks.unwrap(text.decode(), headers)
    assert event.type == "response.completed"
    assert event.data.id == "resp_1"
