"""Database rows for the server under test: a provider, a user, conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User

from conversations.models import AccessToken, Conversation, Item, Turn
from llm.models import LanguageModel, Provider
from llm.wire.items import new_id

MODELS = (
    *("c1-d0", "c5-d0", "c10-d20", "c200-d20", "c20-d1000", "c1000-d0"),
    "c200-d100",
)
EARLIER = (10, 1_000)  # turns that a conversation already has
_CONVERSATIONS = 100  # without a turn


@dataclass(frozen=True, slots=True)
class Dataset:
    token: str
    cookie: str
    conversations: Sequence[str]
    long: dict[int, str]  # by the number of earlier turns


def make_dataset(
    upstream_port: int,
    conversations: int = _CONVERSATIONS,
    earlier: Sequence[int] = EARLIER,
    models: Sequence[str] = MODELS,
    prefix: str = "bench-",
) -> Dataset:
    """Create the rows, once, in a migrated database. The models' names are those of
    `models` with the prefix."""
    provider = Provider.objects.create(
        name="bench",
        kind="openai_compatible",
        base_url=f"http://127.0.0.1:{upstream_port}/v1",
        allow_private_network=True,
    )
    for name in models:
        LanguageModel.objects.create(
            provider=provider, name=f"{prefix}{name}", capabilities={"tools": False}
        )
    user = User.objects.create_user("bench")
    _, token = AccessToken.issue(user, "bench")
    plain = [Conversation(owner=user, title="bench") for _ in range(conversations)]
    Conversation.objects.bulk_create(plain)
    return Dataset(
        token,
        _sign_in(user),
        [conversation.pk for conversation in plain],
        {number: _conversation_after(number, user) for number in earlier},
    )


def _sign_in(user: User) -> str:
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}"


def _conversation_after(number: int, user: User) -> str:
    conversation = Conversation.objects.create(owner=user, title="bench")
    turns: list[Turn] = []
    items: list[Item] = []
    for _ in range(number):
        parent = turns[-1] if turns else None
        status = Turn.Status.COMPLETED
        turn = Turn(conversation=conversation, parent=parent, status=status)
        turns.append(turn)
        question, answer = _message("user", "input"), _message("assistant", "output")
        items.append(Item.of(turn, 0, question, origin=Item.Origin.INPUT))
        items.append(Item.of(turn, 1, answer, origin=Item.Origin.OUTPUT))
    Turn.objects.bulk_create(turns)
    Item.objects.bulk_create(items)
    return conversation.pk


def _message(role: str, kind: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": f"{kind}_text", "text": "It is sunny in Paris."}
    if kind == "output":
        part |= {"annotations": [], "logprobs": []}
    head = {"type": "message", "id": new_id("msg"), "status": "completed"}
    return {**head, "role": role, "content": [part]}
