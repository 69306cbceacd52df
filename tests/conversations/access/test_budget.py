"""A budget is never exceeded, whatever happens at the same moment or never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.access import budget as ledger
from conversations.access.errors import BudgetExhausted, Unauthorized
from conversations.models import AccessToken
from conversations.models.access_token import NANOS_PER_DOLLAR
from conversations.models.ledger import Balance, LedgerEntry, entry_id
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db


def a_token(budget: Any = "1", **fields: Any) -> AccessToken:
    amount = None if budget is None else Decimal(budget)
    token, _ = AccessToken.issue(a_user(), "test", budget=amount, **fields)
    return token


def reserve(token: AccessToken, amount: int) -> str:
    entry = entry_id()
    ledger.reserve(entry, token.pk, amount)
    return entry


def standing(token: AccessToken) -> tuple[int, int]:
    """Spent and reserved."""
    return ledger.balance_of(token)


def test_a_call_is_reserved_and_then_settled():
    token = a_token()
    entry = reserve(token, 400)
    assert standing(token) == (0, 400)
    ledger.settle(entry, 150)
    assert standing(token) == (150, 0)
    row = LedgerEntry.objects.get(pk=entry)
    assert (row.state, row.amount, row.cost) == ("settled", 400, 150)


def test_a_reservation_beyond_the_budget_is_refused_and_changes_nothing():
    token = a_token()
    reserve(token, NANOS_PER_DOLLAR - 10)
    with pytest.raises(BudgetExhausted, match="budget is not enough"):
        reserve(token, 11)
    assert standing(token) == (0, NANOS_PER_DOLLAR - 10)
    reserve(token, 10)
    assert LedgerEntry.objects.count() == 2


def test_settling_twice_counts_once():
    token = a_token()
    entry = reserve(token, 400)
    for _ in range(2):
        ledger.settle(entry, 150)
    assert standing(token) == (150, 0)


def test_settling_what_was_refused_is_harmless():
    ledger.settle("led_unknown", 5)
    assert not Balance.objects.exists()


def test_a_token_without_a_budget_costs_no_rows():
    token = a_token(None)
    ledger.settle(reserve(token, 400), 150)
    ledger.check_budget(token)
    assert not Balance.objects.exists()
    assert not LedgerEntry.objects.exists()


def test_a_deleted_token_reserves_nothing():
    token = a_token()
    pk = token.pk
    token.delete()
    with pytest.raises(Unauthorized):
        ledger.reserve(entry_id(), pk, 1)


def test_money_is_never_rounded_in_the_callers_favour():
    assert ledger.nanos(Decimal("0.000000000001")) == 1
    assert ledger.nanos(Decimal("0.1")) == NANOS_PER_DOLLAR // 10
    assert ledger.nanos(Decimal(0)) == 0


def test_a_costlier_call_than_reserved_is_paid_for_and_ends_the_budget(caplog: Any):
    token = a_token()
    ledger.settle(reserve(token, 10), 2 * NANOS_PER_DOLLAR)
    assert standing(token) == (2 * NANOS_PER_DOLLAR, 0)
    assert "more than was reserved" in caplog.text
    with pytest.raises(BudgetExhausted):
        reserve(token, 0)
    with pytest.raises(BudgetExhausted):
        ledger.check_budget(token)


@pytest.mark.parametrize(("period", "step"), [("day", 1), ("month", 31)])
def test_a_new_period_begins_with_the_whole_budget(
    period: str, step: int, monkeypatch: pytest.MonkeyPatch
):
    token = a_token(budget_period=period)
    entry = reserve(token, NANOS_PER_DOLLAR)
    with pytest.raises(BudgetExhausted):
        reserve(token, 1)
    later = timezone.localdate() + timedelta(days=step)
    monkeypatch.setattr(
        "conversations.models.access_token.timezone.localdate", lambda: later
    )
    reserve(token, NANOS_PER_DOLLAR)
    ledger.settle(entry, NANOS_PER_DOLLAR)  # in the period in which it was made
    assert standing(token) == (0, NANOS_PER_DOLLAR)


# Crashes


def _time_passes() -> None:
    past = timezone.now() - timedelta(seconds=1)
    LedgerEntry.objects.filter(state="reserved").update(deadline=past)


def test_a_reservation_whose_process_died_is_charged():
    """The provider may bill it, so a crash makes no room for further calls."""
    token = a_token()
    reserve(token, NANOS_PER_DOLLAR)
    assert ledger.charge_expired() == 0  # it may still be going on
    _time_passes()
    assert ledger.charge_expired() == 1
    assert ledger.charge_expired() == 0
    assert standing(token) == (NANOS_PER_DOLLAR, 0)
    with pytest.raises(BudgetExhausted):
        reserve(token, 1)


def test_a_call_that_outlasted_its_deadline_is_paid_for_all_the_same():
    token = a_token()
    entry = reserve(token, 400)
    _time_passes()
    ledger.charge_expired()
    assert standing(token) == (400, 0)
    for _ in range(2):
        ledger.settle(entry, 150)
    assert standing(token) == (150, 0)


# At the same moment


def _all_at_once(acts: list[Callable[[], Any]]) -> list[Any]:
    def run(act: Callable[[], Any]) -> Any:
        try:
            return act()
        except BudgetExhausted as exc:
            return exc
        finally:
            connections["default"].close()

    # PostgreSQL has room for so many of us; SQLite's writers wait for one another.
    size = 32 if connection.vendor == "postgresql" else len(acts)
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, acts))


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.django_db(transaction=True)
def test_of_200_calls_at_once_exactly_those_are_admitted_that_fit():
    token = a_token("0.000050")  # fifty thousand billionths
    done = _all_at_once([lambda: reserve(token, 1000)] * 200)
    assert Counter(type(each) for each in done) == {str: 50, BudgetExhausted: 150}
    assert standing(token) == (0, 50_000)
    entries = [each for each in done if isinstance(each, str)]
    _all_at_once([lambda e=e: ledger.settle(e, 400) for e in entries])
    assert standing(token) == (20_000, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_200_calls_that_come_settle_and_die_at_once_never_spend_more():
    token = a_token("0.000050")

    def call(number: int) -> str:
        entry = reserve(token, 1000)
        if number % 3 == 0:
            return "died"
        ledger.settle(entry, 100 * (number % 11))
        return "settled"

    _all_at_once([lambda n=n: call(n) for n in range(200)])
    spent, reserved = standing(token)
    assert spent + reserved <= 50_000
    rows = LedgerEntry.objects.all()
    assert spent == sum(row.cost or 0 for row in rows)
    assert reserved == sum(row.amount for row in rows if row.state == "reserved")


Acts = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 60)),
        st.tuples(st.just("settle"), st.integers(0, 100)),
        st.tuples(st.just("crash"), st.integers(0, 100)),
    ),
    max_size=30,
)


@given(acts=Acts)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_no_more_is_spent_than_the_budget(db: Any, acts: Any):
    ada, _ = User.objects.get_or_create(username="ada")
    token, _ = AccessToken.issue(ada, "test", budget=Decimal("0.000001"))
    _play(token, [(act, 10 * number) for act, number in acts])


def _play(token: AccessToken, acts: list[tuple[str, int]]) -> None:
    budget = token.budget_nanos or 0
    going: list[tuple[str, int]] = []
    paid = 0
    for act, number in acts:
        if act == "reserve":
            before = standing(token)
            try:
                going.append((reserve(token, number), number))
            except BudgetExhausted:
                assert sum(before) + number > budget
        elif going:
            entry, amount = going.pop(number % len(going))
            if act == "settle":
                cost = min(amount, number)
                ledger.settle(entry, cost)
                paid += cost
            else:
                LedgerEntry.objects.filter(pk=entry).update(
                    deadline=timezone.now() - timedelta(seconds=1)
                )
                ledger.charge_expired()
                paid += amount
        spent, reserved = standing(token)
        assert spent == paid
        assert reserved == sum(amount for _, amount in going)
        assert spent + reserved <= budget


def test_the_condition_is_in_the_update_itself():
    """One statement looks and changes, else two processes could both see room."""
    token = a_token()
    reserve(token, 1)
    with CaptureQueriesContext(connection) as queries:
        reserve(token, 1)
    [update] = [q["sql"] for q in queries if q["sql"].startswith("UPDATE")]
    assert "SELECT" not in update
    assert update.index("WHERE") < update.rindex("reserved")
