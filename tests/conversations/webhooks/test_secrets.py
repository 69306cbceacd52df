"""A new secret of an endpoint, and the old one, which also signs for a day."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from cryptography.fernet import Fernet
from django.contrib.messages import get_messages
from django.core.management import call_command
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import date_format

from conversations.audit.models import AuditEvent
from conversations.engine.maintenance.retention import clean_up
from conversations.models import Delivery, EventType, WebhookEndpoint
from conversations.transfer.account import write_account
from llm.checks import check_secrets
from llm.db.encrypted_field import Secret
from tests.conversations.scene import a_user, bearer, signed_in, staff

from .receiver import Received

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


@pytest.fixture
def deliver(receiver, job):
    """Send an event to an endpoint; what the receiver got."""

    async def deliver(row: WebhookEndpoint) -> Received:
        await Delivery.objects.acreate(endpoint=row, type=EventType.COMPLETED)
        await job.run()
        return receiver.get()

    return deliver


def renew(row: WebhookEndpoint) -> str:
    return WebhookEndpoint.objects.get(pk=row.pk).renew_secret()


def let_pass(time: timedelta) -> None:
    """As if the new secret were made so much earlier."""
    earlier = F("previous_secret_until") - time
    WebhookEndpoint.objects.update(previous_secret_until=earlier)


async def test_the_old_secret_signs_for_a_day_and_no_longer(make_endpoint, deliver):
    row, old = await sync_to_async(make_endpoint)()
    assert len((await deliver(row)).signatures) == 1
    new = await sync_to_async(renew)(row)
    for passed in (timedelta(), DAY - timedelta(minutes=5)):
        await sync_to_async(let_pass)(passed)
        received = await deliver(row)
        assert received.is_signed_with(old)
        assert received.is_signed_with(new)
    await sync_to_async(let_pass)(timedelta(minutes=5))
    received = await deliver(row)
    assert not received.is_signed_with(old)
    assert received.is_signed_with(new)
    assert len(received.signatures) == 1


async def test_a_second_new_secret_within_the_day_ends_the_first(
    make_endpoint, deliver
):
    row, first = await sync_to_async(make_endpoint)()
    second = await sync_to_async(renew)(row)
    await sync_to_async(let_pass)(DAY - timedelta(minutes=5))
    third = await sync_to_async(renew)(row)
    received = await deliver(row)
    found = [received.is_signed_with(each) for each in (first, second, third)]
    assert found == [False, True, True]
    await sync_to_async(let_pass)(DAY - timedelta(minutes=5))
    assert (await deliver(row)).is_signed_with(second), "it has a day of its own"


async def test_of_two_new_secrets_at_once_the_earlier_signs_too(make_endpoint, deliver):
    row, _ = await sync_to_async(make_endpoint)()
    stale = await WebhookEndpoint.objects.aget(pk=row.pk)
    earlier = await sync_to_async(row.renew_secret)()
    later = await sync_to_async(stale.renew_secret)()
    received = await deliver(row)
    assert received.is_signed_with(earlier)
    assert received.is_signed_with(later)


async def test_an_old_secret_that_no_key_decrypts_does_no_harm(
    make_endpoint, deliver, settings
):
    row, _ = await sync_to_async(make_endpoint)()
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    new = await sync_to_async(renew)(row)
    received = await deliver(row)
    assert received.is_signed_with(new)
    assert len(received.signatures) == 1
    await row.arefresh_from_db()
    assert row.previous_secret_until is None


async def test_the_old_secret_may_be_lost_and_the_new_one_signs(
    make_endpoint, deliver, settings
):
    row, _ = await sync_to_async(make_endpoint)()
    new = await sync_to_async(renew)(row)
    await WebhookEndpoint.objects.aupdate(previous_secret=Secret("f2:lost"))
    received = await deliver(row)
    assert received.is_signed_with(new)
    assert len(received.signatures) == 1


def test_what_is_over_is_erased_and_what_lasts_is_not(make_endpoint):
    row, old = make_endpoint()
    renew(row)
    let_pass(DAY - timedelta(minutes=5))
    assert list(clean_up()) == []
    row.refresh_from_db()
    assert row.previous_secret.reveal() == old
    let_pass(timedelta(minutes=5))
    assert list(clean_up()) == [{"old secrets of webhooks": 1}]
    row.refresh_from_db()
    assert (row.previous_secret, row.previous_secret_until) == (None, None)
    assert list(clean_up()) == []


def test_keys_are_rotated_for_the_old_secret_too(make_endpoint, settings):
    row, old = make_endpoint()
    new = renew(row)
    first, second = settings.ENCRYPTION_KEYS[0], Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [second, first]
    call_command("rotate_keys", verbosity=0)
    settings.ENCRYPTION_KEYS = [second]
    assert WebhookEndpoint.objects.get().reveal_secrets() == [new, old]


def test_a_check_tells_of_an_old_secret_that_no_key_decrypts(make_endpoint, settings):
    row, _ = make_endpoint()
    renew(row)
    assert check_secrets(None, ["default"]) == []
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    found = [each.msg for each in check_secrets(None, ["default"])]
    name = "conversations.WebhookEndpoint.previous_secret"
    assert f"{name}: 1 cannot be decrypted." in found


# Whom it is told


def test_neither_secret_is_found_anywhere(make_endpoint):
    ada = a_user("ada")
    row, old = make_endpoint(owner=ada)
    new = renew(row)
    api, client = Client(headers=bearer(ada)), signed_in(ada)
    rights = ("view_webhookendpoint", "view_auditevent", "change_webhookendpoint")
    admin = signed_in(staff("root", *rights))
    change = reverse("admin:conversations_webhookendpoint_change", args=[row.pk])
    stored = WebhookEndpoint.objects.values_list("secret", "previous_secret").get()
    texts = [
        repr(stored),
        repr(vars(WebhookEndpoint.objects.get())),
        *(each.stored for each in stored),
        api.get(f"/api/webhooks/{row.pk}/").content.decode(),
        client.get(f"/settings/webhooks/{row.pk}/").content.decode(),
        admin.get(change).content.decode(),
        write_account(ada).decode(),
        *AuditEvent.objects.values_list("text__details", flat=True),
    ]
    for text in texts:
        for secret in (old, new):
            assert secret.removeprefix("whsec_") not in str(text)


def test_programs_are_told_until_when_the_old_one_works():
    ada = a_user("ada")
    api = Client(headers=bearer(ada))
    new = {"name": "Mine", "url": "https://hooks.example.org/parley"}
    made = api.post("/api/webhooks/", new, content_type="application/json").json()
    assert made["previous_secret_until"] is None
    renewed = api.post(f"/api/webhooks/{made['id']}/secret/").json()
    until = parse_datetime(renewed["previous_secret_until"])
    assert timedelta() <= timezone.now() + DAY - until < timedelta(minutes=5)
    shown = api.get(f"/api/webhooks/{made['id']}/").json()
    assert shown["previous_secret_until"] == renewed["previous_secret_until"]


def test_the_page_says_until_when_the_old_one_works(make_endpoint):
    ada = a_user("ada")
    row, _ = make_endpoint(owner=ada)
    client, path = signed_in(ada), f"/settings/webhooks/{row.pk}/"
    sentence = "The old secret works until"
    assert sentence not in client.get(path).content.decode()
    page = client.post(f"{path}secret/").content.decode()
    row.refresh_from_db()
    until = timezone.localtime(row.previous_secret_until)
    assert f'{sentence} <time datetime="{until:%Y-%m-%dT%H:%M:%S}' in page


def test_staff_are_told_until_when_the_old_one_works(make_endpoint):
    row, old = make_endpoint()
    rights = ("view_webhookendpoint", "change_webhookendpoint")
    data = {"action": "renew_secrets", "_selected_action": [row.pk]}
    path = reverse("admin:conversations_webhookendpoint_changelist")
    answer = signed_in(staff("root", *rights)).post(path, data)
    messages = [str(each) for each in get_messages(answer.wsgi_request)]
    [message] = [each for each in messages if "whsec_" in each]
    row.refresh_from_db()
    until = timezone.localtime(row.previous_secret_until)
    assert row.reveal_secrets()[1] == old
    assert f"works until {date_format(until, 'SHORT_DATETIME_FORMAT')}." in message
