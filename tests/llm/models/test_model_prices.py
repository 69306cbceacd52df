"""Prices with a date: which one a call costs, their history, and who may enter them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from llm import router
from llm.http.client import ProviderCall
from llm.models import LanguageModel, ModelCall, ModelPrice, Provider
from llm.pricing.cost import prices_at
from llm.wire.deltas import FinishDelta, StartDelta, UsageDelta

pytestmark = pytest.mark.django_db

MILLION = UsageDelta(1_000_000, 0)
LISTED = "gpt-4.1-mini"  # the bundled list has it


@pytest.fixture
def model() -> LanguageModel:
    provider = Provider.objects.create(name="OpenAI", kind="openai")
    provider.keys.create(secret="sk-1")
    return provider.models.create(name=LISTED)


def call(model: LanguageModel) -> Decimal | None:
    """The cost of a call with a million input tokens, made now."""
    route = router.route_of(LanguageModel.objects.get(pk=model.pk))
    start, end = StartDelta("id", LISTED), FinishDelta("stop")
    made = ModelCall.objects.record(
        ProviderCall(), route, start=start, usage=MILLION, finish=end
    )
    return ModelCall.objects.get(pk=made.pk).cost


def hours(count: float) -> Any:
    return timezone.now() + timedelta(hours=count)


def priced(model: LanguageModel, price: int | None, begins: float) -> ModelPrice:
    return ModelPrice.objects.create(
        model=model, valid_from=hours(begins), input=price, output=price
    )


def test_the_newest_price_that_has_begun_counts_and_rows_of_calls_stay(model):
    bundled = call(model)
    assert bundled
    priced(model, 3, -2)
    assert call(model) == 3
    priced(model, 5, -1)
    priced(model, 7, +1)
    assert call(model) == 5
    costs = [row.cost for row in ModelCall.objects.order_by("pk")]
    assert costs == [bundled, 3, 5]


def test_a_price_begins_by_itself_on_a_route_that_is_in_use(model):
    priced(model, 3, -1)
    priced(model, 9, +1)
    route = router.route_of(LanguageModel.objects.get())
    now = prices_at(route.prices, route.price_schedule, timezone.now())
    later = prices_at(route.prices, route.price_schedule, hours(2))
    assert (now["input"], later["input"]) == (3, 9)


def test_an_undated_price_counts_until_the_first_dated_one(model):
    LanguageModel.objects.update(prices={"input": 1, "output": 1})
    later = priced(model, 9, +1)
    assert call(model) == 1
    later.valid_from = hours(-1)
    later.save()
    assert call(model) == 9


def test_a_price_without_values_returns_to_the_bundled_list(model):
    bundled = call(model)
    priced(model, 3, -2)
    priced(model, None, -1)
    assert call(model) == bundled


def test_searches_and_tiers_have_prices_from_their_day_on(model):
    priced(model, 3, -2)
    more: dict[str, Any] = {"web_search": 10, "tiers": {"flex": 0.5}}
    row = ModelPrice(model=model, valid_from=hours(-1), input=4, output=4, **more)
    row.full_clean()
    row.save()
    route = router.route_of(LanguageModel.objects.get())
    usage = UsageDelta(1_000_000, 0, tier="flex", web_searches=100)
    made = ModelCall.of(ProviderCall(), route, usage=usage, finish=FinishDelta("stop"))
    assert (made.cost, made.is_estimated) == (3, False)
    first = prices_at(route.prices, route.price_schedule, hours(-1.5))
    assert first == {"input": 3, "output": 3}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tiers": {"flex": 0.5}}, "Enter the prices of input and output"),
        ({"web_search": 1}, "Enter the prices of input and output"),
        ({"input": 1, "output": 1, "tiers": [1]}, "must be factors by tier"),
        ({"input": 1, "output": 1, "tiers": {"flex": -1}}, "must be a factor of"),
    ],
)
def test_wrong_prices_of_tiers_are_refused(model, values: dict[str, Any], problem: str):
    with pytest.raises(ValidationError, match=problem):
        ModelPrice(model=model, **values).full_clean()


def test_a_deleted_future_price_never_begins(model):
    priced(model, 9, +1).delete()
    assert LanguageModel.objects.get().price_schedule == []


def test_prices_with_dates_add_no_query_to_a_route(model):
    router.resolve(LISTED)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            router.resolve(LISTED)
        return len(queries)

    before = count()
    for number in range(3):
        priced(model, number, -number)
    assert count() == before


# The page


def page(model: LanguageModel) -> str:
    return reverse("admin:llm_languagemodel_change", args=[model.pk])


def form(model: LanguageModel, *rows: dict[str, Any]) -> dict[str, Any]:
    """The page's form with these rows of prices, the stored ones first."""
    stored = [row for row in rows if "id" in row]
    fields = {
        "provider": model.provider_id,
        "name": model.name,
        "enabled": "on",
        "dated_prices-TOTAL_FORMS": len(rows),
        "dated_prices-INITIAL_FORMS": len(stored),
    }
    for number, row in enumerate(rows):
        named = {f"dated_prices-{number}-{name}": row[name] for name in row}
        fields |= named | {f"dated_prices-{number}-model": model.pk}
    return fields


def at(moment: Any) -> dict[str, str]:
    local = timezone.localtime(moment)
    return {"valid_from_0": f"{local:%Y-%m-%d}", "valid_from_1": f"{local:%H:%M:%S}"}


@pytest.mark.parametrize("may_price", [False, True])
def test_who_may_add_no_price_sets_none_on_the_page(client, model, may_price: bool):
    rights = ["view_languagemodel", "change_languagemodel"]
    user = User.objects.create(username="olga", is_staff=True)
    rights += ["add_modelprice"] * may_price
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client.force_login(user)
    fields = form(model) | {"prices": '{"input": 0, "output": 0}', "label": "New"}
    assert client.post(page(model), fields).status_code == 302
    model.refresh_from_db()
    assert model.label == "New"
    assert bool(model.prices) is may_price


def test_a_price_is_entered_for_now_or_later_and_names_who_did(admin_client, model):
    rows = {"input": "2.5", "output": "10"}, at(hours(24)) | {"input": 1, "output": 2}
    assert admin_client.post(page(model), form(model, *rows)).status_code == 302
    later, now = ModelPrice.objects.all()
    assert now.valid_from <= timezone.now() < later.valid_from
    assert now.added_by == User.objects.get()
    assert call(model) == Decimal("2.5")
    shown = admin_client.get(page(model)).text
    assert "input 2.5, output 10 (set by staff, since " in shown


def test_prices_of_searches_and_tiers_are_entered_and_shown(admin_client, model):
    later = at(hours(24)) | {"input": 1, "output": 2, "tiers": "{}"}
    now = {"input": "2.5", "output": "10", "web_search": 5, "tiers": '{"flex": 0.5}'}
    assert admin_client.post(page(model), form(model, now, later)).status_code == 302
    new, old = ModelPrice.objects.all()
    assert old.values == {
        "input": 2.5,
        "output": 10,
        "web_search": 5,
        "tiers": {"flex": 0.5},
    }
    assert new.values == {"input": 1, "output": 2}
    shown = admin_client.get(page(model)).text
    assert "output 10; per 1,000 searches: web searches 5; " in shown
    assert "service tiers: flex × 0.5 (set by staff, since " in shown
    # Saving the page again changes nothing.
    rows = [
        {"id": row.pk, "input": row.input, "output": row.output} for row in (new, old)
    ]
    rows[0] |= at(new.valid_from) | {"tiers": "{}"}
    admin_client.post(page(model), form(model, *rows))
    assert [row.values for row in ModelPrice.objects.all()] == [new.values, old.values]


def test_the_page_says_where_the_price_comes_from(admin_client, model):
    assert "(bundled price list)" in admin_client.get(page(model)).text
    LanguageModel.objects.update(prices={"input": 1, "output": 1})
    assert "(set by staff, without a date)" in admin_client.get(page(model)).text
    LanguageModel.objects.update(prices={}, name="nobody-lists-this")
    assert "Unknown; costs of calls" in admin_client.get(page(model)).text


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (at(timezone.now() - timedelta(days=2)) | {"input": 1}, "now or later"),
        ({"input": 1}, "Enter the prices of input and output"),
        ({"input": -1, "output": 1}, "greater than or equal to 0"),
        ({"input": "1e9", "output": 1}, "digits before the decimal point"),
        ({"input": "NaN", "output": 1}, "Enter a number"),
        ({"input": 1, "output": 1, "tiers": '{"flex": "x"}'}, "must be a factor of"),
        ({"input": 1, "output": 1, "tiers": "[1]"}, "object"),
        ({"valid_from_0": "x", "input": 1, "output": 1}, "Enter a valid date"),
    ],
)
def test_wrong_prices_are_explained_and_not_stored(admin_client, model, row, shown):
    answer = admin_client.post(page(model), form(model, row))
    assert answer.status_code == 200
    assert shown in answer.text
    assert not ModelPrice.objects.exists()


def test_a_price_in_effect_can_neither_be_changed_nor_deleted(admin_client, model):
    begun, later = priced(model, 3, -1), priced(model, 9, +24)
    changed = at(hours(48)) | {"input": 1, "output": 1}
    rows = [{"id": row.pk, **changed, "DELETE": "on"} for row in (later, begun)]
    admin_client.post(page(model), form(model, *rows))
    assert ModelPrice.objects.get() == begun
    assert (ModelPrice.objects.get().input, call(model)) == (3, 3)


def test_staff_without_the_right_see_prices_and_enter_none(model):
    priced(model, 3, -1)
    user = User.objects.create_user("few-rights", is_staff=True)
    rights = "change_languagemodel", "view_languagemodel", "view_modelprice"
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client = Client()
    client.force_login(user)
    assert "3.000000" in client.get(page(model)).text
    client.post(page(model), form(model, {"input": 1, "output": 1}))
    assert ModelPrice.objects.count() == 1
