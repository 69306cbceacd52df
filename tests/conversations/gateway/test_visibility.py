"""What a token with the scope `gateway` sees of its user's chats: nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.access.stored_turn_visibility import visible_conversations
from conversations.gateway.input_references import find_items
from conversations.gateway.previous_responses import PreviousNotFound, load_history
from conversations.gateway.stored_rows import ResponseNotFound, find
from conversations.models import AccessToken, Conversation, Turn
from conversations.tools import get_history
from llm.wire.items import user_message
from tools.registry import Context

pytestmark = pytest.mark.django_db


def completed_turn(
    row: Conversation, text: str, *, gateway: bool, **fields: Any
) -> Turn:
    options = {"gateway": {"echo": {}}} if gateway else {}
    turn = row.open_turn([user_message(text)], options=options, **fields).turn
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    return turn


@pytest.fixture
def user() -> User:
    return User.objects.create_user("ada")


def token(user: User, *scopes: str) -> AccessToken:
    return AccessToken.issue(user, "t", scopes=list(scopes))[0]


def sees(token: AccessToken, turn: Turn) -> bool:
    """By each way in which a request may name a turn: all agree."""
    item = turn.items.get().payload["id"]
    found = [bool(find_items(token, [item]))]
    for look, missing in ((find, ResponseNotFound), (load_history, PreviousNotFound)):
        try:
            look(token, turn.pk)
            found.append(True)
        except missing:
            found.append(False)
    assert len(set(found)) == 1, found
    return found[0]


@pytest.mark.parametrize("scopes", [["gateway"], ["gateway", "chat"]])
def test_the_turns_of_chats_are_not_found_and_its_own_are(
    user: User, scopes: list[str]
):
    own = completed_turn(Conversation.objects.create(owner=user), "mine", gateway=True)
    chat = completed_turn(
        Conversation.objects.create(owner=user), "secret", gateway=False
    )
    caller = token(user, *scopes)
    assert sees(caller, own)
    assert not sees(caller, chat)
    other = token(User.objects.create_user("eve"), *scopes)
    assert not sees(other, own)


def test_a_conversation_with_a_chat_in_it_takes_the_scope_chat(user: User):
    chat = Conversation.objects.create(owner=user)
    completed_turn(chat, "secret", gateway=False)
    beside = completed_turn(chat, "from a program", gateway=True)
    own = Conversation.objects.create(owner=user)
    completed_turn(own, "mine", gateway=True)
    few, more = token(user, "gateway"), token(user, "gateway", "chat")
    assert set(visible_conversations(few)) == {own}
    assert set(visible_conversations(more)) == {own, chat}
    assert not sees(few, beside)  # to go on from it is to read the chat
    assert sees(more, beside)


def test_its_own_turns_stay_where_a_chat_goes_on_from_them(user: User):
    row = Conversation.objects.create(owner=user)
    own = completed_turn(row, "mine", gateway=True)
    chat = completed_turn(row, "secret", gateway=False, parent=own)
    after_chat = completed_turn(row, "after it", gateway=True, parent=chat)
    later = completed_turn(row, "after that", gateway=True, parent=after_chat)
    beside_chat = completed_turn(row, "beside it", gateway=True, parent=own)
    few = token(user, "gateway")
    assert sees(few, own)
    assert sees(few, beside_chat)
    assert not sees(few, chat)
    assert not sees(few, after_chat)
    assert not sees(few, later)
    assert not visible_conversations(few).exists()  # its last turn may be the chat's


@pytest.mark.parametrize("scopes", [["gateway"], ["gateway", "chat"]])
def test_conversations_of_others_are_not_found(user: User, scopes: list[str]):
    completed_turn(Conversation.objects.create(owner=user), "mine", gateway=True)
    completed_turn(Conversation.objects.create(owner=user), "secret", gateway=False)
    other = token(User.objects.create_user("eve"), *scopes)
    assert not visible_conversations(other).exists()


def test_get_history_shows_no_chats_to_a_program(user: User):
    chat = Conversation.objects.create(owner=user, title="A chat")
    completed_turn(chat, "secret", gateway=False)
    own = Conversation.objects.create(owner=user, title="A program's")
    completed_turn(own, "mine", gateway=True)

    def titles(**fields: Any) -> set[str]:
        result = get_history(Context(user_id=user.pk, **fields))
        return {each["title"] for each in result}

    assert titles() == {"A chat", "A program's"}
    assert titles(may_read_chats=False) == {"A program's"}


def test_get_history_finds_a_program_s_conversation_behind_newer_chats(
    user: User, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("conversations.tools.CHUNK", 2)
    own = Conversation.objects.create(owner=user, title="A program's")
    completed_turn(own, "needle", gateway=True)
    for number in range(6):
        chat = Conversation.objects.create(owner=user, title=f"needle {number}")
        completed_turn(chat, "needle", gateway=False)
    for limit in (1, 5):
        context = Context(user_id=user.pk, may_read_chats=False)
        found = get_history(context, "needle", limit=limit)
        assert [each["title"] for each in found] == ["A program's"]


@pytest.mark.parametrize(
    ("options", "may"),
    [
        ({}, True),
        ({"gateway": {}}, False),
        ({"gateway": {"chats": False}}, False),
        ({"gateway": {"chats": True}}, True),
    ],
)
def test_a_turn_states_whether_its_tools_may_read_chats(
    options: dict[str, Any], may: bool
):
    assert Turn(options=options).may_read_chats is may
