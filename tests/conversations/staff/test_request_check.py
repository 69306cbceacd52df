"""*Would this request pass?* answers as the entry points do, and charges nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access import budget, maintenance, rate_limits
from conversations.access.errors import BudgetExhausted, UsageLimitReached
from conversations.access.limits.admission import reserve
from conversations.access.limits.amounts import Amounts
from conversations.access.limits.applicable import clear_cache, limits_of
from conversations.access.limits.leases import leases
from conversations.access.limits.upkeep import return_leases
from conversations.access.maintenance import Notice
from conversations.models import AccessToken, Conversation
from conversations.models.access_token import Scope
from conversations.models.ledger import Balance, LedgerEntry, entry_id
from conversations.models.limits.usage_limit import UsageLimit
from conversations.staff.request_check import (
    ImaginedRequest,
    RequestReport,
    check_request,
)
from llm.models import LanguageModel, Provider
from tests.conversations.scene import a_user, signed_in, staff

pytestmark = pytest.mark.django_db
PAGE = reverse("admin:request_check")
HERE = "192.0.2.7"
PRICES = {"input": 1, "output": 1}


@pytest.fixture(autouse=True)
def reset(db: None):
    """Without leases of this process, cached limits and maintenance."""
    return_leases()
    clear_cache()
    yield
    return_leases()
    clear_cache()
    maintenance.note(Notice())


@pytest.fixture
def ada() -> User:
    return a_user("ada")


def a_model(name: str, **fields: Any) -> LanguageModel:
    host = {"kind": "openai_compatible", "base_url": "https://models.example/v1"}
    provider, is_new = Provider.objects.get_or_create(name="Test", defaults=host)
    if is_new:
        provider.keys.create(secret="sk-planted-0123456789")
    return LanguageModel.objects.create(provider=provider, name=name, **fields)


@pytest.fixture
def model() -> LanguageModel:
    return a_model("m-1", is_default=True, prices=PRICES)


def issue(user: User, **fields: Any) -> tuple[AccessToken, str]:
    return AccessToken.issue(user, "ci", **{"scopes": Scope.values, **fields})


def imagined(user: User, token: AccessToken | None = None, **fields: Any) -> Any:
    usual: dict[str, Any] = {
        "entry_point": "rest" if token else "page",
        "model": "",
        "prompt_tokens": 100,
        "max_output_tokens": 100,
        "address": HERE,
    }
    return ImaginedRequest(user=user, token=token, **{**usual, **fields})


def refusals(report: RequestReport) -> list[str]:
    return [each.name for each in report.checks if each.outcome == "refuses"]


def the_door_opens(secret: str, chat: Conversation, address: str = HERE) -> bool:
    """Whether a message over REST is accepted now."""
    client = Client(headers={"Authorization": f"Bearer {secret}"}, REMOTE_ADDR=address)
    url = f"/api/conversations/{chat.pk}/turns/"
    answer = client.post(url, {"input": "Hi"}, content_type="application/json")
    return answer.status_code < 300


def _nothing(token: AccessToken, model: LanguageModel) -> None:
    pass


def _revoke(token: AccessToken, model: LanguageModel) -> None:
    token.revoke()


def _expire(token: AccessToken, model: LanguageModel) -> None:
    token.expires_at = timezone.now()
    token.save()


def _deactivate(token: AccessToken, model: LanguageModel) -> None:
    User.objects.filter(pk=token.user_id).update(is_active=False)
    token.user.refresh_from_db()


def _narrow_scope(token: AccessToken, model: LanguageModel) -> None:
    token.scopes = [Scope.GATEWAY.value]
    token.save()


def _narrow_address(token: AccessToken, model: LanguageModel) -> None:
    token.networks = ["198.51.100.0/24"]
    token.save()


def _restrict_model(token: AccessToken, model: LanguageModel) -> None:
    model.groups.add(Group.objects.create(name="board"))


def _switch_off(token: AccessToken, model: LanguageModel) -> None:
    LanguageModel.objects.filter(pk=model.pk).update(enabled=False)


def _allow_another(token: AccessToken, model: LanguageModel) -> None:
    token.allowed_models.set([a_model("m-2")])


def _use_up_requests(token: AccessToken, model: LanguageModel) -> None:
    token.requests_per_minute = 1
    token.save()
    owner, requests, _tokens = _charges(token)
    rate_limits.take(owner, requests)


def _use_up_tokens(token: AccessToken, model: LanguageModel) -> None:
    token.tokens_per_minute = 1000
    token.save()
    owner, _requests, (tokens,) = _charges(token)
    rate_limits.take(owner, [rate_limits.Charge("tokens", tokens.limit, 1000)])


def _charges(token: AccessToken) -> Any:
    from conversations.access.admission import charges_of_request

    return charges_of_request(token.user, token, 100)


def _spend_all(token: AccessToken, model: LanguageModel) -> None:
    token.budget = "0.01"
    token.save()
    token.refresh_from_db()
    Balance.objects.create(token=token, period=token.period(), spent=10_000_000)


def _maintain(token: AccessToken, model: LanguageModel) -> None:
    maintenance.note(Notice(refuses_messages=True))


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (_nothing, []),
        (_revoke, ["Access token"]),
        (_expire, ["Access token"]),
        (_deactivate, ["User"]),
        (_narrow_scope, ["Scope"]),
        (_narrow_address, ["Address"]),
        (_restrict_model, ["Model"]),
        (_switch_off, ["Model"]),
        (_allow_another, ["Models of the token"]),
        (_use_up_requests, ["Requests a minute"]),
        (_use_up_tokens, ["Tokens a minute"]),
        (_spend_all, ["Budget"]),
        (_maintain, ["Maintenance"]),
    ],
)
def test_the_page_refuses_what_the_door_refuses(
    ada: User,
    model: LanguageModel,
    change: Callable[[AccessToken, LanguageModel], None],
    refused: list[str],
):
    chat = Conversation.objects.create(owner=ada)
    token, secret = issue(ada)
    change(token, model)
    token = AccessToken.objects.select_related("user").get(pk=token.pk)
    report = check_request(imagined(token.user, token))
    assert refusals(report) == refused
    assert the_door_opens(secret, chat) == report.passes


@pytest.mark.parametrize("tokens", [0, 1, 449, 450, 451, 100_000])
def test_a_budget_decides_as_its_reservation_does(
    ada: User, model: LanguageModel, tokens: int
):
    token, _secret = issue(ada, budget="0.001")
    token.refresh_from_db()
    report = check_request(imagined(ada, token, prompt_tokens=tokens))
    found = next(each for each in report.checks if each.name == "Budget")
    # A USD for a million tokens: 1,000 billionths each; the prompt counts twice.
    amount = 1000 * (2 * tokens + 100)
    try:
        budget.reserve(entry_id(), token.pk, amount)
    except BudgetExhausted:
        assert found.outcome == "refuses"
    else:
        assert found.outcome == "passes"
    assert f"${amount / 10**9:,.6f}" in found.text


@pytest.mark.parametrize("tokens", [0, 875, 876, 877, 30_000])
@pytest.mark.parametrize("of", ["user", "everybody", "token"])
def test_a_limit_of_tokens_decides_as_its_reservation_does(
    ada: User, model: LanguageModel, tokens: int, of: str
):
    token, _secret = issue(ada)
    token.refresh_from_db()
    whose = {"user": {"user": ada}, "token": {"token": token}, "everybody": {}}[of]
    UsageLimit.objects.create(period="day", tokens=1900, **whose)
    wanted = imagined(ada, token, prompt_tokens=tokens, max_output_tokens=None)
    report = check_request(wanted)
    found = next(each for each in report.checks if each.name.startswith("Limit"))
    try:
        found_room = reserve(limits_of(ada.pk, token.pk), Amounts(tokens=tokens + 1024))
    except UsageLimitReached:
        assert found.outcome == "refuses"
    else:
        leases.settle(found_room, Amounts())
        assert found.outcome == "passes"
    assert "1,900 tokens left of 1,900 tokens a day" in found.text


def test_limits_of_messages_and_cost_are_tried(ada: User, model: LanguageModel):
    UsageLimit.objects.create(period="day", user=ada, requests=0)
    UsageLimit.objects.create(period="month", user=ada, cost="0.000299")
    # 200 tokens of a prompt, counted twice, and 100 of the answer, at 1 USD a million.
    refused = refusals(check_request(imagined(ada)))
    assert refused == ["Limit a day (your own)", "Limit a month (your own)"]
    LanguageModel.objects.update(prices={})
    report = check_request(imagined(ada))
    assert "price" in next(c.text for c in report.checks if "a month" in c.name)
    UsageLimit.objects.all().delete()
    assert check_request(imagined(ada)).passes


def test_a_model_without_a_price_is_refused_where_there_is_a_budget(ada: User):
    a_model("m-1", is_default=True)
    token, _secret = issue(ada, budget="1")
    token.refresh_from_db()
    assert refusals(check_request(imagined(ada, token))) == ["Budget"]
    assert check_request(imagined(ada)).passes


def test_fallbacks_are_named_that_the_token_may_use(ada: User, model: LanguageModel):
    for name in ("m-2", "m-3"):
        model.fallbacks.add(a_model(name))
    token, _secret = issue(ada)
    token.allowed_models.set(LanguageModel.objects.exclude(name="m-2"))
    assert check_request(imagined(ada)).models == ["Test/m-1", "Test/m-2", "Test/m-3"]
    token = AccessToken.objects.get(pk=token.pk)
    assert check_request(imagined(ada, token)).models == ["Test/m-1", "Test/m-3"]


def test_looking_takes_nothing(ada: User, model: LanguageModel, settings: Any):
    settings.USER_REQUESTS_PER_MINUTE = 5
    settings.USER_TOKENS_PER_MINUTE = 1000
    root = signed_in(User.objects.create_superuser("root"))
    token, _secret = issue(ada, budget="1", requests_per_minute=3)
    query = {"user": "ada", "entry_point": "page", "prompt_tokens": 100}
    for _ in range(8):
        page = root.get(PAGE, query)
        assert "It would pass" in page.text
        assert "5 of 5 requests are left" in page.text
    with_token = {**query, "entry_point": "gateway", "token": token.pk}
    for _ in range(4):
        assert "3 of 3 requests are left" in root.get(PAGE, with_token).text
    assert not LedgerEntry.objects.exists()
    assert not Balance.objects.exists()


def test_staff_see_no_tokens_but_those_of_their_list(ada: User, model: LanguageModel):
    token, _secret = issue(ada)
    query = {
        "user": "ada",
        "entry_point": "rest",
        "prompt_tokens": 1,
        "token": token.pk,
    }
    clerk = signed_in(staff("clerk", "view_user", "view_usage"))
    answer = clerk.get(PAGE, query)
    assert answer.status_code == 400
    assert token.label not in answer.text.partition('id="content"')[2]
    for permission in ("view_user", "view_usage"):
        few = signed_in(staff(f"only-{permission}", permission))
        assert few.get(PAGE).status_code == 403


@pytest.mark.parametrize(
    "query",
    [
        {"user": "nobody"},
        {"prompt_tokens": "-1"},
        {"prompt_tokens": 10**12},
        {"entry_point": "window"},
        {"token": "x" * 400},
        {"model": "m" * 400},
    ],
)
def test_wrong_values_are_named(query: dict[str, Any]):
    root = signed_in(User.objects.create_superuser("root"))
    usual = {"user": "root", "entry_point": "page", "prompt_tokens": 1}
    answer = root.get(PAGE, {**usual, **query})
    assert answer.status_code == 400
    assert "errorlist" in answer.text


def test_an_unknown_model_is_answered_and_stays_text(model: LanguageModel):
    root = signed_in(User.objects.create_superuser("root"))
    usual = {"user": "root", "entry_point": "page", "prompt_tokens": 1}
    page = root.get(PAGE, {**usual, "model": "<script>x</script>"}).text
    assert "It would be refused" in page
    assert "<script>x" not in page
