"""What a token with the scope `gateway` sees of its user's chats: nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.access.gateway_visibility import visible_conversations
from conversations.gateway.input_references import find_items
from conversations.gateway.previous_responses import PreviousNotFound, load_history
from conversations.gateway.stored_rows import ResponseNotFound, find
from conversations.models import AccessToken, Conversation, Turn
from conversations.tools import get_history
from llm.wire.items import user_message
from tools.registry import Context

pytestmark = pytest.mark.django_db


def ask(row: Conversation, text: str, *, gateway: bool, **fields: Any) -> Turn:
    options = {"gateway": {"echo": {}}} if gateway else {}
    turn = row.open_turn([user_message(text)], options=options, **fields)
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
    own = ask(Conversation.objects.create(owner=user), "mine", gateway=True)
    chat = ask(Conversation.objects.create(owner=user), "secret", gateway=False)
    caller = token(user, *scopes)
    assert sees(caller, own)
    assert not sees(caller, chat)
    other = token(User.objects.create_user("eve"), *scopes)
    assert not sees(other, own)


def test_a_conversation_with_a_chat_in_it_takes_the_scope_chat(user: User):
    chat = Conversation.objects.create(owner=user)
    ask(chat, "secret", gateway=False)
    beside = ask(chat, "from a program", gateway=True)
    own = Conversation.objects.create(owner=user)
    ask(own, "mine", gateway=True)
    few, more = token(user, "gateway"), token(user, "gateway", "chat")
    assert set(visible_conversations(few)) == {own}
    assert set(visible_conversations(more)) == {own, chat}
    assert not sees(few, beside)  # to go on from it is to read the chat
    assert sees(more, beside)


def test_get_history_tells_a_program_of_no_chat(user: User):
    chat = Conversation.objects.create(owner=user, title="A chat")
    ask(chat, "secret", gateway=False)
    own = Conversation.objects.create(owner=user, title="A program's")
    ask(own, "mine", gateway=True)

    def titles(**fields: Any) -> set[str]:
        told = get_history(Context(user_id=user.pk, **fields))
        return {each["title"] for each in told}

    assert titles() == {"A chat", "A program's"}
    assert titles(may_read_chats=False) == {"A program's"}


@pytest.mark.parametrize(
    ("options", "may"),
    [
        ({}, True),
        ({"gateway": {}}, False),
        ({"gateway": {"chats": False}}, False),
        ({"gateway": {"chats": True}}, True),
    ],
)
def test_a_turn_says_whether_its_tools_may_read_chats(
    options: dict[str, Any], may: bool
):
    assert Turn(options=options).may_read_chats is may
