"""Webhooks as a person's data: the export, the end of the account, the audit log and
retention."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from conversations.access.account_deletion import close_account
from conversations.audit.models import AuditEvent
from conversations.engine.maintenance.retention import clean_up
from conversations.models import Delivery, EventType, WebhookEndpoint
from conversations.transfer.account import write_account
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_export_has_a_persons_endpoints_without_secrets(make_endpoint):
    ada = a_user("ada")
    row, secret = make_endpoint(owner=ada, name="Hers")
    make_endpoint(name="Of staff")
    text = write_account(ada).decode()
    (exported,) = json.loads(text)["webhooks"]
    assert (exported["name"], exported["url"]) == ("Hers", row.url)
    assert secret not in text
    assert secret.removeprefix("whsec_") not in text


def test_a_closed_account_has_no_endpoints(make_endpoint):
    ada = a_user("ada")
    make_endpoint(owner=ada)
    staff_made, _ = make_endpoint()
    close_account(ada)
    assert WebhookEndpoint.objects.get() == staff_made


def test_the_audit_log_has_the_endpoint_and_not_its_secret(make_endpoint):
    ada = a_user("ada")
    row, secret = make_endpoint(owner=ada)
    event = AuditEvent.objects.get(
        action="config.add", target_type="conversations.webhookendpoint"
    )
    assert (event.target_id, event.subject) == (str(row.pk), ada.pk)
    assert secret.removeprefix("whsec_") not in event.text.details


@pytest.mark.parametrize(("days", "count"), [(29, 1), (31, 0)])
def test_the_log_is_erased_after_thirty_days(make_endpoint, days, count):
    row, _ = make_endpoint()
    past = timezone.now() - timedelta(days=days)
    Delivery.objects.create(
        endpoint=row,
        type=EventType.COMPLETED,
        state="delivered",
        created_at=past,
        expires_at=past + timedelta(days=3),
    )
    list(clean_up())
    assert Delivery.objects.count() == count


def test_limits_whose_period_goes_on_are_not_erased(make_endpoint):
    row, _ = make_endpoint()
    past = timezone.now() - timedelta(days=40)
    this_month = f"{timezone.localdate():%Y-%m}"
    for period in ("total", this_month, "2020-01", "2020-01-31"):
        Delivery.objects.create(
            endpoint=row,
            type=EventType.LIMIT_REACHED,
            data={"period": period},
            once_key=f"parley.limit.reached:user:1:{period}",
            created_at=past,
            expires_at=past,
        )
    list(clean_up())
    left = Delivery.objects.values_list("data__period", flat=True)
    assert {*left} == {"total", this_month}


def test_what_was_sent_again_of_late_is_not_erased(make_endpoint):
    row, _ = make_endpoint()
    past = timezone.now() - timedelta(days=40)
    sent = Delivery.objects.create(
        endpoint=row, type=EventType.COMPLETED, created_at=past, expires_at=past
    )
    sent.send_again()
    list(clean_up())
    assert Delivery.objects.exists()


def test_an_endpoint_for_some_never_becomes_one_for_everybody(make_endpoint):
    users, group = [a_user("ada"), a_user("bob")], Group.objects.create(name="Orchard")
    of_users, of_both, of_all = (make_endpoint()[0] for _ in range(3))
    of_users.users.set(users)
    of_both.users.set(users)
    of_both.groups.add(group)

    def enabled() -> set[WebhookEndpoint]:
        return {*WebhookEndpoint.objects.filter(is_enabled=True)}

    User.objects.filter(pk__in=[user.pk for user in users]).delete()
    assert enabled() == {of_both, of_all}
    group.delete()
    assert enabled() == {of_all}
    of_users.refresh_from_db()
    assert of_users.disabled_reason.startswith("The last user or group")
