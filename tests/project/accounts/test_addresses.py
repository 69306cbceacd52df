"""The address that an account had before others set another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from project.accounts.identities.admission import find_account
from project.accounts.models import IdentityProvider
from tests.conversations.scene import a_user, signed_in
from tests.project.accounts.test_scim import Program

pytestmark = pytest.mark.django_db

OLD, NEW = "ada@old.example", "ada@new.example"


@pytest.fixture
def root() -> User:
    return a_user("root", is_staff=True, is_superuser=True)


@pytest.fixture
def ada() -> User:
    user = a_user("ada", email=OLD)
    EmailAddress.objects.create(user=user, email=OLD, verified=True, primary=True)
    return user


def change_by_scim(root: User, ada: User, **fields: str) -> None:
    change = {"op": "replace", "value": {"emails": [{"value": fields["email"]}]}}
    answer = Program(root, "scim").patch(f"Users/{ada.pk}", change)
    assert answer.status_code == 200


def change_by_staff(root: User, ada: User, **fields: str) -> None:
    page = f"/admin/auth/user/{ada.pk}/change/"
    client = signed_in(root)
    form: Any = client.get(page).context["adminform"].form
    data = {name: form[name].value() for name in ("username", "email")}
    dates = {"date_joined_0": "2026-01-01", "date_joined_1": "12:00"}
    answer = client.post(page, {**data, **dates, "is_active": "on", **fields})
    assert answer.status_code == 302


@pytest.mark.parametrize("change", [change_by_scim, change_by_staff])
def test_an_address_that_others_replaced_opens_the_account_no_more(
    root: User, ada: User, change: Callable[..., None]
):
    change(root, ada, email=NEW)
    ada.refresh_from_db()
    assert ada.email == NEW
    for address in (OLD, NEW):
        Client().post("/account/password-reset/", {"email": address})
    assert [sent.to for sent in mail.outbox] == [[NEW]]
    provider = IdentityProvider.objects.create(
        kind="oidc", slug="acme", links_accounts=True, new_accounts="everybody"
    )
    assert find_account(provider, OLD) is None
    assert find_account(provider, NEW) == ada


@pytest.mark.parametrize("change", [change_by_scim, change_by_staff])
def test_an_address_that_others_write_again_stays_verified(
    root: User, ada: User, change: Callable[..., None]
):
    pending = EmailAddress.objects.create(user=ada, email="ada@own.example")
    change(root, ada, email=OLD)
    assert EmailAddress.objects.filter(user=ada, verified=True, email=OLD).exists()
    assert EmailAddress.objects.filter(pk=pending.pk).exists()
