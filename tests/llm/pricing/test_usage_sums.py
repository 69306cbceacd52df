"""Sums of usage equal the rows, whatever comes when and whatever ends in between."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Sum
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from llm.db.statements import allow_long_idle
from llm.models import FirstTokenCount, ModelCall, Provider, UsageSum
from llm.pricing import usage_counting as counting
from llm.pricing.usage_months import (
    build_months,
    days_beside,
    end_of_month,
    whole_months,
)
from llm.pricing.usage_report import (
    GROUPINGS,
    Usage,
    UsageQuery,
    UsageReport,
    report_usage,
    sum_first_groups,
)
from tests.llm.pricing.usage_calls import a_row, calls, save_calls

pytestmark = pytest.mark.django_db

TOKENS = [name for name in Usage.__slots__ if name.endswith("_tokens")]
#: Those whose groups divide the calls: none counts for two.
DIVIDING = [name for name in GROUPINGS if name not in ("group", "tag")]


class ProcessLost(BaseException):
    """The process ends here."""


def sums_of(rows: Iterable[ModelCall]) -> Usage:
    """The sums as anybody would work them out."""
    listed = list(rows)
    waits = [
        round(row.ttft * 1000)
        for row in listed
        if row.ttft is not None and not row.is_cached
    ]
    return Usage(
        calls=len(listed),
        **{n: sum(getattr(row, n) or 0 for row in listed) for n in TOKENS},
        cost=sum((row.cost or Decimal(0) for row in listed), Decimal(0)),
        saved_cost=sum((row.saved_cost or Decimal(0) for row in listed), Decimal(0)),
        unpriced=sum(
            row.cost is None
            and (row.status != "failed" or bool(row.input_tokens or row.output_tokens))
            for row in listed
        ),
        unmeasured=sum(
            row.input_tokens is None and row.status != "failed" and not row.is_cached
            for row in listed
        ),
        from_cache=sum(row.is_cached for row in listed),
        web_searches=sum(row.web_searches or 0 for row in listed),
        file_searches=sum(row.file_searches or 0 for row in listed),
        failed=sum(row.status == "failed" for row in listed),
        estimated=sum(row.is_estimated for row in listed),
        waited=len(waits),
        wait_ms=sum(waits),
    )


def assert_equal(found: Usage, expected: Usage) -> None:
    for name, value in expected.as_dict().items():
        is_money = name.endswith("cost")
        off = abs(getattr(found, name) - value)
        assert off <= (Decimal("0.000001") if is_money else 0), name


@pytest.mark.slow
@pytest.mark.smoke
@given(st.lists(st.lists(calls, max_size=8), max_size=4), st.data())
def test_sums_equal_rows_after_any_calls_late_rows_and_crashes(
    batches: list[list[dict[str, Any]]], data: st.DataObject
):
    clear()
    for batch in batches:
        save_calls(*batch)
        if data.draw(st.booleans(), label="the process is lost"):
            lose_a_step()
        if data.draw(st.booleans(), label="counts now"):
            counting.catch_up()
        if data.draw(st.booleans(), label="prices change"):
            # What a later call costs, not what an earlier one did.
            save_calls({"cost": Decimal("7.123456789012"), "days": 3})
    for grouping in DIVIDING:
        report = report_usage(UsageQuery.of_last(60, grouping=grouping))
        expected = sums_of(ModelCall.objects.all())
        assert_equal(report.total, expected)
        assert_equal(sum((g.usage for g in report.groups), Usage()), expected)
        for day, usage in report.by_day:
            rows = [r for r in ModelCall.objects.all() if local_day(r) == day]
            assert_equal(usage, sums_of(rows))


def local_day(row: ModelCall) -> Any:
    return timezone.localdate(row.created_at)


def clear() -> None:
    for model in (ModelCall, UsageSum, FirstTokenCount):
        model.objects.all().delete()


def lose_a_step() -> None:
    """The process ends after it has written sums, and before the calls are marked."""

    def fail(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("UPDATE"):
            raise ProcessLost
        return execute(sql, *rest)

    try:
        with connection.execute_wrapper(fail):
            counting.count_step()
    except ProcessLost:
        pass


def test_counting_again_changes_nothing():
    save_calls({}, {})
    counting.catch_up()
    before = list(UsageSum.objects.values())
    assert list(counting.count_all()) == []
    assert list(UsageSum.objects.values()) == before


def test_a_row_with_an_earlier_id_that_comes_late_is_counted():
    save_calls({}, {})
    late = ModelCall.objects.earliest("pk")
    values = {f.attname: getattr(late, f.attname) for f in late._meta.concrete_fields}
    late.delete()
    assert report_usage(UsageQuery.of_last(1)).total.calls == 1
    ModelCall.objects.create(**values)
    assert report_usage(UsageQuery.of_last(1)).total.calls == 2


def test_sums_outlive_calls_users_and_tokens():
    ada = User.objects.create_user("ada")
    save_calls({"user_id": ada.pk, "token_id": 7, "token_label": "ci"})
    report_usage(UsageQuery.of_last(1))
    old = ada.pk
    ada.delete()
    assert ModelCall.objects.get().user_id == old
    ModelCall.objects.all().delete()
    for grouping, name in (("user", f"deleted user {old}"), ("token", "ci (#7)")):
        report = report_usage(UsageQuery.of_last(1, grouping=grouping))
        assert [(each.name, each.usage.calls) for each in report.groups] == [(name, 1)]


def test_a_user_of_two_groups_counts_for_both():
    ada, bob = User.objects.create_user("ada"), User.objects.create_user("bob")
    ada.groups.set([Group.objects.create(name=name) for name in ("red", "blue")])
    save_calls({"user_id": ada.pk}, {"user_id": bob.pk}, {})
    report = report_usage(UsageQuery.of_last(1, grouping="group"))
    calls = {each.name: each.usage.calls for each in report.groups}
    assert calls == {"red": 1, "blue": 1, "in no group": 2}
    assert report.total.calls == 3


def test_a_call_counts_for_each_of_its_tags():
    save_calls({"tags": "a,b"}, {"tags": "b"}, {})
    report = report_usage(UsageQuery.of_last(1, grouping="tag"))
    calls = {each.name: each.usage.calls for each in report.groups}
    assert calls == {"a": 1, "b": 2, "without a tag": 1}


def test_one_user_s_report_has_nobody_else_s_calls():
    save_calls({"user_id": 1}, {"user_id": 2}, {"user_id": None})
    report = report_usage(UsageQuery.of_last(1, user_id=1))
    assert report.total.calls == 1


@given(st.lists(st.floats(0.001, 500), min_size=1, max_size=50))
def test_percentiles_are_right_to_five_percent(waits: list[float]):
    clear()
    save_calls(*({"ttft": wait} for wait in waits))
    report = report_usage(UsageQuery.of_last(1))
    waits.sort()
    for found, percent in ((report.waits.p50, 50), (report.waits.p95, 95)):
        exact = waits[-(-len(waits) * percent // 100) - 1]
        assert found == pytest.approx(exact, rel=0.05)


def test_more_calls_than_a_page_counts_wait_for_the_job(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(counting, "BATCH", 2)
    save_calls(*({} for _ in range(13)))
    report = report_usage(UsageQuery.of_last(1))
    assert (report.is_complete, report.total.calls) == (False, 10)
    list(counting.count_all())
    report = report_usage(UsageQuery.of_last(1))
    assert (report.is_complete, report.total.calls) == (True, 13)


@pytest.mark.parametrize("grouping", DIVIDING)
def test_a_chart_gets_each_count_of_a_group_by_day_and_no_other(grouping: str):
    users = [User.objects.create(username=f"u{number}").pk for number in range(2)]
    save_calls(
        *(
            {"model_name": f"m{n % 2}", "user_id": users[n % 2], "days": n % 3}
            for n in range(7)
        )
    )
    report = report_usage(UsageQuery.of_last(5, grouping=grouping))
    counts = ["input_tokens", "cost"]
    found = sum_first_groups(report, counts)
    if grouping == "day":
        assert not found
        return
    assert found.keys() == {group.name for group in report.groups}
    for group in report.groups:
        of_days = sum(found[group.name].values(), Usage())
        assert of_days == Usage(
            input_tokens=group.usage.input_tokens, cost=group.usage.cost
        )
    for day, usage in report.by_day:
        of_groups = [found[group.name].get(day, Usage()) for group in report.groups]
        assert sum(of_groups, Usage()).input_tokens == usage.input_tokens


def test_no_file_reads_the_days_of_groups(admin_client: Client):
    """They are drawn by the page alone."""

    def queries(address: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(address, {"by": "user"}).status_code == 200
        by_day = [each["sql"] for each in captured if '"day", ' in each["sql"]]
        return sum("user_id" in sql and "GROUP BY" in sql for sql in by_day)

    save_calls({"user_id": User.objects.create(username="u").pk})
    assert queries("/admin/usage/")
    assert not queries("/admin/usage/csv/")
    assert not queries("/api/usage/all/")


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_the_number_of_queries_does_not_grow(grouping: str):
    def queries() -> int:
        report_usage(UsageQuery.of_last(30, grouping=grouping))
        with CaptureQueriesContext(connection) as captured:
            report_usage(UsageQuery.of_last(30, grouping=grouping))
        return len(captured)

    save_calls({})
    few = queries()
    save_calls(*({"model_name": f"m{n}", "user_id": n, "days": n} for n in range(25)))
    assert queries() == few


def test_a_call_of_a_day_before_the_range_is_left_out():
    save_calls({"days": 0}, {"days": 29}, {"days": 30})
    report = report_usage(UsageQuery.of_last(30))
    assert report.total.calls == 2
    assert report.by_day[0][0] == timezone.localdate() - timedelta(days=29)
    details = UsageSum.objects.filter(level=UsageSum.Level.DETAIL)
    assert details.aggregate(all=Sum("calls"))["all"] == 3


def test_sums_of_before_get_their_levels():
    save_calls(
        {"tags": "a", "user_id": 3, "status": "failed"},
        {"tags": "a", "user_id": 3, "token_id": 7, "token_label": "ci", "days": 1},
        {"model_name": "other", "cost": Decimal("0.000000000001")},
    )
    counting.catch_up()
    timings = {"waited": 0, "wait_ms": 0}
    UsageSum.objects.update(**timings)
    UsageSum.objects.filter(level=UsageSum.Level.KEY).delete()  # a later level
    expected = rows_of_sums()
    UsageSum.objects.exclude(level="").delete()
    UsageSum.objects.update(failed=0)
    import_module("llm.migrations.0021_usage_levels").add_levels(apps, None)
    assert rows_of_sums() == expected
    # Further calls find the same rows.
    save_calls({"tags": "a", "user_id": 3, "status": "failed"})
    counting.catch_up()
    UsageSum.objects.filter(level=UsageSum.Level.KEY).delete()
    assert len(rows_of_sums()) == len(expected)


def rows_of_sums() -> list[tuple[Any, ...]]:
    names = [f.attname for f in UsageSum._meta.concrete_fields if f.attname != "id"]
    return sorted(UsageSum.objects.values_list(*names))


def test_each_level_has_each_call_once():
    save_calls(*({"user_id": n % 3, "tags": "a" * (n % 2)} for n in range(12)))
    counting.catch_up()
    for level in counting.LEVELS:
        found = UsageSum.objects.filter(level=level).aggregate(all=Sum("calls"))
        assert found["all"] == 12


# Keys


def test_keys_are_named_with_their_providers_and_sums_are_the_rows():
    host = Provider.objects.create(name="Host", kind="demo")
    key = host.keys.create(label="team red", secret="sk-planted-of-these-tests")
    own = host.keys.create(
        label="mine", secret="sk-2", owner=User.objects.create(username="ada")
    )
    save_calls(*({"key_id": pk} for pk in (key.pk, key.pk, own.pk, 999, None)))
    report = report_usage(UsageQuery.of_last(30, grouping="key"))
    assert {group.name: group.usage.calls for group in report.groups} == {
        f"Host: team red (#{key.pk})": 2,
        f"Host: a person's own key (#{own.pk})": 1,
        "deleted key 999": 1,
        "without a key": 1,
    }
    expected = sums_of(ModelCall.objects.all())
    assert_equal(sum((each.usage for each in report.groups), Usage()), expected)


def test_calls_that_are_counted_while_a_report_is_read_are_no_rest():
    save_calls({"key_id": 1}, {"key_id": 1})
    counting.catch_up()
    UsageSum.objects.filter(level="model").update(calls=1)  # as they were just before
    report = report_usage(UsageQuery.of_last(30, grouping="key"))
    found = {group.name: group.usage.calls for group in report.groups}
    assert found == {"deleted key 1": 2}


def test_calls_that_were_counted_without_keys_are_not_lost():
    save_calls({"key_id": 1}, {"key_id": 2}, {"key_id": 2, "days": 2})
    counting.catch_up()
    yesterday = timezone.localdate() - timedelta(days=1)
    UsageSum.objects.filter(level="key", day__lt=yesterday).delete()
    save_calls({"key_id": 2})
    report = report_usage(UsageQuery.of_last(30, grouping="key"))
    found = {group.name: group.usage.calls for group in report.groups}
    assert found == {"deleted key 1": 1, "deleted key 2": 2, "key not recorded": 1}
    expected = sums_of(ModelCall.objects.all())
    assert_equal(sum((each.usage for each in report.groups), Usage()), expected)


# Whole months


def long_ago(months: int = 3) -> tuple[Any, Any]:
    """The first day of a month that is over, and the day after its last."""
    first = timezone.localdate().replace(day=1)
    for _ in range(months):
        first = (first - timedelta(days=1)).replace(day=1)
    return first, (first + timedelta(days=31)).replace(day=1)


def save_calls_on(day: Any, *many: dict[str, Any]) -> None:
    days = (timezone.localdate() - day).days
    save_calls(*({**fields, "days": days} for fields in many))


def year(grouping: str) -> UsageReport:
    return report_usage(UsageQuery.of_last(365, grouping=grouping))


def by_name(report: UsageReport) -> dict[str, Usage]:
    return {group.name: group.usage for group in report.groups}


@pytest.mark.parametrize("grouping", ["user", "group", "token"])
def test_a_year_reads_whole_months_and_says_the_same(grouping: str):
    first, after = long_ago()
    fields = [{"user_id": n % 3 + 1, "token_id": n % 2 + 1} for n in range(7)]
    for day in (first - timedelta(days=1), first, after - timedelta(days=1), after):
        save_calls_on(day, *fields)
    save_calls_on(timezone.localdate(), *fields)
    before = by_name(year(grouping))
    assert before
    assert list(build_months()) != []
    after_them = by_name(year(grouping))
    assert after_them.keys() == before.keys()
    for name, usage in before.items():
        assert_equal(after_them[name], usage)
    assert list(build_months()) == []  # nothing has changed since
    # They are what is read: a wrong one shows.
    months = UsageSum.objects.filter(level__in=["userm", "tokm"], day=first)
    months.update(cost=1000)
    assert max(usage.cost for usage in by_name(year(grouping)).values()) > 1000


def test_a_late_call_of_a_month_that_is_over_is_counted_at_once():
    first, _after = long_ago()
    save_calls_on(first, {"user_id": 1}, {"user_id": 2})
    year("user")
    list(build_months())
    save_calls_on(first, {"user_id": 2})
    for _ in range(2):
        calls = sorted(usage.calls for usage in by_name(year("user")).values())
        assert calls == [1, 2]
        list(build_months())
    months = UsageSum.objects.filter(level=UsageSum.Level.USER_MONTH)
    assert months.aggregate(all=Sum("calls"))["all"] == 3


def test_months_of_part_of_a_period_are_read_by_day():
    first, after = long_ago()
    save_calls_on(first, {"user_id": 1})
    save_calls_on(first + timedelta(days=2), {"user_id": 1})
    year("user")
    list(build_months())
    query = UsageQuery(
        first=first + timedelta(days=1), last=after - timedelta(days=1), grouping="user"
    )
    assert report_usage(query).groups[0].usage.calls == 1


@given(st.dates(date(2020, 1, 1), date(2027, 12, 31)), st.integers(0, 365), st.data())
def test_months_and_the_days_beside_them_are_the_period(
    first: date, length: int, data: st.DataObject
):
    last = first + timedelta(days=length)
    months = whole_months(first, last)
    chosen = data.draw(st.sets(st.sampled_from(months))) if months else set()
    days = [d for m in chosen for d in days_between(m, end_of_month(m))]
    for begin, end in days_beside(first, last, chosen):
        days += days_between(begin, end)
    assert sorted(days) == days_between(first, last)


def days_between(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


@pytest.mark.slow
def test_sums_over_groups_are_the_rows_of_100_000_calls():
    allow_long_idle()  # the rows are made within the test's transaction
    chance = random.Random(19)
    at = timezone.now() - timedelta(days=1)
    many = [
        a_row(
            user_id=chance.choice([None, 1, 2, 3]),
            token_id=chance.choice([None, 1, 2]),
            token_label=chance.choice(["", "ci"]),
            model_name=chance.choice(["m", "m-2", "b/c"]),
            tags=chance.choice(["", "a", "b"]),
            status=chance.choice(["completed", "failed", "cancelled"]),
            input_tokens=chance.choice([None, chance.randrange(10**6)]),
            output_tokens=chance.randrange(10**5),
            cost=chance.choice([None, Decimal(chance.randrange(10**9)) / 10**10]),
        )
        for _ in range(100_000)
    ]
    ModelCall.objects.bulk_create(many, batch_size=500)
    ModelCall.objects.update(created_at=at)
    expected = sums_of(ModelCall.objects.all())
    deque(counting.count_all(), maxlen=0)
    for grouping in ("token", "user", "model", "tag", "day", "provider", "status"):
        report = report_usage(UsageQuery.of_last(7, grouping=grouping))
        assert report.is_complete
        assert_equal(report.total, expected)
        parts = [group.usage for group in report.groups]
        assert_equal(sum(parts, Usage()), expected)
