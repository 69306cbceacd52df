"""Models taken over from providers' lists, with what the provider would answer in
place of the call."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from conversations.audit.models import AuditEvent, AuditText
from conversations.engine.maintenance import model_sync as model_updates
from conversations.engine.maintenance.model_sync import sync_models
from llm.errors import BadResponse, ProviderDown
from llm.models import LanguageModel, ModelPrice, Provider
from llm.sync import model_list
from llm.wire.model_lists import ModelInfo

pytestmark = pytest.mark.django_db

EARLIER = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def listed(monkeypatch):
    """By the provider's name: what its list has, or why it cannot be had."""
    lists: dict[str, list[ModelInfo] | Exception] = {}

    def respond(provider):
        answer = lists[provider.name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(model_list, "_ask", respond)
    return lists


def a_provider(name: str, **fields) -> Provider:
    return Provider.objects.create(name=name, kind="groq", **fields)


def synced() -> Counter[str]:
    return sum(sync_models(), Counter())


def test_new_models_are_added_switched_off(listed):
    a_provider("One")
    listed["One"] = [ModelInfo(id="new-1")]
    assert synced() == Counter(added=1)
    assert not LanguageModel.objects.get(name="new-1").enabled
    assert synced() == Counter()


def test_a_delisted_model_is_reported_and_remains(listed, caplog):
    deleted = LanguageModel.objects.create(provider=a_provider("One"), name="old-1")
    listed["One"] = [ModelInfo(id="new-1")]
    with caplog.at_level(logging.WARNING, model_updates.__name__):
        assert synced() == Counter(added=1)
    deleted.refresh_from_db()
    assert deleted.enabled
    assert "One does not list 1 models" in caplog.text


def test_an_unreachable_provider_stops_no_other(listed):
    a_provider("One")
    a_provider("Two")
    a_provider("Off", enabled=False)  # it gets no request
    listed["One"] = ProviderDown()
    listed["Two"] = [ModelInfo(id="new-2")]
    assert synced() == Counter(added=1)


def test_what_staff_have_set_is_left_and_counted(listed, caplog):
    negotiated = {"input": 1, "output": 2}
    provider = a_provider("One")
    provider.models.create(name="a", context_window=9, prices=negotiated)
    dated = provider.models.create(name="b")
    dated.dated_prices.create(valid_from=datetime(2020, 1, 1, tzinfo=UTC), **negotiated)
    prices = {"input": Decimal(5), "output": Decimal(6)}
    listed["One"] = [
        ModelInfo(id=name, context_window=100, max_output_tokens=7, prices=prices)
        for name in "ab"
    ]
    with caplog.at_level(logging.INFO, model_updates.__name__):
        assert synced() == Counter(changed=2)
    limits = LanguageModel.objects.values_list("context_window", "max_output_tokens")
    assert list(limits.order_by("name")) == [(9, 7), (100, 7)]
    assert ModelPrice.objects.count() == 1
    assert "stored values of 2 models differ from the list" in caplog.text


def test_a_price_that_a_sync_has_stored_follows_the_list(listed):
    a_provider("One").models.create(name="a")
    for price in (5, 6):
        stated = {"input": Decimal(price), "output": Decimal(price)}
        listed["One"] = [ModelInfo(id="a", prices=stated)]
        assert synced() == Counter(changed=1)
    assert ModelPrice.objects.count() == 2


@pytest.mark.parametrize(
    ("known", "stated", "follows"),
    [
        ((1, 2), (2, 3), True),
        ((1, 2), (1, 50), False),  # a unit too large
        ((1, 2), (Decimal("0.01"), 1), False),
        ((1, 2), (0, 0), False),  # no price
        ((0, 0), (1, 2), True),
        (None, (0, 0), False),
        (None, (1, 2), True),
    ],
)
def test_a_price_that_may_be_a_mistake_waits_for_staff(listed, known, stated, follows):
    row = a_provider("One").models.create(name="a")
    if known:
        price = dict(zip(("input", "output"), known, strict=True))
        row.dated_prices.create(valid_from=EARLIER, is_listed=True, **price)
    prices = {"input": Decimal(stated[0]), "output": Decimal(stated[1])}
    listed["One"] = [ModelInfo(id="a", prices=prices)]
    assert synced() == (Counter(changed=1) if follows else Counter())


@pytest.mark.parametrize("name", ["cached_input", "cache_write"])
@pytest.mark.parametrize(
    ("known", "stated", "follows"),
    [
        ("0.2", "0.3", True),
        ("0.2", "0", False),
        ("0.2", "200", False),
        ("0", "0", True),
        (None, "0.2", True),
        (None, "0", False),
    ],
)
def test_a_price_of_caches_that_may_be_a_mistake_waits_alone(
    listed, name: str, known: str | None, stated: str, follows: bool
):
    row = a_provider("One").models.create(name="a")
    row.dated_prices.create(
        input=2,
        output=10,
        valid_from=EARLIER,
        is_listed=True,
        **({name: Decimal(known)} if known else {}),
    )
    prices = {"input": Decimal(3), "output": Decimal(10), name: Decimal(stated)}
    listed["One"] = [ModelInfo(id="a", prices=prices)]
    assert synced() == Counter(changed=1)
    stored = row.dated_prices.latest("pk")
    assert stored.input == 3
    expected = stated if follows else known
    assert getattr(stored, name) == (Decimal(expected) if expected else None)
    assert synced() == Counter()  # what waits is not stored again each day
    waiting = model_list.compare(row.provider).changed
    lines = " ".join(line for change in waiting for line in change.lines)
    assert ("leaves the price of" in lines) != follows


def test_a_price_of_a_list_does_not_end_prices_of_long_prompts(listed):
    provider = Provider.objects.create(name="One", kind="openrouter")
    row = provider.models.create(name="google/gemini-2.5-pro")
    prices = {"input": Decimal(1), "output": Decimal(9)}
    listed["One"] = [ModelInfo(id=row.name, prices=prices)]
    assert synced() == Counter()
    [change] = model_list.compare(provider).changed
    assert change.lines[-1].startswith("bundled prices of long prompts")


def test_a_retirement_in_the_past_waits_for_staff(listed):
    row = a_provider("One").models.create(name="a")
    listed["One"] = [ModelInfo(id="a", retires_at=EARLIER)]
    assert synced() == Counter()
    row.refresh_from_db()
    assert row.retires_at is None


@pytest.mark.parametrize(
    ("name", "listed_as"),
    [
        ("claude-sonnet-4-0", "claude-sonnet-4-20250514"),
        ("claude-opus-4-1", "claude-opus-4-1-20250805"),
        ("mistral-large-latest", "mistral-large-2411"),
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("llama3", "llama3:latest"),
        ("openai/gpt-5:online", "openai/gpt-5"),
    ],
)
def test_another_name_of_a_listed_model_is_not_gone(listed, name, listed_as):
    provider = a_provider("One")
    provider.models.create(name=name)
    listed["One"] = [ModelInfo(id=listed_as)]
    assert not model_list.compare(provider).gone


@pytest.mark.parametrize(
    ("name", "listed_as"), [("a:free", "a"), ("gpt-5", "gpt-5-pro"), ("a-0", "a")]
)
def test_a_model_is_gone_although_a_similar_one_is_listed(listed, name, listed_as):
    provider = a_provider("One")
    provider.models.create(name=name)
    listed["One"] = [ModelInfo(id=listed_as)]
    assert [row.name for row in model_list.compare(provider).gone] == [name]


def test_both_spellings_of_a_name_are_compared(listed):
    provider = a_provider("One")
    for name in ("a", "models/a"):
        provider.models.create(name=name)
    listed["One"] = [ModelInfo(id="models/a", context_window=9)]
    assert len(model_list.compare(provider).changed) == 2


def test_an_empty_list_is_no_reason_to_switch_off_all_models(listed):
    provider = a_provider("One")
    provider.models.create(name="a")
    listed["One"] = []
    with pytest.raises(BadResponse, match="list of models is empty"):
        model_list.compare(provider)
    assert synced() == Counter()


def test_a_sync_is_one_event_that_names_the_models(listed):
    a_provider("One")
    listed["One"] = [ModelInfo(id="new-1"), ModelInfo(id="new-2")]
    synced()
    event = AuditEvent.objects.get(action="config.change")
    assert event.target_type == "llm.provider"
    rows = json.loads(AuditText.objects.get(pk=event.pk).details)["rows"].values()
    assert {row["after"]["name"] for row in rows} == {"new-1", "new-2"}


def entry(window: int, price: int, day: int) -> ModelInfo:
    return ModelInfo(
        id="a",
        context_window=window,
        capabilities={"vision": window > 100},
        prices={"input": Decimal(price), "output": Decimal(price)},
        retires_at=datetime(2031, 5, day, tzinfo=UTC),
    )


def stored() -> tuple[int | None, Any, int, datetime | None]:
    row = LanguageModel.objects.get()
    price = row.dated_prices.first()
    assert price is not None
    vision = row.capabilities.get("vision")
    return row.context_window, vision, int(price.input or 0), row.retires_at


def test_what_a_sync_has_stored_follows_the_list(listed):
    a_provider("One")
    listed["One"] = [entry(100, 5, 1)]
    assert synced() == Counter(added=1)
    assert synced() == Counter()
    listed["One"] = [entry(200, 6, 2)]
    assert synced() == Counter(changed=1)
    assert stored() == (200, True, 6, datetime(2031, 5, 2, tzinfo=UTC))
    assert synced() == Counter()


def test_a_retirement_that_the_list_withdraws_ends(listed):
    provider = a_provider("One")
    listed["One"] = [entry(100, 5, 1)]
    synced()
    listed["One"] = [replace(entry(100, 5, 1), retires_at=None)]
    [change] = model_list.compare(provider).changed
    assert change.lines == ["retired from: 2031-05-01 → unknown"]
    assert synced() == Counter(changed=1)
    assert stored() == (100, False, 5, None)
    assert synced() == Counter()
    listed["One"] = [entry(100, 5, 2)]  # announced anew
    assert synced() == Counter(changed=1)
    LanguageModel.objects.update(retires_at=EARLIER)  # by staff
    listed["One"] = [replace(entry(100, 5, 1), retires_at=None)]
    assert synced() == Counter()
    assert stored()[-1] == EARLIER


def test_what_staff_have_taken_from_the_list_follows_it(listed, admin_user):
    provider = a_provider("One")
    provider.models.create(name="a", context_window=9)
    listed["One"] = [entry(100, 5, 1)]
    found = model_list.compare(provider)
    model_list.apply(provider, found, changed=["a"], user=admin_user)
    listed["One"] = [entry(200, 6, 2)]
    assert synced() == Counter(changed=1)
    assert stored() == (200, True, 6, datetime(2031, 5, 2, tzinfo=UTC))


def test_what_staff_have_changed_after_a_sync_stays(listed, admin_user):
    a_provider("One")
    listed["One"] = [entry(100, 5, 1)]
    synced()
    row = LanguageModel.objects.get()
    day = datetime(2032, 1, 1, tzinfo=UTC)
    row.override(["vision", "context_window"], {"vision": False, "context_window": 7})
    row.override(["vision"], {"vision": True})
    row.override(["vision"], {"vision": False})  # the list's value, but of staff
    row.retires_at = day
    row.save()
    row.dated_prices.create(input=1, output=1, added_by=admin_user)
    for number in (2, 3):
        listed["One"] = [entry(100 * number, 4 + number, number)]
        assert synced() == Counter()
    assert stored() == (7, False, 1, day)


def test_a_value_that_staff_have_returned_to_its_default_is_taken_anew(listed):
    a_provider("One")
    listed["One"] = [entry(100, 5, 1)]
    synced()
    row = LanguageModel.objects.get()
    row.override(["context_window"], {})
    row.save()
    assert synced() == Counter(changed=1)
    assert stored()[0] == 100


def test_what_a_probe_has_found_is_not_overridden_by_the_list(listed):
    model = a_provider("One").models.create(name="a")
    LanguageModel.objects.update(
        probed_capabilities={"vision": False}, probed_target=model.probe_target
    )
    listed["One"] = [ModelInfo(id="a", capabilities={"vision": True})]
    assert synced() == Counter()
    Provider.objects.update(base_url="https://else.example/v1")
    assert synced() == Counter(changed=1)
