"""All processes together never admit more than a limit, and use is never lost."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, connections, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.access.limits import leases
from conversations.access.limits.amounts import (
    Amounts,
    AppliedLimit,
    BalanceKey,
    Caps,
)
from conversations.access.limits.expired_leases import sweep_expired
from conversations.access.limits.leases import (
    LEASE,
    Leases,
    LimitExceeded,
    amounts_taken,
)
from conversations.models import LimitBalance, LimitLease
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db(transaction=True)

ONE = Amounts(requests=1)


def a_limit(requests: int | None = 10, **caps: Any) -> AppliedLimit:
    user = User.objects.filter(username="limited").first() or a_user("limited")
    key = BalanceKey("user", user.pk, "2026-11")
    return AppliedLimit(key, "month", Caps(requests=requests, **caps))


def admit(process: Leases, limit: AppliedLimit, amounts: Amounts = ONE) -> bool:
    """Whether a call of exactly these amounts was admitted."""
    try:
        process.settle(process.reserve([limit], amounts), amounts)
    except LimitExceeded:
        return False
    return True


def lose(process: Leases) -> None:
    """The process dies: its leases expire."""
    LimitLease.objects.filter(process=process.process).update(
        expires_at=timezone.now() - timedelta(seconds=1)
    )


def test_a_limit_admits_exactly_its_amount():
    limit, process = a_limit(10), Leases()
    assert [admit(process, limit) for _ in range(12)] == [True] * 10 + [False] * 2


def test_the_refusal_names_limit_and_measure():
    limit, process = a_limit(10, tokens=50), Leases()
    with pytest.raises(LimitExceeded) as caught:
        process.reserve([limit], Amounts(requests=1, tokens=51))
    assert (caught.value.measure, caught.value.limit) == ("tokens", limit)


def test_a_reservation_that_is_refused_by_one_limit_takes_nothing_of_another():
    wide, process = a_limit(100), Leases()
    narrow = AppliedLimit(
        BalanceKey("user", a_user("b").pk, "total"), "total", Caps(requests=0)
    )
    with pytest.raises(LimitExceeded):
        process.reserve([wide, narrow], ONE)
    process.flush(returns_all=True)
    assert amounts_taken(wide.key) == Amounts()


class Undone(Exception):
    pass


def undo_reservation(process: Leases, limit: AppliedLimit, amounts: Amounts) -> None:
    with suppress(Undone, LimitExceeded), transaction.atomic():
        process.settle(process.reserve([limit], amounts), Amounts())
        raise Undone


@pytest.mark.parametrize("is_leased", [True, False])
def test_a_transaction_that_is_rolled_back_adds_nothing_to_the_limit(is_leased: bool):
    """Otherwise each message that the group's limit refuses would add a block to what
    its author's limit admits."""
    limit, process = a_limit(320), Leases()
    if is_leased:
        assert admit(process, limit)
        process.flush()
    for _ in range(5):
        undo_reservation(process, limit, Amounts(requests=50))
        process.flush()
    process.flush(returns_all=True)
    assert amounts_taken(limit.key) == Amounts(requests=int(is_leased))


@pytest.mark.parametrize("flushes", [True, False])
def test_use_after_a_transaction_that_is_rolled_back_counts(flushes: bool):
    """Otherwise a person could use a limit again and again, each time after a message
    that is refused."""
    limit, process, admitted = a_limit(60), Leases(), 0
    for _ in range(30):
        undo_reservation(process, limit, ONE)
        admitted += sum(admit(process, limit) for _ in range(4))
        if flushes:
            process.flush()
            process.flush()
    process.flush(returns_all=True)
    assert admitted == 60
    assert amounts_taken(limit.key) == Amounts(requests=60)


def test_an_unused_reservation_is_free_again():
    limit, process = a_limit(1), Leases()
    reserved = process.reserve([limit], ONE)
    assert not admit(process, limit)
    process.settle(reserved, Amounts())
    process.settle(reserved, ONE)  # a second time changes nothing
    assert admit(process, limit)


def test_most_calls_ask_no_database(django_assert_num_queries: Any):
    limit, process = a_limit(10_000), Leases()
    assert admit(process, limit)
    with django_assert_num_queries(0):
        for _ in range(300):
            assert admit(process, limit)


def test_what_a_process_does_not_use_returns_to_the_others():
    limit, idle, busy = a_limit(64), Leases(), Leases()
    assert admit(idle, limit)  # leases a block of two
    for _ in range(2):
        idle.flush()
    assert not LimitLease.objects.filter(process=idle.process).exists()
    assert sum(admit(busy, limit) for _ in range(70)) == 63


def test_use_beyond_a_reservation_is_counted_and_closes_the_limit():
    limit, process = a_limit(None, tokens=100), Leases()
    reserved = process.reserve([limit], Amounts(tokens=10))
    process.settle(reserved, Amounts(tokens=150))
    assert not admit(process, limit, Amounts(tokens=1))
    process.flush(returns_all=True)
    assert amounts_taken(limit.key) == Amounts(tokens=150)


def test_use_without_any_lease_is_counted():
    limit, process = a_limit(None, cost=100), Leases()
    process.charge([limit], Amounts(cost=7))
    process.flush()
    assert amounts_taken(limit.key) == Amounts(cost=7)


def test_a_balance_that_is_only_read_takes_no_memory_for_ever(monkeypatch: Any):
    class Period(str):
        pass

    process, period = Leases(), Period("2026-11")
    process.used(BalanceKey("user", a_user("ada").pk, period))
    is_remembered = weakref.ref(period)
    del period
    monkeypatch.setattr(leases, "FLUSH_INTERVAL", -1.0)
    process.flush()
    gc.collect()
    assert is_remembered() is None


def test_the_lease_of_a_dead_process_counts_as_used():
    limit, dead = a_limit(10), Leases()
    for _ in range(4):
        admit(dead, limit)
    lose(dead)
    assert sweep_expired() == 1
    assert sweep_expired() == 0
    assert sum(admit(Leases(), limit) for _ in range(10)) <= 6
    assert amounts_taken(limit.key).requests == 10


def test_a_process_that_was_taken_for_dead_counts_nothing_twice():
    limit, stalled = a_limit(100), Leases()
    for _ in range(3):  # of a block of three
        admit(stalled, limit)
    lose(stalled)
    sweep_expired()
    stalled.flush()
    assert amounts_taken(limit.key).requests == 3
    assert admit(stalled, limit)
    stalled.flush(returns_all=True)
    assert amounts_taken(limit.key).requests == 4


def test_a_renewed_lease_is_not_swept():
    limit, process = a_limit(10), Leases()
    reserved = process.reserve([limit], ONE)
    lose(process)
    process.flush()
    assert sweep_expired() == 0
    lease = LimitLease.objects.get()
    assert lease.expires_at > timezone.now() + LEASE / 2
    process.settle(reserved, ONE)
    process.flush(returns_all=True)
    balance = LimitBalance.objects.get()
    assert (balance.used_requests, balance.leased_requests) == (1, 0)


def test_a_flush_that_fails_is_made_good_by_the_next(monkeypatch: Any):
    limit, process = a_limit(10), Leases()
    admit(process, limit)
    with monkeypatch.context() as patch:
        patch.setattr(LimitBalance.objects, "filter", _fail)
        with pytest.raises(ConnectionError):
            process.flush(returns_all=True)
    process.flush(returns_all=True)
    assert amounts_taken(limit.key) == ONE
    assert LimitBalance.objects.get().leased_requests == 0


def _fail(*args: Any, **kwargs: Any) -> Any:
    raise ConnectionError


def test_use_of_a_deleted_account_holds_up_no_other_limit():
    process, gone = Leases(), a_user("gone")
    theirs = AppliedLimit(
        BalanceKey("user", gone.pk, "2026-11"), "month", Caps(tokens=1000)
    )
    other = a_limit(None, tokens=1000)
    running = [process.reserve([each], Amounts(tokens=10)) for each in (theirs, other)]
    gone.delete()  # while its call runs
    for each in running:
        process.settle(each, Amounts(tokens=200))  # more than was leased
    process.flush(returns_all=True)
    assert amounts_taken(other.key) == Amounts(tokens=200)


def test_a_fault_with_one_balance_holds_up_no_other(monkeypatch: Any):
    process, first = Leases(), a_limit(10)
    key = BalanceKey("user", a_user("b").pk, "total")
    second = AppliedLimit(key, "total", first.caps)
    for each in (first, second):
        admit(process, each)
    change = leases.change_balance

    def change_second(key: BalanceKey, **changes: Any) -> None:
        return _fail() if key == first.key else change(key, **changes)

    with monkeypatch.context() as patch:
        patch.setattr(leases, "change_balance", change_second)
        with pytest.raises(ConnectionError):
            process.flush(returns_all=True)
    assert amounts_taken(second.key) == ONE


@pytest.mark.parametrize("amount", [11, 2**63, 2**80])
def test_more_than_the_whole_limit_is_refused_whatever_its_size(amount: int):
    limit, process = a_limit(None, tokens=10), Leases()
    with pytest.raises(LimitExceeded) as caught:
        process.reserve([limit], Amounts(tokens=amount))
    assert caught.value.measure == "tokens"


@pytest.mark.parametrize("cap", [0, 1, 10, 100])
def test_processes_at_once_admit_at_most_the_limit(cap: int):
    limit = a_limit(cap)
    processes = [Leases() for _ in range(4)]
    admitted = _in_threads(
        lambda n: admit(processes[n % 4], limit), range(200), threads=8
    )
    assert sum(admitted) <= cap
    for process in processes:
        process.flush(returns_all=True)
    rest = Leases()
    assert sum(admitted) + sum(admit(rest, limit) for _ in range(cap + 1)) == cap


def _in_threads(act: Callable[[int], Any], numbers: Any, threads: int) -> list[Any]:
    def run(number: int) -> Any:
        try:
            return act(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, numbers))


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "refund", "over", "flush", "die", "return"]),
        st.integers(0, 2),
        st.integers(1, 9),
    ),
    max_size=40,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=_STEPS, cap=st.integers(0, 60))
def test_no_order_of_events_admits_more_or_loses_use(steps: Any, cap: int):
    LimitBalance.objects.all().delete()
    limit, processes = a_limit(None, tokens=cap), [Leases() for _ in range(3)]
    admitted, beyond = 0, 0
    for act, number, amount in steps:
        process = processes[number]
        match act:
            case "admit":
                admitted += amount * admit(process, limit, Amounts(tokens=amount))
            case "over":
                process.charge([limit], Amounts(tokens=amount))
                beyond += amount
            case "refund":
                try:
                    reserved = process.reserve([limit], Amounts(tokens=amount))
                except LimitExceeded:
                    continue
                process.settle(reserved, Amounts())
            case "flush":
                process.flush()
            case "return":
                process.flush(returns_all=True)
            case "die":
                process.flush()
                lose(process)
                sweep_expired()
                processes[number] = Leases()
        assert admitted <= cap
    for process in processes:
        process.flush(returns_all=True)
    assert amounts_taken(limit.key).tokens >= admitted + beyond


@pytest.mark.parametrize("act", [admit, lambda process, limit: process.flush()])
def test_a_call_in_a_transaction_waits_for_no_thread_that_waits_for_it(act: Any):
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has one lock for all writes")
    limit, process = a_limit(100), Leases()
    assert admit(process, limit)
    process.settle(process.reserve([limit], Amounts(requests=3)), ONE)
    is_beginning = Event()

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("BEGIN"):
            is_beginning.set()
        return execute(sql, *rest)

    def act_elsewhere() -> None:
        try:
            with connections["default"].execute_wrapper(note):
                if act is admit:
                    process.reserve([limit], Amounts(requests=5))
                else:
                    act(process, limit)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            other = threads.submit(act_elsewhere)
            assert is_beginning.wait(60)
            process.reserve([limit], Amounts(requests=20))
        other.result()


def test_two_messages_lock_the_balances_in_one_order():
    """Otherwise PostgreSQL ends one of them, as each waits for the other."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one lock for all writes")
    of_user = a_limit(100)
    key = BalanceKey("group", Group.objects.create(name="limited").pk, "2026-11")
    of_group = AppliedLimit(key, "month", Caps(requests=100))
    process, other_process = Leases(), Leases()
    for limit in (of_user, of_group):
        assert admit(other_process, limit)
    undo_reservation(process, of_user, ONE)  # the next call looks what became of it
    is_waiting = Event()

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(f'UPDATE "{LimitBalance._meta.db_table}"'):
            is_waiting.set()  # for the first balance that it changes
        return execute(sql, *rest)

    def reserve_elsewhere() -> None:
        try:
            with transaction.atomic(), connections["default"].execute_wrapper(note):
                process.reserve([of_user, of_group], Amounts(requests=20))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            other_process.reserve([of_group], Amounts(requests=20))
            elsewhere = threads.submit(reserve_elsewhere)
            assert is_waiting.wait(60)
            other_process.reserve([of_user], Amounts(requests=20))
        elsewhere.result()


def test_the_sweep_locks_in_the_order_of_the_process_that_enlarges_its_lease():
    """A process that was taken for dead may go on at the same time."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one lock for all writes")
    limit, process = a_limit(100), Leases()
    assert admit(process, limit)
    process.reserve([limit], ONE)
    process.flush()
    lose(process)
    is_waiting = Event()
    table = f'"{LimitBalance._meta.db_table}"'

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        if table in sql and ("FOR UPDATE" in sql or sql.startswith("UPDATE")):
            is_waiting.set()
        return execute(sql, *rest)

    def sweep_elsewhere() -> int:
        try:
            with connections["default"].execute_wrapper(note):
                return sweep_expired()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        swept: Any = None

        def begin_sweep(execute: Any, sql: str, *rest: Any) -> Any:
            nonlocal swept
            if sql.startswith("UPDATE") and LimitLease._meta.db_table in sql:
                swept = threads.submit(sweep_elsewhere)
                assert is_waiting.wait(60)
            return execute(sql, *rest)

        with connection.execute_wrapper(begin_sweep):
            process.reserve([limit], Amounts(requests=20))
        assert swept.result() == 0
    process.flush(returns_all=True)
    assert amounts_taken(limit.key).requests == 22
