"""Endpoints are told once of limits and budgets that are scarce or used up."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from conversations.access import budget
from conversations.access.errors import BudgetExhausted, UsageLimitReached
from conversations.access.limits.admission import admit_message
from conversations.access.limits.applicable import clear_cache
from conversations.access.limits.leases import leases
from conversations.access.limits.upkeep import return_leases, update_limits
from conversations.engine.loading.turn_loader import ClaimAttempt, open_and_claim
from conversations.models import (
    AccessToken,
    Conversation,
    Delivery,
    Turn,
    UsageLimit,
)
from conversations.streaming.conversation_access import ConversationAccess
from tests.conversations.page_scene import page_of
from tests.conversations.scene import (
    a_finished_turn,
    a_user,
    bearer,
    program,
    signed_in,
)

pytestmark = pytest.mark.django_db(transaction=True)

JSON = "application/json"


@pytest.fixture(autouse=True)
def no_leases():
    clear_cache()
    yield
    leases.flush(returns_all=True)
    clear_cache()


def told() -> list[tuple[str, str]]:
    rows = Delivery.objects.order_by("pk")
    return [(row.type, row.data["measure"]) for row in rows]


def use(user, messages: int) -> None:
    for _ in range(messages):
        admit_message(user.pk, None)
    update_limits()


def test_a_user_is_warned_at_four_fifths_once(make_endpoint):
    ada = a_user("ada")
    make_endpoint(owner=ada)
    UsageLimit.objects.create(user=ada, requests=10, period="day")
    use(ada, 7)
    assert not told()
    use(ada, 1)
    use(ada, 1)
    assert told() == [("parley.limit.warning", "requests")]
    data = Delivery.objects.get().data
    assert (data["kind"], data["limit"], data["user"]) == ("user", 10, ada.pk)


def test_a_limit_that_is_reached_is_told_once(make_endpoint):
    ada = a_user("ada")
    make_endpoint(events=["parley.limit.reached"])
    UsageLimit.objects.create(user=ada, requests=1, period="day")
    use(ada, 1)
    for _ in range(3):
        with pytest.raises(UsageLimitReached):
            admit_message(ada.pk, None)
    assert told() == [("parley.limit.reached", "requests")]


def test_a_limit_with_another_amount_is_told_again(make_endpoint):
    ada = a_user("ada")
    make_endpoint(events=["parley.limit.reached"])
    limit = UsageLimit.objects.create(user=ada, requests=0, period="day")
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None)
    limit.requests = 1
    limit.save()
    use(ada, 1)
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None)
    assert len(told()) == 2


def test_of_limits_of_others_a_user_is_told_nothing(make_endpoint):
    ada = a_user("ada")
    make_endpoint(owner=a_user("bob"))
    UsageLimit.objects.create(user=ada, requests=0, period="day")
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None)
    assert not told()


def test_what_a_group_shares_is_told_to_endpoints_of_staff_only(make_endpoint):
    ada, group = a_user("ada"), Group.objects.create(name="Orchard")
    ada.groups.add(group)
    make_endpoint(owner=ada)
    of_group, _ = make_endpoint()
    of_group.groups.add(group)
    UsageLimit.objects.create(group=group, is_shared=True, requests=0, period="day")
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None)
    row = Delivery.objects.get()
    assert row.endpoint_id == of_group.pk
    assert (row.data["kind"], row.data["group"]) == ("group", group.pk)


def test_a_budget_is_told_of_as_it_gets_scarce_and_is_used_up(make_endpoint):
    ada = a_user("ada")
    make_endpoint(owner=ada)
    token, _ = AccessToken.issue(ada, "script")
    token.budget, token.budget_period = Decimal(1), "month"
    token.save()
    most = 900_000_000  # billionths of a USD
    budget.reserve("entry-1", token.pk, most)
    assert not told(), "what is reserved is not spent"
    budget.settle("entry-1", most)
    with pytest.raises(BudgetExhausted):
        budget.reserve("entry-2", token.pk, most)
    assert [event for event, _ in told()] == [
        "parley.limit.warning",
        "parley.limit.reached",
    ]
    data = Delivery.objects.latest("pk").data
    assert (data["kind"], data["token"], data["user"]) == ("budget", token.pk, ada.pk)
    assert data["limit"] == 1.0


def test_the_end_of_a_process_needs_nobody_to_be_told(make_endpoint):
    make_endpoint()
    return_leases()


# A refusal rolls back the transaction that it happens in.


def over_rest(conversation: Conversation, key: str | None) -> None:
    headers = {"Idempotency-Key": key} if key else {}
    path = f"/api/conversations/{conversation.pk}/turns/"
    client = program(conversation.owner)
    answer = client.post(path, {"input": "Hi"}, JSON, headers=headers)
    assert answer.status_code == 429, answer.content


def on_a_page(conversation: Conversation) -> None:
    client = signed_in(conversation.owner)
    assert client.post(page_of(conversation), {"text": "Hi"}).status_code == 429


def over_a_websocket(conversation: Conversation) -> None:
    key = signed_in(conversation.owner).session.session_key
    access = ConversationAccess(key, conversation.owner.pk, conversation.pk)
    attempt = ClaimAttempt()
    message = partial(access.open_turn, {"input": "Hi", "key": "k-1"})
    with pytest.raises(UsageLimitReached):
        open_and_claim(attempt, message, ())


def by_continuing(conversation: Conversation) -> None:
    cut = a_finished_turn(conversation)
    Turn.objects.update(status=Turn.Status.INCOMPLETE)
    path = f"/api/turns/{cut.pk}/continue/"
    assert program(conversation.owner).post(path).status_code == 429


WAYS = {
    "REST": partial(over_rest, key=None),
    "REST with a key": partial(over_rest, key="k-1"),
    "a page": on_a_page,
    "a WebSocket": over_a_websocket,
    "continuing": by_continuing,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_message_is_told_of_whatever_way_it_came(
    conversation: Conversation, make_endpoint, way: str
):
    make_endpoint(events=["parley.limit.reached"])
    UsageLimit.objects.create(user=conversation.owner, requests=0, period="day")
    WAYS[way](conversation)
    assert told() == [("parley.limit.reached", "requests")]
    assert not conversation.turns.not_finished().exists()


@pytest.mark.parametrize("key", [None, "k-1"])
def test_a_program_whose_budget_is_used_up_is_told_of(
    conversation: Conversation, make_endpoint, key: str | None
):
    make_endpoint(events=["parley.limit.reached"])
    headers = bearer(conversation.owner)
    AccessToken.objects.update(budget=Decimal(0), budget_period="month")
    path = f"/api/conversations/{conversation.pk}/turns/"
    if key:
        headers["Idempotency-Key"] = key
    answer = Client().post(path, {"input": "Hi"}, JSON, headers=headers)
    assert answer.status_code == 429, answer.content
    assert told() == [("parley.limit.reached", "cost")]
