"""Which limits apply to whom, what a refusal says at each entry point, and raises."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.access.admission import charge_user_tokens, user_bucket_owner
from conversations.access.budget import nanos
from conversations.access.errors import UsageLimitReached
from conversations.access.limits.admission import (
    admit_message,
    find_limits_left,
    reserve,
)
from conversations.access.limits.amounts import Amounts, Caps
from conversations.access.limits.applicable import limits_of
from conversations.access.limits.leases import leases
from conversations.engine import claim_store
from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    LimitRaise,
    Participant,
    Turn,
    UsageLimit,
)
from conversations.models.idempotency_key import IdempotencyKeyQuerySet
from llm.models import LanguageModel
from llm.wire.items import text_of
from tests.conversations.page_scene import page_of
from tests.conversations.scene import a_finished_turn, a_model, a_user, signed_in

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("scripted_host"),
]

JSON = "application/json"


@pytest.fixture(autouse=True)
def _no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture
def ada() -> User:
    a_model(is_default=True)
    return a_user("ada")


def limit(**fields: Any) -> UsageLimit:
    row = UsageLimit(period="month", **fields)
    row.full_clean()
    row.save()
    return row


def caps(user: User, token: AccessToken | None = None) -> list[tuple[str, Caps]]:
    found = limits_of(user.pk, token.pk if token else None)
    return [(each.key.kind, each.caps) for each in found]


def a_member(user: User, name: str) -> Group:
    group = Group.objects.create(name=name)
    user.groups.add(group)
    return group


def test_without_limits_nothing_applies_and_nothing_is_queried(
    ada: User, django_assert_num_queries: Any
):
    assert limits_of(ada.pk) == ()
    from conversations.access.limits.upkeep import update_limits

    update_limits()
    with django_assert_num_queries(0):
        admit_message(ada.pk, None)


def test_own_limits_come_before_groups_and_groups_before_everybodys(ada: User):
    limit(requests=5, tokens=1000)
    assert caps(ada) == [("user", Caps(requests=5, tokens=1000))]
    limit(group=a_member(ada, "small"), requests=10)
    limit(group=a_member(ada, "large"), requests=20)
    assert caps(ada) == [("user", Caps(requests=20, tokens=1000))]
    limit(user=ada, requests=3)
    assert caps(ada) == [("user", Caps(requests=3, tokens=1000))]


def test_what_a_group_shares_and_a_tokens_limit_narrow_only(ada: User):
    token, _ = AccessToken.issue(ada, "own")
    group = a_member(ada, "sales")
    limit(user=ada, requests=3)
    limit(group=group, is_shared=True, requests=2)
    limit(token=token, requests=100)
    assert sorted(kind for kind, _ in caps(ada, token)) == ["group", "token", "user"]
    bob = a_user("bob")
    bob.groups.add(group)
    admit_message(ada.pk, None)
    admit_message(bob.pk, None)
    with pytest.raises(UsageLimitReached, match="group's limit, 2 messages"):
        admit_message(bob.pk, None)
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, token)  # the wide limit of a token admits nothing more


def test_a_self_made_token_spends_its_users_limit(ada: User):
    limit(user=ada, requests=2)
    tokens = [AccessToken.issue(ada, name)[0] for name in "ab"]
    admit_message(ada.pk, tokens[0])
    admit_message(ada.pk, tokens[1])
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None)


def test_a_raise_counts_until_its_end(ada: User):
    limit(user=ada, requests=0)
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None)
    more = LimitRaise.objects.create(
        user=ada,
        period="month",
        requests=1,
        reason="The audit",
        ends_at=timezone.now() + timedelta(hours=1),
    )
    admit_message(ada.pk, None)
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None)
    more.ends_at = timezone.now()
    more.save()
    assert caps(ada) == [("user", Caps(requests=0))]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "at least one amount"),
        ({"requests": 1, "is_shared": True}, "Only a group"),
        ({"cost": Decimal(-1)}, "greater than or equal"),
    ],
)
def test_limits_without_sense_are_refused(ada: User, fields: Any, why: str):
    with pytest.raises(ValidationError, match=why):
        limit(user=ada, **fields)


def test_one_limit_for_a_subject_and_period(ada: User):
    limit(requests=1)
    limit(user=ada, requests=1)
    for same in ({}, {"user": ada}):
        with pytest.raises(ValidationError, match="for this period already"):
            limit(requests=2, **same)


def test_a_raise_needs_a_reason_and_an_end_in_the_future(ada: User):
    over = LimitRaise(user=ada, requests=1, ends_at=timezone.now())
    with pytest.raises(ValidationError) as caught:
        over.full_clean()
    assert set(caught.value.message_dict) == {"reason", "ends_at"}


# Entry points


def say_by_rest(client: Client, user: User) -> Any:
    conversation, _ = Conversation.objects.get_or_create(owner=user)
    url = f"/api/conversations/{conversation.pk}/turns/"
    return client.post(url, {"input": "Hi"}, content_type=JSON)


@pytest.mark.parametrize(
    ("whose", "start"),
    [
        ("user", "Your limit, $0.5 a month, has $0.4 left; this may need $0.45."),
        ("group", "Your group's limit, $0.5 a month, has $0.4 left; this may need"),
        ("token", "This access token's limit, $0.5 a month, has $0.4 left; this may"),
    ],
)
def test_who_has_something_left_reads_how_much_and_what_this_needs(
    ada: User, whose: str, start: str
):
    token, _ = AccessToken.issue(ada, "own")
    subject: dict[str, Any] = {
        "user": {"user": ada},
        "group": {"group": a_member(ada, "sales"), "is_shared": True},
        "token": {"token": token},
    }[whose]
    limit(cost=Decimal("0.5"), **subject)
    applied = limits_of(ada.pk, token.pk)
    first = reserve(applied, Amounts(cost=nanos(Decimal("0.1"))))
    with pytest.raises(UsageLimitReached) as caught:
        reserve(applied, Amounts(cost=nanos(Decimal("0.45"))))
    assert str(caught.value).startswith(start)
    assert "A cheaper model or a shorter chat may fit." in str(caught.value)
    leases.settle(first, Amounts(cost=nanos(Decimal("0.5"))))
    with pytest.raises(UsageLimitReached, match="is reached"):
        reserve(applied, Amounts(cost=1))


def test_rest_refuses_with_the_end_of_the_period(ada: User):
    limit(user=ada, requests=1)
    client = signed_in(ada)
    assert say_by_rest(client, ada).status_code == 202
    refused = say_by_rest(client, ada)
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 31 * 86_400
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("insufficient_quota",) * 2
    assert error["message"].startswith("Your limit, 1 message a month, is reached.")
    assert Turn.objects.count() == 1


def test_the_page_keeps_the_text_and_says_what_is_used_up(ada: User):
    limit(user=ada, requests=1)
    client = signed_in(ada)
    assert say_by_rest(client, ada).status_code == 202
    conversation = Conversation.objects.get()
    refused = client.post(page_of(conversation), {"text": "What I wrote last"})
    assert refused.status_code == 429
    page = refused.content.decode()
    assert "What I wrote last" in page
    assert "Your limit, 1 message a month, is reached." in page
    assert Turn.objects.count() == 1


def test_a_page_in_german_says_it_in_the_active_language(ada: User):
    limit(user=ada, requests=0)
    with pytest.raises(UsageLimitReached) as caught:
        admit_message(ada.pk, None)
    assert caught.value.localized is not None
    assert caught.value.localized() == str(caught.value)


def test_people_see_what_is_left_before_they_send(ada: User):
    limit(user=ada, requests=10, cost=Decimal("0.5"))
    client = signed_in(ada)
    say_by_rest(client, ada)
    for url in ("/", "/settings/limits/", "/settings/usage/"):
        page = client.get(url).content.decode()
        assert "9 messages left of 10 messages a month" in page, url
        assert "$0.5 left of $0.5 a month" in page, url


def test_a_program_sees_what_is_left(ada: User):
    limit(user=ada, requests=10, cost=Decimal("0.5"))
    token, text = AccessToken.issue(ada, "own")
    limit(token=token, size=1000)
    caller = Client(headers={"Authorization": f"Bearer {text}"})
    found = caller.get("/api/limits/").json()["results"]
    assert [(e["applies_to"], e["measure"], e["left"]) for e in found] == [
        ("user", "requests", 10),
        ("user", "cost", 0.5),
        ("token", "size", 1000),
    ]
    assert found[0]["ends_at"] is not None


def test_bytes_of_a_message_are_limited(ada: User):
    limit(user=ada, size=200)
    client = signed_in(ada)
    assert say_by_rest(client, ada).status_code == 202
    assert find_limits_left(ada.pk)[0].left < 200
    conversation = Conversation.objects.get()
    url = f"/api/conversations/{conversation.pk}/turns/"
    refused = client.post(url, {"input": "x" * 500}, content_type=JSON)
    assert refused.status_code == 429
    message = refused.json()["error"]["message"]
    assert "200" in message
    assert "A shorter message may fit." in message


@pytest.mark.parametrize("way", ["REST", "page"])
def test_a_waiting_message_that_grows_is_counted_and_limited(
    ada: User, way: str, settings: Any
):
    limit(user=ada, size=1000)
    client = signed_in(ada)
    conversation = Conversation.objects.create(owner=ada)
    turns = f"/api/conversations/{conversation.pk}/turns/"
    first, waiting = (
        client.post(turns, {"input": "Hi"}, content_type=JSON).json()["id"]
        for _ in range(2)
    )
    assert claim_store.claim(first)

    def change(text: str) -> int:
        if way == "page":
            path = reverse("change-queued", args=[conversation.pk, waiting])
            return client.post(path, {"act": "change", "text": text}).status_code
        url, sent = f"/api/turns/{waiting}/", {"input": text}
        return client.patch(url, sent, content_type=JSON).status_code

    before = find_limits_left(ada.pk)[0].left
    assert change("x" * 102) < 400
    assert find_limits_left(ada.pk)[0].left == before - 100
    assert change("x" * 1000) == 429
    (item,) = Turn.objects.get(pk=waiting).items.all()
    assert text_of(item.payload) == "x" * 102
    assert change("Hi") < 400
    assert find_limits_left(ada.pk)[0].left == before - 100
    settings.USER_TOKENS_PER_MINUTE = 100
    assert change("word " * 500) == 429


@pytest.mark.parametrize("way", ["REST", "page", "new chat"])
def test_bytes_of_the_files_of_a_message_are_limited(
    ada: User, way: str, settings: Any, tmp_path: Any
):
    settings.MEDIA_ROOT = tmp_path
    limit(user=ada, size=10_000)
    client = signed_in(ada)
    conversation = Conversation.objects.create(owner=ada)

    def send(size: int) -> int:
        file = SimpleUploadedFile("a.txt", b"x" * size, "text/plain")
        if way == "page":
            form = {"text": "Read it", "file": [file]}
            return client.post(page_of(conversation), form).status_code
        if way == "new chat":
            return client.post("/", {"text": "Read it", "file": [file]}).status_code
        url = f"/api/conversations/{conversation.pk}/attachments/"
        [stored] = client.post(url, {"file": file}).json()["data"]
        part = {"type": "input_file", "file_id": stored["id"]}
        message = {"role": "user", "content": [part]}
        url = f"/api/conversations/{conversation.pk}/turns/"
        return client.post(url, {"input": [message]}, content_type=JSON).status_code

    assert send(4000) < 400
    assert 0 < 10_000 - 4000 - find_limits_left(ada.pk)[0].left < 500
    assert send(9000) == 429
    assert Turn.objects.count() == 1


def test_the_size_of_another_persons_file_is_not_found_out(ada: User):
    limit(user=ada, size=3000)
    theirs = Conversation.objects.create(owner=a_user("eve"))
    file = Attachment.objects.create(
        conversation=theirs, name="a.txt", content_type="text/plain", size=1_000_000
    )
    part = {"type": "input_file", "file_id": file.pk}
    items = [{"type": "message", "role": "user", "content": [part]}]
    admit_message(ada.pk, None, items)
    Participant.objects.create(conversation=theirs, user=ada, name="ada", role="writer")
    with pytest.raises(UsageLimitReached):
        admit_message(ada.pk, None, items)


@pytest.mark.parametrize("way", ["REST", "page"])
def test_a_message_that_another_check_refuses_is_not_counted(
    ada: User, way: str, settings: Any
):
    settings.USER_TOKENS_PER_MINUTE = 1000
    charge_user_tokens(user_bucket_owner(ada), 5000)
    limit(user=ada, requests=10)
    client, conversation = signed_in(ada), Conversation.objects.create(owner=ada)
    if way == "page":
        refused = client.post(page_of(conversation), {"text": "Too many words"})
    else:
        url = f"/api/conversations/{conversation.pk}/turns/"
        refused = client.post(url, {"input": "Too many words"}, content_type=JSON)
    assert refused.status_code == 429
    assert find_limits_left(ada.pk)[0].left == 10


def test_of_two_requests_at_once_with_one_key_one_is_counted(
    ada: User, monkeypatch: pytest.MonkeyPatch
):
    limit(user=ada, requests=10)
    client, conversation = signed_in(ada), Conversation.objects.create(owner=ada)
    url, key = f"/api/conversations/{conversation.pk}/turns/", {"Idempotency-Key": "k"}
    find, finds = IdempotencyKeyQuerySet.find_turn, []

    def find_late(keys: Any, *asked: Any) -> Turn | None:
        finds.append(asked)  # the second request looks before the first has stored it
        return None if len(finds) == 2 else find(keys, *asked)

    monkeypatch.setattr(IdempotencyKeyQuerySet, "find_turn", find_late)
    for _ in range(2):
        sent = client.post(url, {"input": "Hi"}, content_type=JSON, headers=key)
        assert sent.status_code == 202
    assert Turn.objects.count() == 1
    assert find_limits_left(ada.pk)[0].left == 9


def test_a_continuation_counts_once_and_a_refused_one_not_at_all(ada: User):
    limit(user=ada, requests=10)
    conversation = Conversation.objects.create(
        owner=ada, language_model=LanguageModel.objects.get()
    )
    finished = a_finished_turn(conversation)
    url, client = f"/api/turns/{finished.pk}/continue/", signed_in(ada)
    assert client.post(url).status_code == 409
    assert find_limits_left(ada.pk)[0].left == 10
    Turn.objects.update(status=Turn.Status.INCOMPLETE)
    for _ in range(2):
        assert client.post(url).status_code == 202
        assert find_limits_left(ada.pk)[0].left == 9


def test_staff_see_and_set_limits_in_the_admin(ada: User):
    staff = User.objects.create_superuser("root")
    client = signed_in(staff)
    limit(user=ada, requests=10)
    row = UsageLimit.objects.get()
    page = client.get(f"/admin/conversations/usagelimit/{row.pk}/change/")
    assert "10 messages left of 10 messages a month" in page.content.decode()
    end = timezone.localtime() + timedelta(days=1)
    client.post(
        "/admin/conversations/limitraise/add/",
        {
            "user": ada.pk,
            "period": "month",
            "requests": "5",
            "reason": "A workshop",
            "ends_at_0": end.date().isoformat(),
            "ends_at_1": "12:00:00",
        },
    )
    more = LimitRaise.objects.get()
    assert (more.granted_by, more.reason) == (staff, "A workshop")
    assert caps(ada) == [("user", Caps(requests=15))]
