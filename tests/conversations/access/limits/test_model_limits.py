"""Limits of one model, and the warnings before a limit refuses anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from conversations.access.errors import UsageLimitReached
from conversations.access.limits.admission import admit_message, find_limits_left
from conversations.access.limits.applicable import clear_cache, limits_of
from conversations.access.limits.upkeep import update_limits
from conversations.engine.database.executor import Database
from conversations.engine.metering import Meter
from conversations.models import AccessToken, LimitRaise, LimitWarning, UsageLimit
from conversations.models.access_token import NANOS_PER_DOLLAR
from llm.models import LanguageModel
from llm.provider import Route
from tests.conversations.access.test_metering import REQUEST, a_route
from tests.conversations.scene import a_model, a_user, program, signed_in, staff

pytestmark = pytest.mark.django_db(transaction=True)

NEEDED = 204  # tokens that one request reserves


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def large(ada: User) -> LanguageModel:
    a_model("small", is_default=True)
    return a_model("large", alias="big")


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    database = Database()
    yield database
    await database.close()


def limit(**fields: Any) -> UsageLimit:
    row = UsageLimit(**{"period": "month", **fields})
    row.full_clean()
    row.save()
    return row


def route_to(model: LanguageModel, **fields: Any) -> Route:
    return replace(a_route(**fields), model_id=model.pk, name=model.public_name)


async def ask(user: User, database: Database, route: Route) -> None:
    """Reserve one request. Raises UsageLimitReached."""
    limits = await database.read(limits_of, user.pk)
    meter = Meter(None, route, limits)
    meter.database = database
    await meter.admit(REQUEST, route)


async def test_a_models_limit_refuses_this_model_only(ada, large, database):
    small = await LanguageModel.objects.select_related("provider").aget(name="small")
    await database.write(lambda _: limit(user=ada, tokens=2 * NEEDED, model=large), 0)
    for _ in range(2):
        await ask(ada, database, route_to(large))
    with pytest.raises(UsageLimitReached, match=r"a month \(big\), is reached"):
        await ask(ada, database, route_to(large))
    for _ in range(3):
        await ask(ada, database, route_to(small))
    left = {e.model_name: e.left for e in await database.read(find_limits_left, ada.pk)}
    assert left == {"big": 0}


async def test_both_limits_count_and_the_narrower_refuses(ada, large, database):
    await database.write(lambda _: limit(user=ada, tokens=5 * NEEDED), 0)
    await database.write(lambda _: limit(tokens=1 * NEEDED, model=large), 0)
    await ask(ada, database, route_to(large))
    with pytest.raises(UsageLimitReached, match="big"):
        await ask(ada, database, route_to(large))
    left = {e.model_name: e.left for e in await database.read(find_limits_left, ada.pk)}
    assert left == {"": 4 * NEEDED, "big": 0}


async def test_another_models_cost_limit_asks_for_no_price(ada, large, database):
    await database.write(lambda _: limit(user=ada, cost=1, model=large), 0)
    small = await LanguageModel.objects.select_related("provider").aget(name="small")
    await ask(ada, database, route_to(small, prices={}))


def test_a_models_limit_counts_no_messages(ada, large):
    limit(user=ada, tokens=10, model=large)
    for _ in range(3):
        admit_message(ada.pk, None)
    assert [e.used for e in find_limits_left(ada.pk)] == [0]


@pytest.mark.parametrize("fields", [{"requests": 5}, {"size": 5, "cost": 1}])
def test_of_a_model_only_tokens_and_cost_are_limited(ada, large, fields):
    with pytest.raises(ValidationError, match="only tokens and cost"):
        limit(user=ada, model=large, **fields)


def test_a_subject_has_one_limit_for_each_model_and_period(ada, large):
    limit(user=ada, tokens=5)
    limit(user=ada, tokens=5, model=large)
    limit(user=ada, tokens=5, model=LanguageModel.objects.get(name="small"))
    with pytest.raises(ValidationError, match="already"):
        limit(user=ada, tokens=9, model=large)


# Raises


def grant(user: User, **fields: Any) -> LimitRaise:
    ends = timezone.now() + timedelta(hours=1)
    row = LimitRaise(user=user, reason="A long report", ends_at=ends, **fields)
    row.full_clean()
    row.save()
    return row


async def test_a_raise_of_one_model_adds_to_its_limit_alone(ada, large, database):
    await database.write(lambda _: limit(user=ada, tokens=9 * NEEDED), 0)
    await database.write(lambda _: limit(user=ada, tokens=NEEDED, model=large), 0)
    await ask(ada, database, route_to(large))
    with pytest.raises(UsageLimitReached, match="big"):
        await ask(ada, database, route_to(large))
    await database.write(lambda _: grant(ada, tokens=5 * NEEDED), 0)
    with pytest.raises(UsageLimitReached, match="big"):
        await ask(ada, database, route_to(large))
    await database.write(lambda _: grant(ada, tokens=NEEDED, model=large), 0)
    await ask(ada, database, route_to(large))
    left = {e.model_name: e.left for e in await database.read(find_limits_left, ada.pk)}
    assert left == {"": 12 * NEEDED, "big": 0}


@pytest.mark.parametrize("fields", [{"requests": 5}, {"size": 5, "cost": 1}])
def test_of_a_model_only_tokens_and_cost_are_raised(ada, large, fields):
    with pytest.raises(ValidationError, match="only tokens and cost"):
        grant(ada, model=large, **fields)


def test_staff_grant_a_raise_of_one_model(ada, large):
    limit(user=ada, cost=1, model=large)
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    ends = {"ends_at_0": "2099-01-01", "ends_at_1": "00:00"}
    form = {"user": ada.pk, "period": "month", "cost": 2, "reason": "A report", **ends}
    page = "/admin/conversations/limitraise/add/"
    assert str(large) in root.get(page).content.decode()
    assert root.post(page, {**form, "model": large.pk}).status_code == 302
    (left,) = find_limits_left(ada.pk)
    assert (left.model_name, left.limit) == ("big", 3 * NANOS_PER_DOLLAR)
    assert str(large) in root.get("/admin/conversations/limitraise/").content.decode()


# Warnings


@pytest.mark.parametrize("share", [50, 80, 100])
def test_people_are_warned_at_the_share_that_staff_chose(ada, large, share):
    limit(user=ada, requests=10, warn_at=share)
    client = signed_in(ada)
    for number in range(10):
        used = 10 * number
        page = client.get("/settings/limits/").content.decode()
        assert (f"{used} % of this limit are used" in page) is (used >= share), used
        admit_message(ada.pk, None)
    assert "This limit is reached." in client.get("/settings/limits/").content.decode()


def test_programs_read_the_share_from_which_to_warn(ada, large):
    limit(user=ada, cost=Decimal(2), warn_at=25, model=large)
    (found,) = program(ada).get("/api/limits/").json()["results"]
    figures = (found["percent"], found["warn_at"], found["is_scarce"], found["model"])
    assert figures == (0, 25, False, "big")


def test_a_users_own_share_comes_before_the_default(ada, large):
    limit(requests=10, warn_at=50)
    assert find_limits_left(ada.pk)[0].warn_at == 50
    limit(user=ada, requests=10, warn_at=90)
    clear_cache()
    assert find_limits_left(ada.pk)[0].warn_at == 90


def test_staff_see_each_warning_once_in_the_list_of_limits(ada, large):
    limit(user=ada, requests=10, warn_at=70)
    for _ in range(9):
        admit_message(ada.pk, None)
        update_limits()
    (row,) = LimitWarning.objects.all()
    assert (row.measure, row.amount, row.percent) == ("requests", 10, 70)
    admit_message(ada.pk, None)
    update_limits()
    assert [row.percent for row in LimitWarning.objects.all()] == [100, 70]
    client = signed_in(staff("bill", "view_usagelimit"))
    page = client.get("/admin/conversations/usagelimit/").content.decode()
    assert "Nearly used up in this period" in page
    assert "70 % used" in page
    assert ">reached<" in page


def test_a_limit_of_a_token_warns_of_the_token(ada, large):
    token, _ = AccessToken.issue(ada, "robot")
    limit(token=token, requests=1)
    admit_message(ada.pk, token)
    update_limits()
    assert LimitWarning.objects.get().balance.token == token
