"""The queries of each turn read few rows, however many there are."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.engine.database import sql
from conversations.search.message_search import Unindexed

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        connection.vendor != "sqlite", reason="PostgreSQL plans by what there is."
    ),
]
NOW = timezone.now()
TURN_EXTRAS = ("chat", "chat", False, "chat", False, "chat")


def plan(query: str, *values: Any) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query}", values)
        return " ".join(row[-1] for row in cursor.fetchall())


@pytest.mark.parametrize(
    ("query", "values", "index"),
    [
        (sql.NEXT_IN, ("chat", NOW, "chat"), "conversations_turn_in_line"),
        (sql.NEXT_IN, ("chat", NOW, "chat"), "conversations_call_untold"),
        (sql.TURN_EXTRAS, TURN_EXTRAS, "conversations_call_untold"),
        (sql.TURN_EXTRAS, TURN_EXTRAS, "conversations_turn_in_line"),
        (sql.HAS_WAKING_RESULTS, ("conversation",), "conversations_call_untold"),
    ],
)
def test_only_those_that_wait_are_looked_at(query, values, index):
    assert index in plan(query, *values)


def test_a_claim_looks_at_no_turns_but_those_that_it_follows():
    found = plan(sql.CLAIM, NOW, NOW, NOW, "turn", NOW, NOW)
    by_id = "USING INDEX sqlite_autoindex_conversations_turn_1 (id=?)"
    assert f"SEARCH t {by_id}" in found
    assert found.count(f"SEARCH p {by_id}") == 2
    assert "SCAN t" not in found
    assert "SCAN p" not in found


def test_a_search_looks_at_no_turns_and_titles_that_are_indexed():
    with CaptureQueriesContext(connection) as captured:
        Unindexed.of(1).titles()
    turns, outdated, titles = (plan(each["sql"]) for each in captured.captured_queries)
    assert "conversations_turn_unindexed" in turns
    assert "conversations_search_outdated" in outdated
    assert "conversations_title_unindexed" in titles
