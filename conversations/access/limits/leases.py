"""Blocks of balances that this process has leased, so that calls rarely ask the
database.

A lease grants this process a part of what a limit leaves. A call reserves in memory; if
the lease does not suffice, one conditional update enlarges it by a block: a part of
what is left, or what the call needs. So all processes together never admit more than
the limit. `flush` writes what was used and returns what is idle. The lease of a process
that died counts as used: what it had admitted is unknown.

Synchronous and thread-safe; `try_reserve` and `settle` do no IO.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from django.db import IntegrityError, connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from conversations.access.limits.amounts import (
    MEASURES,
    Amounts,
    AppliedLimit,
    BalanceKey,
    Caps,
)
from conversations.models.limits.limit_balance import LimitBalance, LimitLease

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)  # without a flush, until other processes take it as used
BLOCK_SHARE = 32  # a block is this part of what is left
FLUSH_INTERVAL = 2.0  # seconds


_Grant: TypeAlias = tuple[int, object]  # of which thread


class LimitExceeded(Exception):
    """A reservation does not fit under a limit."""

    def __init__(self, limit: AppliedLimit, measure: str) -> None:
        super().__init__(measure)
        self.limit, self.measure = limit, measure


@dataclass(slots=True, eq=False)
class Reservation:
    """Amounts reserved for one call, by balance; settled once."""

    parts: list[tuple[BalanceKey, Caps, Amounts]]
    is_settled: bool = False

    @property
    def reserved_cost(self) -> int:
        """Billionths of a USD."""
        return max((amounts.cost for _, _, amounts in self.parts), default=0)


@dataclass(slots=True)
class _Block:
    """The lease of one balance: `granted` is what the row says, once the transactions
    that enlarged it are committed."""

    granted: Amounts = field(default_factory=Amounts)
    spent: Amounts = field(default_factory=Amounts)  # settled, not yet written
    reserved: Amounts = field(default_factory=Amounts)
    is_used: bool = True  # since the last flush
    caps: Caps = field(default_factory=Caps, compare=False)  # when last charged
    #: Parts of `granted` by transactions that may still be rolled back.
    unconfirmed: dict[_Grant, Amounts] = field(default_factory=dict, compare=False)

    @property
    def free(self) -> Amounts:
        return self.granted - self.spent - self.reserved

    @property
    def surely_free(self) -> Amounts:
        return self.confirmed - self.spent - self.reserved

    @property
    def confirmed(self) -> Amounts:
        """What the row says whatever becomes of the transactions."""
        return self.granted - sum(self.unconfirmed.values(), Amounts())


def _lock_order(limit: AppliedLimit) -> tuple[str, int, str, int]:
    key = limit.key
    return key.kind, key.owner_id, key.period, key.model_id or 0


def _parts_of(
    limits: Sequence[AppliedLimit], amounts: Amounts
) -> list[tuple[BalanceKey, Caps, Amounts]]:
    return [(e.key, e.caps, e.caps.limited(amounts)) for e in limits]


class Leases:
    """The leases of one process."""

    def __init__(self) -> None:
        self.process = uuid.uuid4().hex
        self._blocks: dict[BalanceKey, _Block] = {}
        self._others: dict[BalanceKey, tuple[float, Amounts]] = {}  # with times
        self._lock = threading.Lock()  # guards the blocks' numbers; held without IO
        self._writing = threading.RLock()  # one thread changes leases in the database

    # Reserve and settle

    def try_reserve(
        self, limits: Sequence[AppliedLimit], amounts: Amounts
    ) -> Reservation | None:
        """From the leases of this process, without IO; None if they do not suffice."""
        parts = _parts_of(limits, amounts)
        with self._lock:
            for key, _, needed in parts:
                block = self._blocks.get(key) or _Block()
                if not block.surely_free.covers(needed):
                    return None
            for key, _, needed in parts:
                self._add_reserved(key, needed)
        return Reservation(parts)

    def reserve(self, limits: Sequence[AppliedLimit], amounts: Amounts) -> Reservation:
        """As `try_reserve`, with larger leases where needed. Raises LimitExceeded."""
        if (found := self.try_reserve(limits, amounts)) is not None:
            return found
        exceeded: LimitExceeded | None = None
        # Not raised inside, as what was leased of other limits stays leased.
        with self._lock_leases():
            try:
                self._reserve_in_order(limits, amounts)
            except LimitExceeded as exc:
                exceeded = exc
        if exceeded is not None:
            raise exceeded
        return Reservation(_parts_of(limits, amounts))

    def _reserve_in_order(
        self, limits: Sequence[AppliedLimit], amounts: Amounts
    ) -> None:
        """Each balance once and in one order, as the caller's transaction locks it
        until its end: two that took those of two groups the other way round would wait
        for each other. So each is reserved at once, before another thread takes what
        was leased for this call."""
        reserved: list[tuple[BalanceKey, Amounts]] = []
        try:
            for each in sorted(limits, key=_lock_order):
                self._settle_unconfirmed(each.key)
                needed = each.caps.limited(amounts)
                with self._lock:
                    self._add_reserved(each.key, needed)
                reserved.append((each.key, needed))
                while self._enlarge(each, needed):
                    pass  # of an expired lease, more is missing than it seemed
        except BaseException:
            with self._lock:
                for key, needed in reserved:
                    self._add_reserved(key, Amounts() - needed)
            raise

    def _add_reserved(self, key: BalanceKey, amounts: Amounts) -> None:
        block = self._blocks.setdefault(key, _Block())
        block.reserved += amounts
        block.is_used = True

    def settle(
        self, reservation: Reservation, used: Amounts, *, skipped: Container[int] = ()
    ) -> None:
        """Replace the reserved amounts by those used. A second call does nothing.

        `skipped`: models whose own limits nothing was used of.
        """
        with self._lock:
            if reservation.is_settled:
                return
            reservation.is_settled = True
            for key, caps, reserved in reservation.parts:
                block = self._blocks.setdefault(key, _Block())
                block.reserved -= reserved
                if key.model_id is None or key.model_id not in skipped:
                    block.spent += caps.limited(used)
                block.is_used, block.caps = True, caps

    def charge(self, limits: Sequence[AppliedLimit], used: Amounts) -> None:
        """Count what was used without a reservation, even beyond the limits."""
        self.settle(Reservation([(e.key, e.caps, Amounts()) for e in limits]), used)

    def idle(self, key: BalanceKey) -> Amounts:
        """What this process has leased and not used, minus what it has used beyond."""
        with self._lock:
            block = self._blocks.get(key)
            return block.free if block else Amounts()

    def used(self, key: BalanceKey) -> Amounts:
        """What is used of a balance; what other processes have leased counts, and is
        read anew every two seconds."""
        read_at, others = self._others.get(key, (-math.inf, Amounts()))
        if time.monotonic() - read_at > FLUSH_INTERVAL:
            others = amounts_taken(key) - self._granted(key)
            self._others[key] = (time.monotonic(), others)
        return others + self._granted(key) - self.idle(key)

    def _granted(self, key: BalanceKey) -> Amounts:
        with self._lock:
            block = self._blocks.get(key)
            return block.granted if block else Amounts()

    # The database

    def flush(self, *, returns_all: bool = False) -> dict[BalanceKey, Caps]:
        """Write what was used, and give back what no call has used since the last
        flush. Returns the balances of which something was used, with their caps.

        `returns_all`: at the end of the process, which calls nothing afterwards. A
        fault with one balance is raised after the others were written.
        """
        charged, faults = {}, []
        for key in list(self._blocks):
            try:
                caps = self._flush_block(key, returns_all)
            except Exception as exc:
                faults.append(exc)
                continue
            if caps is not None:
                charged[key] = caps
        oldest = time.monotonic() - FLUSH_INTERVAL
        for key, (read_at, _) in self._others.copy().items():
            if read_at < oldest:  # balances that are only read have no block
                self._others.pop(key, None)
        if faults:
            raise faults[0]
        return charged

    @contextmanager
    def _lock_leases(self) -> Iterator[None]:
        """One thread at a time. A caller may be in a transaction, which in SQLite has
        the database's one write lock; so everybody takes that lock first. Otherwise
        this caller would wait for a thread that waits for the caller's transaction."""
        if connection.vendor == "sqlite":
            with transaction.atomic(), self._writing:
                yield
        else:
            with self._writing:
                yield

    def _flush_block(self, key: BalanceKey, returns_all: bool) -> Caps | None:
        block: _Block | None = None
        try:
            with self._lock_leases():
                with self._lock:
                    if (block := self._blocks.get(key)) is None:
                        return None  # another thread has returned it
                    spent, granted, caps = block.spent, block.granted, block.caps
                    confirmed, unconfirmed = block.confirmed, block.unconfirmed
                    is_idle = returns_all or not block.is_used
                    wanted = (granted - spent).at_least(Amounts())
                    if is_idle:
                        wanted = wanted.at_most(block.reserved)
                    # Before the write, so that no call reserves what is returned.
                    block.spent, block.granted = Amounts(), wanted
                    block.is_used, block.unconfirmed = False, {}
                leased = self._write(key, spent, confirmed, wanted)
                with self._lock:
                    block.granted += leased - wanted
                self._others.pop(key, None)  # what was used is in the row now
        except Exception:
            if block is not None:
                with self._lock:  # the next flush writes it
                    block.spent += spent
                    block.granted += granted - wanted
                    block.unconfirmed |= unconfirmed
                    block.is_used = True
            raise
        with self._lock:
            if block == _Block(is_used=False) and self._blocks.get(key) is block:
                del self._blocks[key]
        return None if spent == Amounts() else caps

    def _write(
        self, key: BalanceKey, spent: Amounts, confirmed: Amounts, wanted: Amounts
    ) -> Amounts:
        """Returns what the lease has now: `wanted`, or less if a transaction that
        enlarged it was rolled back. If there is no row, the lease was never committed,
        or another process took this one for dead and counted all of it as used."""
        rows = self._rows(key)
        with transaction.atomic():
            _lock_balance(key)
            if (lease := rows.select_for_update(of=("self",)).first()) is not None:
                before = amounts_of(lease)
                wanted = wanted.at_most((before - spent).at_least(Amounts()))
                if wanted == Amounts():
                    rows.delete()
                else:
                    columns = {m: getattr(wanted, m) for m in MEASURES}
                    rows.update(**columns, expires_at=timezone.now() + LEASE)
                change_balance(key, used=spent, leased=wanted - before)
                return wanted
            beyond = (spent - confirmed).at_least(Amounts())
            # Without its owner, it was deleted while a call was running.
            if beyond != Amounts() and _has_owner(key):
                _find_balance(key)
                change_balance(key, used=beyond)
            return Amounts()

    def _enlarge(self, limit: AppliedLimit, needed: Amounts) -> bool:
        """Lease what is reserved beyond the lease, at most `needed` of this call.
        Returns whether it leased anything. Raises LimitExceeded."""
        with self._lock:
            block = self._blocks.get(limit.key) or _Block()
            missing = (Amounts() - block.free).at_least(Amounts())
        if missing == Amounts():
            return False
        if (measure := limit.caps.first_exceeded(missing)) is not None:
            # Nothing to ask: columns hold no number of any size.
            raise LimitExceeded(limit, measure)
        with transaction.atomic():
            balance = _find_balance(limit.key)
            amounts = _block_size(balance, limit, missing)
            if not _take(balance, limit.caps, amounts):
                amounts = missing
                if not _take(balance, limit.caps, amounts):
                    raise _exceeded(balance, limit, missing)
            is_continued = self._store_lease(balance, amounts)
        with self._lock:
            block = self._blocks.setdefault(limit.key, _Block())
            if not is_continued:
                # If there was a lease, the sweep has counted all of it as used.
                block.spent = (block.spent - block.confirmed).at_least(Amounts())
                block.granted, block.unconfirmed = Amounts(), {}
            grant = (threading.get_ident(), object())
            block.unconfirmed[grant] = amounts
            block.granted += amounts
            block.is_used = True
        transaction.on_commit(partial(self._confirm, limit.key, grant))
        return True

    def _settle_unconfirmed(self, key: BalanceKey) -> None:
        """Take back what was leased by transactions that were rolled back."""
        block = self._blocks.get(key)
        if block is None or not block.unconfirmed:
            return
        _lock_balance(key)
        lease = self._rows(key).first()
        thread = threading.get_ident()
        with self._lock:
            if lease is not None:
                block.granted = amounts_of(lease)
            else:  # an expired lease is dealt with where the block is enlarged
                block.granted = block.confirmed
            mine = {g: a for g, a in block.unconfirmed.items() if g[0] == thread}
            block.unconfirmed = mine if lease is not None else {}

    def _rows(self, key: BalanceKey) -> QuerySet[LimitLease]:
        rows = LimitLease.objects.filter(**_balance(key, "balance__"))
        return rows.filter(process=self.process)

    def _confirm(self, key: BalanceKey, grant: _Grant) -> None:
        with self._lock:
            if block := self._blocks.get(key):
                block.unconfirmed.pop(grant, None)

    def _store_lease(self, balance: LimitBalance, amounts: Amounts) -> bool:
        """False if this process had no lease of the balance."""
        expires_at = timezone.now() + LEASE
        rows = LimitLease.objects.filter(balance=balance, process=self.process)
        more = {m: F(m) + getattr(amounts, m) for m in MEASURES}
        if rows.update(**more, expires_at=expires_at):
            return True
        columns = {m: getattr(amounts, m) for m in MEASURES}
        LimitLease.objects.create(
            balance=balance, process=self.process, expires_at=expires_at, **columns
        )
        return False


@transaction.atomic
def _lock_balance(key: BalanceKey) -> None:
    """Wait until no transaction is open that has leased some of the balance, as each
    has changed its row. In SQLite the caller has the write lock, so none is.

    Every transaction locks a balance before its leases; in two orders, two would wait
    for each other.
    """
    LimitBalance.objects.select_for_update().filter(**_balance(key)).first()


def _take(balance: LimitBalance, caps: Caps, amounts: Amounts) -> bool:
    """Add `amounts` to what is leased, if all of them fit under the caps."""
    fitting = LimitBalance.objects.filter(pk=balance.pk)
    for measure in MEASURES:
        cap, amount = getattr(caps, measure), getattr(amounts, measure)
        if cap is not None and amount:
            most = cap - amount - F(f"used_{measure}")
            fitting = fitting.filter(**{f"leased_{measure}__lte": most})
    return bool(fitting.update(**sums("leased", amounts)))


def _exceeded(
    balance: LimitBalance, limit: AppliedLimit, needed: Amounts
) -> LimitExceeded:
    balance.refresh_from_db()
    measure = limit.caps.first_exceeded(_sum_of(balance) + needed)
    return LimitExceeded(limit, measure or MEASURES[0])


def amounts_of(lease: LimitLease) -> Amounts:
    return Amounts(**{m: getattr(lease, m) for m in MEASURES})


def amounts_taken(key: BalanceKey) -> Amounts:
    """Used, and reserved or leased by processes, in the period."""
    balance = LimitBalance.objects.filter(**_balance(key)).first()
    return _sum_of(balance) if balance else Amounts()


def _has_owner(key: BalanceKey) -> bool:
    return all(
        _exists(name, pk)
        for name, pk in ((key.kind, key.owner_id), ("model", key.model_id))
        if pk is not None
    )


def _exists(name: str, pk: int) -> bool:
    rows: Any = LimitBalance._meta.get_field(name).related_model
    return bool(rows._base_manager.filter(pk=pk).exists())


def _find_balance(key: BalanceKey) -> LimitBalance:
    rows = LimitBalance.objects.filter(**_balance(key))
    if (found := rows.first()) is not None:
        return found
    try:
        with transaction.atomic():
            return LimitBalance.objects.create(**_balance(key))
    except IntegrityError:  # another process was first
        return rows.get()


def _block_size(balance: LimitBalance, limit: AppliedLimit, needed: Amounts) -> Amounts:
    left = Amounts(
        **{
            m: cap - getattr(_sum_of(balance), m)
            if (cap := getattr(limit.caps, m)) is not None
            else 0
            for m in MEASURES
        }
    )
    shares = {m: max(0, getattr(left, m)) // BLOCK_SHARE for m in MEASURES}
    return needed.at_least(Amounts(**shares))


def _sum_of(balance: LimitBalance) -> Amounts:
    return Amounts(
        **{
            m: getattr(balance, f"used_{m}") + getattr(balance, f"leased_{m}")
            for m in MEASURES
        }
    )


def change_balance(
    key: BalanceKey, *, used: Amounts, leased: Amounts | None = None
) -> None:
    balance = LimitBalance.objects.filter(**_balance(key))
    balance.update(**sums("used", used), **sums("leased", leased or Amounts()))


def sums(prefix: str, amounts: Amounts) -> dict[str, Any]:
    names = {m: f"{prefix}_{m}" for m in MEASURES if getattr(amounts, m)}
    # An update needs a column: adding nothing to the first one does no harm.
    names = names or {MEASURES[0]: f"{prefix}_{MEASURES[0]}"}
    return {name: F(name) + getattr(amounts, m) for m, name in names.items()}


def _balance(key: BalanceKey, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}{key.kind}_id": key.owner_id,
        f"{prefix}period": key.period,
        f"{prefix}model_id": key.model_id,
    }


#: The leases of this process.
leases = Leases()
