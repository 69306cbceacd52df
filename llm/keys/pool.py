"""The API keys of a provider in this process: which of them a call may use.

A pool is filled from rows whenever a route is resolved, and read again when it is older
than `MAX_AGE`. It also stores what responses of the provider reveal about a key; other
processes learn that from the rows (`llm.keys.selection` writes them). Of two states of
one key the later one applies.

A key *rests* until a time, for all models or for one: no call uses it. A key to be
*avoided* is used if there is no other: its provider refused a call without stating for
how long. A disabled key waits for staff.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from llm.errors import InvalidKey, LLMError, QuotaExhausted, RateLimited
from llm.keys.audience import EVERYBODY, KeyAudience
from llm.models import ApiKey, Provider
from llm.provider import Route

MAX_AGE = 0.2  # seconds until the rows are read again
MAX_POOLS = 10_000  # thousands of people may have keys of their own


@dataclass(frozen=True, slots=True)
class KeyState:
    """Whether calls may be made with a key. Times are Unix times."""

    is_disabled: bool = False
    ends_at: float = math.inf  # it expires or begins to drain
    rests_until: float = 0.0
    reason: str = ""  # why it rests; starts with one of our error codes
    # End of the rest, by model.
    rests_for: Mapping[str, float] = field(default_factory=dict)
    #: When a response last changed this; None if it is the state of the row.
    changed_at: datetime | None = None

    @classmethod
    def of_row(cls, row: ApiKey) -> KeyState:
        rests_until = 0.0
        if row.state == row.State.RESTING:
            rests_until = row.rest_until.timestamp() if row.rest_until else math.inf
        return cls(
            is_disabled=row.state == row.State.DISABLED,
            ends_at=row.ends_at.timestamp() if row.ends_at else math.inf,
            rests_until=rests_until,
            reason=row.state_reason,
            rests_for={
                model: datetime.fromisoformat(rest["until"]).timestamp()
                for model, rest in (row.model_rests or {}).items()
            },
        )

    def rest_of(self, model: str, now: float) -> float:
        """Seconds that the key still rests for this model, or 0."""
        until = max(self.rests_until, self.rests_for.get(model, 0.0))
        return max(0.0, until - now)

    def is_usable(self, model: str, now: float) -> bool:
        rests_until = max(self.rests_until, self.rests_for.get(model, 0.0))
        return not self.is_disabled and rests_until <= now < self.ends_at


class Key:
    """A key's row and its state.

    Database threads read rows while event loops choose keys and record responses: a
    state is replaced as a whole, under a lock.
    """

    __slots__ = ("_lock", "avoid_until", "must_read", "row", "state")

    def __init__(self, row: ApiKey) -> None:
        self.row = row
        self.state = KeyState.of_row(row)
        self.avoid_until = 0.0  # this process only
        #: Read the row even if `fill` gets the instance that was read before.
        self.must_read = False
        self._lock = threading.Lock()

    def read(self, row: ApiKey) -> None:
        """Take over the row, unless the state in memory is newer."""
        stored, at = KeyState.of_row(row), row.state_changed_at
        with self._lock:
            self.row, self.must_read = row, False
            later = self.state.changed_at
            if later is None or (at is not None and at >= later):
                self.state = stored
            else:
                self.state = replace(self.state, ends_at=stored.ends_at)

    def trust_row(self) -> None:
        """Let the next reading of the row replace the state in memory."""
        with self._lock:
            self.state, self.must_read = replace(self.state, changed_at=None), True

    def rest(self, until: float, reason: str, now: float) -> None:
        with self._lock:
            until = max(until, self.state.rests_until)
            self._change(now, rests_until=until, reason=reason)

    def rest_for_model(self, model: str, until: float, now: float) -> None:
        with self._lock:
            self._change(now, rests_for={**self.state.rests_for, model: until})

    def disable(self, reason: str, now: float) -> None:
        with self._lock:
            self._change(now, is_disabled=True, reason=reason)

    def _change(self, now: float, **fields: Any) -> None:
        at = datetime.fromtimestamp(now, UTC)
        self.state = replace(self.state, changed_at=at, **fields)


class KeyPool:
    """The keys of one provider for one audience."""

    def __init__(self, provider: Provider, audience: KeyAudience = EVERYBODY) -> None:
        self.provider = provider
        self.audience = audience
        self.read_at = -math.inf  # on the monotonic clock
        self.is_filled = False
        self._keys: dict[int, Key] = {}
        # Without it two threads create two objects for one key.
        self._filling = threading.Lock()

    def fill(self, provider: Provider, rows: Sequence[ApiKey]) -> None:
        with self._filling:
            keys = {}
            for row in rows:
                key = self._keys.get(row.pk)
                if key is None or key.row.created_at != row.created_at:
                    key = Key(row)
                if key.row is not row or key.must_read:
                    key.read(row)
                keys[row.pk] = key
            self._keys, self.provider = keys, provider
            self.read_at, self.is_filled = time.monotonic(), True

    @property
    def is_stale(self) -> bool:
        return not self.is_filled or time.monotonic() - self.read_at > MAX_AGE

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, pk: int | None) -> Key | None:
        return None if pk is None else self._keys.get(pk)

    def sort_keys(self, model: str, now: float) -> list[ApiKey]:
        """The keys that staff enabled, best first. Resting keys come after the others,
        keys that the program disabled last."""
        states = [(key, key.state) for key in self._keys.values()]
        states = [each for each in states if each[1].ends_at > now]
        allowed = [each for each in states if each[1].reason or not each[1].is_disabled]
        if len(allowed) < 2:
            return [key.row for key, _ in allowed]

        def rank(each: tuple[Key, KeyState]) -> tuple[bool, float, float]:
            key, state = each
            return state.is_disabled, state.rest_of(model, now), -_score(key, "")

        return [key.row for key, _ in sorted(allowed, key=rank)]

    def choose(
        self,
        model: str,
        now: float,
        *,
        affinity: str = "",
        preferred: int | None = None,
        tried: Collection[int] = (),
        excluded: Collection[int] = (),
    ) -> ApiKey | None:
        """Choose the key for a call; None if none may be used now.

        Keys to be avoided come after the others, and keys that this call has tried
        after those. The same `affinity` gives the same key in every process while it
        may be used; without an affinity each call draws one by weight.
        """
        usable = [
            key
            for pk, key in self._keys.items()
            if pk not in excluded and key.state.is_usable(model, now)
        ]
        if len(usable) < 2:
            return usable[0].row if usable else None

        def rank(key: Key) -> tuple[bool, bool, bool, float]:
            return (
                key.row.pk not in tried,
                key.avoid_until <= now,
                key.row.pk == preferred,
                _score(key, affinity),
            )

        return max(usable, key=rank).row

    def has_other(self, model: str, now: float, tried: Collection[int]) -> bool:
        """Whether a key that is not in `tried` may be used."""
        return any(
            pk not in tried and key.state.is_usable(model, now)
            for pk, key in self._keys.items()
        )

    def refusal(
        self, model: str, now: float, *, excluded: Collection[int] = ()
    ) -> LLMError:
        """Build the error if no key may be used, with the time until one may. Keys in
        `excluded` are not sent: they are empty, cannot be decrypted or were entered for
        another address."""
        texts = _OWN_TEXTS if self.audience.source == "own" else _STAFF_TEXTS
        name = self.provider.name
        states = {pk: key.state for pk, key in self._keys.items()}
        enabled = [
            state
            for pk, state in states.items()
            if pk not in excluded and not state.is_disabled and state.ends_at > now
        ]
        if not enabled and not states.keys().isdisjoint(excluded):
            return InvalidKey(texts.not_sent.format(name=name))
        if not enabled:
            return InvalidKey(texts.no_active_key.format(name=name))
        wait = min(state.rest_of(model, now) for state in enabled)
        retry_after = None if wait == math.inf else wait
        resting = [state for state in enabled if state.rests_until > now]
        if not resting:
            text = texts.refused_model.format(name=name)
            return InvalidKey(text, retry_after=retry_after)
        if all(state.reason.startswith(QuotaExhausted.code) for state in resting):
            text = texts.no_quota.format(name=name)
            return QuotaExhausted(text, retry_after=retry_after)
        text = texts.rate_limited.format(name=name)
        return RateLimited(text, retry_after=retry_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """What the person who calls can do if no key may be used."""

    not_sent: str
    no_active_key: str
    refused_model: str
    no_quota: str
    rate_limited: str


_STAFF_TEXTS = _Texts(
    not_sent=(
        "The provider {name!r} has no active key that can be sent to its address; ask"
        " the staff to enter one again."
    ),
    no_active_key="The provider {name!r} has no active key; ask the staff to add one.",
    refused_model=(
        "The provider {name!r} refused the model for all its keys; ask the staff to"
        " check the keys' permissions."
    ),
    no_quota="",  # the error's own
    rate_limited=(
        "All keys of the provider {name!r} are at their rate limits; try again later."
    ),
)
_OWN_TEXTS = _Texts(
    not_sent=(
        "Your own key for the provider {name!r} cannot be sent to its address; enter"
        ' it again on the page "Own keys".'
    ),
    no_active_key=(
        "You have no active key of your own for the provider {name!r}; enter one on"
        ' the page "Own keys", or try again to use another key.'
    ),
    refused_model=(
        "The provider {name!r} refused the model for your own key; check the key's"
        " permissions there."
    ),
    no_quota=(
        "Your own key for the provider {name!r} has no credit left; add some and enter"
        " it again at /keys/."
    ),
    rate_limited=(
        "Your own key for the provider {name!r} is at its rate limit; try again later."
    ),
)


def no_active_key(provider_name: str) -> InvalidKey:
    return InvalidKey(_STAFF_TEXTS.no_active_key.format(name=provider_name))


def fill(
    provider: Provider, rows: Sequence[ApiKey], audience: KeyAudience = EVERYBODY
) -> KeyPool:
    """Fill the provider's pool for this audience with these rows and return it."""
    pool = _pools.get((provider.pk, audience))
    if pool is None:
        pool = _add(KeyPool(provider, audience))
    pool.fill(provider, rows)
    return pool


def pool_of(route: Route) -> KeyPool | None:
    """The pool of the route; None if the route was resolved without a stored key.

    The key may have been deleted since, or the pool dropped: then its rows are read.
    """
    if route.key_id is None or route.provider_id is None:
        return None
    pool = _pools.get((route.provider_id, route.key_audience))
    if pool is None:
        provider = Provider(pk=route.provider_id, name=route.provider_name)
        pool = _add(KeyPool(provider, route.key_audience))
    return pool


def _add(pool: KeyPool) -> KeyPool:
    """Return the pool that is there already, if another thread added it."""
    if len(_pools) >= MAX_POOLS:
        _pools.clear()  # what responses revealed about the keys is in their rows
    return _pools.setdefault((pool.provider.pk, pool.audience), pool)


#: By primary key of the provider, and audience.
_pools: dict[tuple[int, KeyAudience], KeyPool] = {}


def _score(key: Key, affinity: str) -> float:
    """A random or hashed score; the key with the highest is used. Keys win in
    proportion to their weights (weighted rendezvous hashing).

    Source: https://doi.org/10.1016/j.ipl.2005.11.003 (weights),
    https://en.wikipedia.org/wiki/Rendezvous_hashing
    """
    if affinity:
        text = f"{affinity}\0{key.row.pk}".encode(errors="surrogatepass")
        number = int.from_bytes(blake2b(text, digest_size=7).digest(), "big")
        drawn = (number + 1) / (2**56 + 1)
    else:
        drawn = 1.0 - random.random()  # never 0
    return float(drawn ** (1.0 / key.row.weight))
