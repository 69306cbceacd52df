"""What reports of a year read from PostgreSQL: indexes, as the rows are scattered."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from llm.models import ModelCall
from llm.pricing.usage_report import UsageQuery, report_usage, sum_first_groups

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        connection.vendor != "postgresql", reason="SQLite has no covering indexes."
    ),
]


def _store_calls() -> None:
    now = timezone.now()
    for number in range(40):
        call = ModelCall.objects.create(
            provider_name="Host",
            model_name=f"m-{number % 3}",
            user_id=None,
            token_id=1 + number % 5,
            status=ModelCall.Status.COMPLETED,
            input_tokens=10,
        )
        ModelCall.objects.filter(pk=call.pk).update(
            created_at=now - timedelta(days=number)
        )


def _plans(grouping: str) -> str:
    """Of the queries of sums by day, where the table itself may not be read and the
    indexes without counts, which serve few rows as well, are dropped."""
    with CaptureQueriesContext(connection) as captured:
        report = report_usage(UsageQuery.of_last(365, grouping=grouping))
        sum_first_groups(report, ["cost"])
    by_day = [
        each["sql"]
        for each in captured.captured_queries
        if each["sql"].startswith('SELECT "llm_usagesum"."day" AS')
        and "sum_cost" in each["sql"]
    ]
    assert len(by_day) == 2
    found = []
    with connection.cursor() as cursor:
        for method in ("seqscan", "bitmapscan"):
            cursor.execute(f"SET LOCAL enable_{method} = off")
        cursor.execute("DROP INDEX llm_usage_level_day, llm_usage_user_day")
        for query in by_day:
            cursor.execute(f"EXPLAIN {query}")
            found += [row[0] for row in cursor.fetchall() if "Scan" in row[0]]
    return "\n".join(found)


@pytest.mark.parametrize(
    ("grouping", "index"),
    [
        ("model", "llm_usage_models"),
        ("token", "llm_usage_token_days"),
        ("user", "llm_usage_user_days"),
    ],
)
def test_sums_by_day_are_read_from_indexes_alone(grouping: str, index: str):
    _store_calls()
    found = _plans(grouping)
    assert f"Index Only Scan using {index}" in found
    assert "Index Only Scan using llm_usage_models" in found
    assert found.count("Scan") == 2
