"""Which model of a pool is called, and what staff see and may enter."""

from __future__ import annotations

from collections import Counter

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError

from llm import router
from llm.errors import (
    InvalidKey,
    ModelNotAvailable,
    ProviderDown,
    QuotaExhausted,
    RateLimited,
)
from llm.models import LanguageModel, ModelPool, Provider
from llm.pools import choice, load
from tests.conversations.scene import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.smoke]


@pytest.fixture(autouse=True)
def _no_load():
    load.running.clear()
    load.failures.clear()


@pytest.fixture
def pool() -> ModelPool:
    pool = ModelPool.objects.create(name="fast", cooldown=30)
    for number, weight in enumerate([1, 3, 6]):
        provider = Provider.objects.create(name=f"Host {number}", kind="openai")
        provider.keys.create(secret="sk-1")
        model = provider.models.create(name="gpt")
        pool.members.create(model=model, weight=weight)
    return pool


def first_model(pool: ModelPool, affinity: str = "") -> str:
    members = list(pool.members.select_related("model__provider"))
    ordered = choice.order_members(pool, members, lambda each: each, affinity)
    return ordered[0].model.provider.name


def test_the_share_of_a_host_is_that_of_its_weight(pool: ModelPool):
    found = Counter(first_model(pool, f"conversation {n}") for n in range(3_000))
    shares = [found[f"Host {number}"] / 3_000 for number in range(3)]
    assert shares == pytest.approx([0.1, 0.3, 0.6], abs=0.03)


def test_a_host_that_leaves_moves_only_its_own_conversations(pool: ModelPool):
    names = [f"conversation {n}" for n in range(200)]
    before = {name: first_model(pool, name) for name in names}
    pool.members.filter(model__provider__name="Host 1").delete()
    for name in names:
        if before[name] != "Host 1":
            assert first_model(pool, name) == before[name]


def test_a_host_cools_down_after_failures_in_a_row_and_not_before(pool: ModelPool):
    pool.members.exclude(model__provider__name="Host 2").update(weight=1)
    best = pool.members.get(model__provider__name="Host 2")
    best.weight = 1000
    best.save()
    error = ProviderDown("Down")
    for _ in range(load.FAILURES - 1):
        load.note_end(best.model_id, error)
    load.note_end(best.model_id, None)  # an answer between them
    for _ in range(load.FAILURES - 1):
        load.note_end(best.model_id, error)
    assert not load.is_cooling(best.model_id, pool.cooldown)
    load.note_end(best.model_id, InvalidKey("No"))
    assert load.is_cooling(best.model_id, pool.cooldown)
    assert not load.is_cooling(best.model_id, 0)
    assert "Host 2" not in {first_model(pool, f"c{n}") for n in range(50)}


@pytest.mark.parametrize("source", ["own", "call"])
def test_a_refused_key_of_one_person_cools_no_host_down(pool: ModelPool, source):
    model_id = pool.members.all()[0].model_id
    for error in (InvalidKey("No"), QuotaExhausted("Empty"), RateLimited("Busy")):
        for _ in range(load.FAILURES):
            load.note_end(model_id, error, source)
    assert not load.is_cooling(model_id, pool.cooldown)
    for _ in range(load.FAILURES):
        load.note_end(model_id, ProviderDown("Down"), source)
    assert load.is_cooling(model_id, pool.cooldown)


def test_the_library_and_the_chat_find_a_host_by_the_name(pool: ModelPool):
    found = {router.resolve("fast").model_id for _ in range(50)}
    assert found <= set(pool.members.values_list("model", flat=True))
    assert len(found) > 1


def test_the_name_wins_over_a_plain_name_that_several_hosts_have(pool: ModelPool):
    with pytest.raises(ModelNotAvailable):
        router.resolve("gpt")
    ModelPool.objects.update(name="gpt")
    assert router.resolve("gpt").model == "gpt"


def test_a_user_gets_only_hosts_of_his_groups(pool: ModelPool):
    user = User.objects.create_user("ann")
    closed = Group.objects.create(name="closed")
    models = LanguageModel.objects.exclude(provider__name="Host 0")
    for model in models:
        model.groups.add(closed)
    found = {router.resolve("fast", user=user).provider_name for _ in range(20)}
    assert found == {"Host 0"}
    LanguageModel.objects.get(provider__name="Host 0").groups.add(closed)
    with pytest.raises(ModelNotAvailable):
        router.resolve("fast", user=user)


def test_a_name_that_is_an_alias_is_refused(pool: ModelPool):
    LanguageModel.objects.filter(provider__name="Host 0").update(alias="quick")
    with pytest.raises(ValidationError, match="alias"):
        ModelPool(name="quick").full_clean()
    model = LanguageModel.objects.get(provider__name="Host 1")
    model.alias = "fast"
    with pytest.raises(ValidationError, match="pool"):
        model.full_clean()
    with pytest.raises(ValidationError, match="spaces"):
        ModelPool(name="a b").full_clean()


def test_staff_see_the_hosts_and_their_state(pool: ModelPool):
    members = list(pool.members.all())
    load.running[members[0].model_id] = 2
    for _ in range(load.FAILURES):
        load.note_end(members[1].model_id, ProviderDown("Down"))
    LanguageModel.objects.filter(pk=members[2].model_id).update(enabled=False)
    root = signed_in(User.objects.create_superuser("root"))
    for path in ("", f"{pool.pk}/change/"):
        page = root.get(f"/admin/llm/modelpool/{path}").content.decode()
        assert "Host 0/gpt × 1: 2 answers running" in page
        assert "Host 1/gpt × 3: 0 answers running, cools down after failures" in page
        assert "Host 2/gpt × 6: not called: the model is switched off" in page
