"""How the outbox is delivered, to a real HTTP server."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from email.utils import format_datetime

import pytest
from asgiref.sync import sync_to_async
from django.core import mail
from django.core.mail import EmailMessage
from django.db import connection
from django.utils import timezone

from conversations.access.webhooks.outbox import MAIL_OF_ENDPOINT
from conversations.audit.models import AuditEvent
from conversations.engine.webhooks import delivery_store
from conversations.models import Delivery, EventType, WebhookEndpoint

from .conftest import Job, make_due
from .receiver import Answer, receiving

pytestmark = pytest.mark.django_db(transaction=True)


def queue(endpoint: WebhookEndpoint, **fields) -> Delivery:
    usual = {"type": EventType.COMPLETED, "data": {"id": "resp_1"}}
    return Delivery.objects.create(endpoint=endpoint, **{**usual, **fields})


async def prepared(make_endpoint, **fields) -> tuple[WebhookEndpoint, Delivery]:
    endpoint, _ = await sync_to_async(make_endpoint)(**fields)
    return endpoint, await sync_to_async(queue)(endpoint)


async def reload(row):
    await row.arefresh_from_db()
    return row


async def test_a_delivery_is_sent_once(make_endpoint, receiver, job):
    endpoint, row = await prepared(make_endpoint)
    await job.run()
    await job.run()
    assert receiver.get().id == row.event_id
    assert not receiver.rest()
    row = await reload(row)
    assert (row.state, row.last_status, row.attempts) == ("delivered", 200, 1)
    assert (await reload(endpoint)).last_success_at is not None


async def test_two_processes_send_each_delivery_once(make_endpoint, receiver, job):
    endpoint, _ = await sync_to_async(make_endpoint)()
    for _ in range(20):
        await sync_to_async(queue)(endpoint)
    other = Job()
    await asyncio.gather(job.run(), other.run())
    await asyncio.gather(job.run(), other.run())
    await other.close()
    ids = [each.id for each in receiver.rest()]
    assert len(ids) == len(set(ids)) == 20


async def test_a_failure_is_tried_again_with_the_same_id(make_endpoint, receiver, job):
    endpoint, secret = await sync_to_async(make_endpoint)()
    row = await sync_to_async(queue)(endpoint)
    receiver.answers = [Answer(500)]
    await job.run()
    row, endpoint = await reload(row), await reload(endpoint)
    assert (row.state, row.last_status) == ("pending", 500)
    assert row.next_attempt_at > timezone.now()
    assert "500" in row.last_error
    assert endpoint.failures == 1
    await job.run()
    assert len(receiver.rest()) == 1, "before its time it is not sent"
    await sync_to_async(make_due)()
    await job.run()
    second = receiver.get()
    assert second.id == row.event_id
    assert second.is_signed_with(secret)
    assert (await reload(row)).state == "delivered"
    endpoint = await reload(endpoint)
    assert (endpoint.failures, endpoint.failing_since) == (0, None)


def test_attempts_are_spread_over_about_three_days():
    days = []
    for _ in range(50):
        passed, attempts = timedelta(), 0
        while passed < timedelta(days=3):
            attempts += 1
            passed += delivery_store.delay_after(attempts)
        assert 10 <= attempts <= 18
        days.append(passed)
    assert len(set(days)) > 1, "there is no jitter"
    assert delivery_store.delay_after(1) < timedelta(seconds=13)
    assert delivery_store.delay_after(10_000) < timedelta(hours=15)


async def test_after_three_days_it_is_given_up(make_endpoint, receiver, job):
    _, row = await prepared(make_endpoint)
    soon = timezone.now() + timedelta(seconds=1)
    await Delivery.objects.aupdate(expires_at=soon)
    receiver.answers = [Answer(503)]
    await job.run()
    assert (await reload(row)).state == "failed"


@pytest.mark.parametrize("as_date", [False, True])
async def test_the_time_that_a_receiver_asks_for_is_kept(
    make_endpoint, receiver, job, as_date
):
    _, row = await prepared(make_endpoint)
    hours = timedelta(hours=5)
    until = format_datetime(timezone.now() + hours, usegmt=False)
    receiver.answers = [Answer(429, {"retry-after": until if as_date else "18000"})]
    await job.run()
    wait = (await reload(row)).next_attempt_at - timezone.now()
    assert hours - timedelta(minutes=1) < wait <= hours


@pytest.mark.parametrize(
    "text",
    [
        *("soon", "-5", "9" * 5000, "²", "Thu, 99 Foo"),
        "Mon, 02 Jan 99999999999999999999 00:00:00 GMT",
    ],
)
async def test_a_strange_time_does_no_harm(make_endpoint, receiver, job, text):
    _, row = await prepared(make_endpoint)
    receiver.answers = [Answer(503, {"retry-after": text.encode().decode("latin-1")})]
    await job.run()
    row = await reload(row)
    assert (row.state, row.last_status) == ("pending", 503)
    assert row.next_attempt_at - timezone.now() <= timedelta(days=1)


async def test_gone_switches_the_endpoint_off_and_says_so(
    make_endpoint, receiver, job, settings, django_user_model
):
    settings.SENDS_MAIL = True
    owner = await sync_to_async(django_user_model.objects.create_user)(
        "ada", email="ada@example.org"
    )
    endpoint, row = await prepared(make_endpoint, owner=owner)
    receiver.answers = [Answer(410)]
    await job.run()
    await job.run()
    endpoint = await reload(endpoint)
    assert not endpoint.is_enabled
    assert "410" in endpoint.disabled_reason
    assert (await reload(row)).state == "failed"
    assert [each.to for each in mail.outbox] == [["ada@example.org"]]
    actions = AuditEvent.objects.values_list("action", flat=True)
    assert "config.change" in [action async for action in actions]


async def test_an_endpoint_that_fails_for_days_is_switched_off(
    make_endpoint, receiver, job
):
    endpoint, _ = await prepared(make_endpoint)
    begun = timezone.now() - timedelta(days=6)
    await WebhookEndpoint.objects.aupdate(failing_since=begun, failures=5)
    receiver.answers = [Answer(500), Answer(500)]
    await job.run()
    assert (await reload(endpoint)).is_enabled, "it has hardly been tried"
    await WebhookEndpoint.objects.aupdate(failures=30)
    await sync_to_async(make_due)()
    await job.run()
    endpoint = await reload(endpoint)
    assert not endpoint.is_enabled
    assert "500" in endpoint.disabled_reason
    await sync_to_async(make_due)()
    await job.run()
    assert len(receiver.rest()) == 2, "nothing is sent to it any more"


async def test_a_slow_receiver_holds_up_no_other(make_endpoint, receiver, job):
    release = threading.Event()
    with receiving() as slow:
        slow.answers = [Answer(waits_for=release) for _ in range(100)]
        endpoint, _ = await sync_to_async(make_endpoint)(url=slow.url)
        for _ in range(40):
            await sync_to_async(queue)(endpoint)
        _, row = await prepared(make_endpoint)
        await job.deliveries.run_due()
        received = await asyncio.to_thread(receiver.get)
        assert received.id == row.event_id
        release.set()
        await job.run()


async def test_a_redirect_is_not_followed(make_endpoint, receiver, job):
    with receiving() as target:
        _, row = await prepared(make_endpoint)
        receiver.answers = [Answer(307, {"location": target.url})]
        await job.run()
        assert not target.rest()
    row = await reload(row)
    assert row.state == "pending"
    assert "redirect" in row.last_error


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:1/",
        "http://10.0.0.1/",
        "file:///etc/passwd",
    ],
)
async def test_a_redirect_to_a_private_address_is_not_followed(
    make_endpoint, receiver, job, url
):
    _, row = await prepared(make_endpoint)
    receiver.answers = [Answer(302, {"location": url})]
    await job.run()
    row = await reload(row)
    assert row.state == "pending"
    assert len(receiver.rest()) == 1
    assert "169.254" not in row.last_error


async def test_private_addresses_are_refused(make_endpoint, receiver, job):
    _, row = await prepared(make_endpoint, networks="")
    await job.run()
    row = await reload(row)
    assert not receiver.rest()
    assert row.state == "pending"
    assert "private" in row.last_error
    assert "127.0.0.1" not in row.last_error


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"x" * 10_000_000),
        Answer(headers={"content-encoding": "gzip"}, body=b"no gzip"),
        Answer(headers={"content-length": "5"}),  # and no body
    ],
    ids=["huge", "broken", "cut off"],
)
async def test_the_status_alone_decides(make_endpoint, receiver, job, answer):
    _, row = await prepared(make_endpoint)
    receiver.answers = [answer]
    await job.run()
    row = await reload(row)
    assert (row.state, row.last_status, row.last_error) == ("delivered", 200, "")


async def test_what_was_not_sent_in_its_time_is_given_up(make_endpoint, receiver, job):
    endpoint, row = await prepared(make_endpoint)
    letter = await Delivery.objects.acreate(
        user_id=endpoint.created_by_id, type=MAIL_OF_ENDPOINT, data={"name": "x"}
    )
    await Delivery.objects.aupdate(expires_at=timezone.now() - timedelta(days=7))
    await job.run()
    row, letter, endpoint = [await reload(each) for each in (row, letter, endpoint)]
    assert not receiver.rest()
    assert (row.state, row.attempts, letter.state) == ("failed", 0, "skipped")
    assert "not sent" in row.last_error
    assert endpoint.failures == 0
    await sync_to_async(row.send_again)()
    await job.run()
    assert receiver.get().id == row.event_id


async def test_a_receiver_that_is_down_is_tried_again(make_endpoint, job):
    with receiving() as gone:
        url = gone.url
    _, row = await prepared(make_endpoint, url=url)
    await job.run()
    row = await reload(row)
    assert (row.state, row.last_status) == ("pending", None)
    assert row.last_error


async def test_what_a_lost_process_was_sending_is_sent_after_its_lease(
    make_endpoint, receiver, job
):
    _, row = await prepared(make_endpoint)
    assert await sync_to_async(delivery_store.claim)(row.pk)
    await job.run()
    assert not receiver.rest(), "its process still has the lease"
    past = timezone.now() - timedelta(seconds=1)
    await Delivery.objects.aupdate(lease_until=past)
    await job.run()
    assert receiver.get().id == row.event_id


def test_a_machine_with_another_clock_sends_nothing_twice(make_endpoint, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("with SQLite there is one process")
    row = queue(make_endpoint()[0], next_attempt_at=timezone.now() - timedelta(hours=1))
    now, wrong = timezone.now(), timedelta(minutes=10)
    with monkeypatch.context() as patched:
        patched.setattr(timezone, "now", lambda: now - wrong)
        assert delivery_store.claim(row.pk), "by the machine that is behind"
    with monkeypatch.context() as patched:
        patched.setattr(timezone, "now", lambda: now + wrong)
        assert delivery_store.claim(row.pk) is None
        assert not delivery_store.find_due(9, without=[], busy=[])
    seconds = (Delivery.objects.get().lease_until - now).total_seconds()
    assert abs(seconds - delivery_store.LEASE.total_seconds()) < 60


async def test_what_is_sent_while_a_process_drains_is_sent_by_another(
    make_endpoint, receiver, job
):
    release = threading.Event()
    receiver.answers = [Answer(waits_for=release)]
    _, row = await prepared(make_endpoint)
    other = Job()
    await other.deliveries.run_due()
    first = await asyncio.to_thread(receiver.get)
    await other.close()
    await job.run()
    assert receiver.get().id == first.id == row.event_id
    release.set()


async def test_an_older_attempt_changes_nothing_of_a_newer_one(make_endpoint):
    _, row = await prepared(make_endpoint)
    older = await sync_to_async(delivery_store.claim)(row.pk)
    await Delivery.objects.aupdate(lease_until=None)
    newer = await sync_to_async(delivery_store.claim)(row.pk)
    record = sync_to_async(delivery_store.record)
    await record(newer, delivery_store.DeliveryOutcome(status=200))
    await record(older, delivery_store.DeliveryOutcome(status=500, error="It failed."))
    assert (await reload(row)).state == "delivered"


async def test_sending_again_waits_for_the_attempt_that_runs(make_endpoint):
    _, row = await prepared(make_endpoint)
    claim = sync_to_async(delivery_store.claim)
    record = sync_to_async(delivery_store.record)
    older = await claim(row.pk)
    await sync_to_async((await reload(row)).send_again)()
    assert await claim(row.pk) is None, "it is being sent"
    past = timezone.now() - timedelta(seconds=1)
    await Delivery.objects.aupdate(lease_until=past)
    newer = await claim(row.pk)
    assert newer.attempts == older.attempts == 1
    await record(older, delivery_store.DeliveryOutcome(status=500, error="It failed."))
    assert (await reload(row)).last_status is None
    await record(newer, delivery_store.DeliveryOutcome(status=200))
    assert (await reload(row)).state == "delivered"


async def test_a_mail_that_is_being_sent_at_a_drain_is_sent_once(
    job, settings, monkeypatch, django_user_model
):
    settings.SENDS_MAIL = True
    user = await sync_to_async(django_user_model.objects.create_user)(
        "ada", email="ada@example.org"
    )
    row = await Delivery.objects.acreate(
        user=user, type="mail.endpoint", data={"endpoint": 1, "name": "Receiver"}
    )
    begun, release = threading.Event(), threading.Event()

    def send_slowly(message: object) -> int:
        begun.set()
        release.wait(10)
        return 1

    monkeypatch.setattr(EmailMessage, "send", send_slowly)
    other = Job()
    await other.deliveries.run_due()
    await asyncio.to_thread(begun.wait, 10)
    closing = asyncio.ensure_future(other.close())
    await asyncio.to_thread(lambda: None)  # the cancellation arrives
    await job.run()
    assert (await reload(row)).attempts == 1, "it has its lease until it is sent"
    release.set()
    await closing
    assert (await reload(row)).state == "delivered"


async def test_sent_again_it_has_its_id_and_a_new_time(make_endpoint, receiver, job):
    endpoint, secret = await sync_to_async(make_endpoint)()
    row = await sync_to_async(queue)(endpoint)
    await job.run()
    first = receiver.get()
    await sync_to_async((await reload(row)).send_again)()
    await job.run()
    second = receiver.get()
    assert second.id == first.id
    assert second.body == first.body
    assert second.is_signed_with(secret)


async def test_what_waits_for_an_endpoint_that_is_off_is_sent_when_it_is_on(
    make_endpoint, receiver, job
):
    endpoint, row = await prepared(make_endpoint)
    endpoint.switch(on=False)
    await endpoint.asave()
    await job.run()
    assert not receiver.rest()
    endpoint.switch(on=True)
    await endpoint.asave()
    await job.run()
    assert receiver.get().id == row.event_id


async def test_a_deleted_endpoint_gets_nothing(make_endpoint, receiver, job):
    endpoint, _ = await prepared(make_endpoint)
    await endpoint.adelete()
    await job.run()
    assert not receiver.rest()
    assert not await Delivery.objects.aexists()
