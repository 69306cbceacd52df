"""Instances that are made of rows are those that Django makes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import models
from django.utils import timezone

from conversations.models import AccessToken
from llm.db.statements import CompiledInsert, CompiledQuery
from llm.models import ApiKey, LanguageModel, Provider

_COMPARED = [
    f.attname
    for f in LanguageModel._meta.fields
    if f.name not in ("id", "name", "created_at")
]

pytestmark = pytest.mark.django_db


def _pair(**columns: Any) -> tuple[LanguageModel, LanguageModel]:
    """A model as a prepared query finds it, and as Django does."""
    provider = Provider.objects.create(name="home", kind="openai_compatible")
    LanguageModel.objects.create(provider=provider, name="one", **columns)
    rows = LanguageModel.objects.select_related("provider")
    query = CompiledQuery[LanguageModel](
        lambda name: rows.filter(name=name), "a name", related=["provider"]
    )
    found = query.first("one")
    assert found is not None
    return found, rows.get(name="one")


def _columns(instance: models.Model) -> dict[str, Any]:
    return {f.attname: getattr(instance, f.attname) for f in instance._meta.fields}


def test_they_have_the_same_columns() -> None:
    found, same = _pair(options={"seed": 1, "stop": [None, "é"]}, capabilities={})
    assert _columns(found) == _columns(same)
    assert _columns(found.provider) == _columns(same.provider)
    assert not found.get_deferred_fields()
    assert vars(found._state).keys() == vars(same._state).keys()
    assert (found._state.adding, found._state.db) == (False, "default")


def test_they_can_be_changed_and_saved_and_read_again() -> None:
    found, _ = _pair()
    other = Provider.objects.create(name="other", kind="openai_compatible")
    found.provider = other
    found.save()
    found.refresh_from_db()
    assert LanguageModel.objects.get().provider == found.provider == other


def test_deferred_columns_are_read_on_access(
    django_assert_num_queries: Any,
) -> None:
    User.objects.create_user("ada", email="ada@example.org")
    query = CompiledQuery[User](
        lambda name: User.objects.filter(username=name),
        "a name",
        columns=["id", "username"],
    )
    found = query.first("ada")
    assert found is not None
    with django_assert_num_queries(1):
        assert found.email == "ada@example.org"


@pytest.mark.parametrize("budget", [None, Decimal("0.1"), Decimal(5), Decimal("9.99")])
def test_amounts_moments_and_flags_are_those_of_django(budget: Decimal | None) -> None:
    user = User.objects.create_user("ada", last_login=timezone.now())
    AccessToken.issue(user, "a", budget=budget)
    query = CompiledQuery[AccessToken](
        lambda label: AccessToken.objects.filter(label=label), "a", related=["user"]
    )
    found = query.first("a")
    same = AccessToken.objects.select_related("user").get()
    assert found is not None
    assert _columns(found) == _columns(same)
    assert _columns(found.user) == _columns(same.user)
    assert found.user.is_active is True


def test_a_secret_stays_secret() -> None:
    provider = Provider.objects.create(name="home", kind="openai_compatible")
    ApiKey.objects.create(provider=provider, label="a", secret="sk-1234567890")
    query = CompiledQuery[ApiKey](lambda label: ApiKey.objects.filter(label=label), "a")
    found = query.first("a")
    assert found is not None
    assert type(found.secret) is type(ApiKey.objects.get().secret)
    assert "1234567890" not in repr(vars(found))
    assert found.secret.reveal() == "sk-1234567890"
    assert _columns(found) == _columns(ApiKey.objects.get())


def test_columns_are_written_as_django_writes_them() -> None:
    provider = Provider.objects.create(name="home", kind="openai_compatible")
    values: list[dict[str, Any]] = [
        {},
        {"options": {"seed": 1}, "capabilities": {"tools": False}},
        {"label": "é", "context_window": 7, "enabled": False},
        {"prices": [], "options": {"stop": []}},
    ]
    insert = CompiledInsert(LanguageModel)
    for number, columns in enumerate(values):
        theirs = LanguageModel(provider=provider, name=f"theirs{number}", **columns)
        ours = LanguageModel(provider=provider, name=f"ours{number}", **columns)
        theirs.save()
        insert(ours)
        rows = LanguageModel.objects.values_list(*_COMPARED)
        assert rows.get(pk=ours.pk) == rows.get(pk=theirs.pk)
