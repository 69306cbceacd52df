from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from conversations.forms.token_forms import TokenSettingsForm
from conversations.models import AccessToken
from llm.models import LanguageModel, Provider
from tests.conversations.scene import a_user, program

pytestmark = pytest.mark.django_db

URL = "/api/conversations/"


@pytest.fixture
def ada() -> User:
    return a_user("ada")


def call(authorization: str) -> Any:
    return Client(headers={"Authorization": authorization}).get(URL)


def test_only_the_digest_of_a_token_is_stored(ada: User):
    row, token = AccessToken.issue(ada, "script")
    stored = str(AccessToken.objects.values().get())
    assert token not in stored
    assert token.startswith(row.prefix)
    assert len(token) - len(row.prefix) > 30
    assert token not in repr(row) + str(row)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token_opens_the_api(ada: User, scheme: str):
    _, token = AccessToken.issue(ada, "script")
    assert call(f"{scheme} {token}").status_code == 200


def _expired(row: AccessToken) -> None:
    row.expires_at = timezone.now() - timedelta(seconds=1)
    row.save()


def _revoked(row: AccessToken) -> None:
    row.revoke()


def _orphaned(row: AccessToken) -> None:
    row.user.is_active = False
    row.user.save()


@pytest.mark.parametrize("spoil", [_expired, _revoked, _orphaned])
def test_a_token_that_is_over_opens_nothing(ada: User, spoil: Any):
    row, token = AccessToken.issue(ada, "script")
    spoil(row)
    answer = call(f"Bearer {token}")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == 'Bearer realm="api"'
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert token not in answer.content.decode()


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer ", "Bearer wrong", "Bearer a b", "Bearer \xff", "bearer\tx"],
)
def test_a_malformed_token_is_refused(authorization: str):
    answer = call(authorization)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("authorization", ["Basic YWRhOng=", "Token x", ""])
def test_other_schemes_are_not_ours(authorization: str):
    answer = call(authorization)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "not_authenticated"


def test_a_wrong_token_is_not_mended_by_a_session(ada: User):
    browser = Client(headers={"Authorization": "Bearer wrong"})
    browser.force_login(ada)
    assert browser.get(URL).status_code == 401


def test_a_token_needs_no_csrf_token(ada: User):
    api = program(ada, enforce_csrf_checks=True)
    assert api.post(URL, {}, content_type="application/json").status_code == 201


def test_use_is_noted_once_a_minute(ada: User, django_assert_num_queries: Any):
    row, token = AccessToken.issue(ada, "script")
    call(f"Bearer {token}")
    row.refresh_from_db()
    first = row.last_used_at
    assert first is not None
    with django_assert_num_queries(2):  # the token with its user, the list
        call(f"Bearer {token}")
    row.refresh_from_db()
    assert row.last_used_at == first

    AccessToken.objects.update(last_used_at=first - timedelta(minutes=2))
    call(f"Bearer {token}")
    row.refresh_from_db()
    assert row.last_used_at is not None
    assert row.last_used_at >= first


def test_the_first_revocation_counts(ada: User):
    row, _ = AccessToken.issue(ada, "script")
    row.revoke()
    first = row.revoked_at
    row.revoke()
    assert row.revoked_at == first


def test_a_change_of_its_name_brings_no_token_back(ada: User):
    row, _ = AccessToken.issue(ada, "script", scopes=["chat", "approve"])
    form = TokenSettingsForm({"label": "other"}, instance=row)
    same = AccessToken.objects.get()
    same.scopes = ["chat"]
    same.save()
    same.revoke()
    assert form.is_valid(), form.errors
    form.save()
    row.refresh_from_db()
    assert (row.label, row.scopes) == ("other", ["chat"])
    assert row.revoked_at is not None


def test_a_token_whose_models_are_all_deleted_is_revoked(ada: User):
    """An empty list would allow all models of its user."""
    provider = Provider.objects.create(name="Stays", kind="demo")
    first, second = (
        LanguageModel.objects.create(provider=provider, name=name)
        for name in ("one", "two")
    )
    limited, _ = AccessToken.issue(ada, "limited", allowed_models=[first, second])
    other, _ = AccessToken.issue(ada, "for all")
    first.delete()
    limited.refresh_from_db()
    assert limited.revoked_at is None
    second.delete()
    for token in (limited, other):
        token.refresh_from_db()
    assert limited.revoked_at is not None
    assert other.revoked_at is None


def test_a_token_is_revoked_with_the_provider_of_its_models(ada: User):
    provider = Provider.objects.create(name="Gone", kind="demo")
    models = [
        LanguageModel.objects.create(provider=provider, name=name)
        for name in ("one", "two")
    ]
    limited, _ = AccessToken.issue(ada, "limited", allowed_models=models)
    provider.delete()
    limited.refresh_from_db()
    assert limited.revoked_at is not None
