"""Statements past Django's cursor do what they do through it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from llm.db import raw_sql
from llm.models import Provider

pytestmark = pytest.mark.django_db

_NAMES = "SELECT name FROM llm_provider WHERE kind = %s ORDER BY name"
_RENAME = "UPDATE llm_provider SET name = %s WHERE name = %s"


@pytest.fixture(autouse=True)
def _two() -> None:
    for name in ("one", "two"):
        Provider.objects.create(name=name, kind="openai_compatible")


def _names() -> list[str]:
    return [name for (name,) in raw_sql.fetch_rows(_NAMES, ["openai_compatible"])]


def test_they_are_part_of_the_transaction() -> None:
    with transaction.atomic():
        raw_sql.execute(_RENAME, ["three", "two"])
        assert _names() == ["one", "three"]
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            _names()
    assert _names() == ["one", "two"]


def test_many_at_once() -> None:
    raw_sql.execute_many(_RENAME, [["1", "one"], ["2", "two"]])
    assert _names() == ["1", "2"]


def test_what_is_wrong_is_told_in_django_s_words() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        raw_sql.execute(_RENAME, ["one", "two"])
    assert _names() == ["one", "two"]


def test_a_sign_of_per_cent_is_written_twice() -> None:
    liked = "SELECT name FROM llm_provider WHERE name LIKE 't%%' AND kind = %s"
    assert raw_sql.fetch_rows(liked, ["openai_compatible"]) == [("two",)]


def test_who_counts_them_sees_them() -> None:
    with CaptureQueriesContext(connection) as seen:
        _names()
    assert len(seen) == 1


def test_who_wraps_them_has_them() -> None:
    seen: list[str] = []

    def wrapper(execute: Any, sql: str, *args: Any) -> Any:
        seen.append(sql)
        return execute(sql, *args)

    with connection.execute_wrapper(wrapper):
        _names()
    assert seen == [_NAMES]


async def test_none_on_an_event_loop() -> None:
    with pytest.raises(SynchronousOnlyOperation):
        _names()
