"""Choice of a host for a call of a model pool, and of the order in which others follow.

A pool is one name for several models, mostly the same one at several hosts. The first
of the order is called; the others follow if it fails, as fallbacks do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from django.db.models import Prefetch

from llm.models import LanguageModel, ModelPool, PoolMember
from llm.pools import load

T = TypeVar("T")


def find_pool(name: str, user: Any) -> ModelPool | None:
    """The enabled pool of this name with the members that `user` may call; None if
    there is none. Two queries."""
    usable = LanguageModel.objects.usable().available_to(user)
    members = PoolMember.objects.filter(model__in=usable).select_related(
        "model__provider"
    )
    rows = ModelPool.objects.filter(name=name, enabled=True)
    pool = rows.prefetch_related(Prefetch("members", members)).first()
    return pool if pool is not None and pool.members.all() else None


def list_pools(user: Any) -> dict[str, list[LanguageModel]]:
    """The models of each pool that `user` may call, by the pool's name."""
    usable = LanguageModel.objects.usable().available_to(user)
    members = PoolMember.objects.filter(pool__enabled=True, model__in=usable)
    found: dict[str, list[LanguageModel]] = {}
    for each in members.select_related("pool", "model__provider"):
        found.setdefault(each.pool.name, []).append(each.model)
    return found


def order_members(
    pool: ModelPool,
    members: Sequence[T],
    member_of: Callable[[T], PoolMember],
    affinity: str = "",
) -> list[T]:
    """Sort `members` into the order in which they are to be called.

    Members that are cooling down come last, and those of weight 0 before them. With the
    strategy of weights, the same `affinity` gives the same order in every process.
    """

    def rank(each: T) -> tuple[bool, bool, float]:
        member = member_of(each)
        cools = load.is_cooling(member.model_id, pool.cooldown)
        return cools, member.weight == 0, _place(pool, member, affinity)

    return sorted(members, key=rank)


def choose_model(pool: ModelPool) -> LanguageModel:
    """The model that answers a call now. The pool has a member."""
    return order_models(pool)[0]


def order_models(pool: ModelPool, affinity: str = "") -> list[LanguageModel]:
    """The models in the order in which they are to be called. The pool has a member."""
    members = order_members(pool, list(pool.members.all()), lambda each: each, affinity)
    for member in members:
        member.model.pool_name = pool.name
    return [member.model for member in members]


def _place(pool: ModelPool, member: PoolMember, affinity: str) -> float:
    """The lower, the sooner it is called."""
    weight = member.weight or 1
    drawn = _draw(member.model_id, affinity)
    if pool.strategy == ModelPool.Strategy.LEAST_BUSY:
        busy = load.running.get(member.model_id, 0)
        return (busy + drawn) / weight
    # Weighted rendezvous hashing, as for keys: https://doi.org/10.1016/j.ipl.2005.11.003
    return float(-(drawn ** (1.0 / weight)))


def _draw(model_id: int, affinity: str) -> float:
    """Above 0, at most 1: random, or the same for each affinity."""
    if not affinity:
        return 1.0 - random.random()
    text = f"{affinity}\0{model_id}".encode(errors="surrogatepass")
    digest = blake2b(text, digest_size=7).digest()
    return (int.from_bytes(digest, "big") + 1) / (2**56 + 1)
