"""Users, models and conversations for tests of the entry points."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

from conversations.models import AccessToken, Conversation, Item, Turn
from conversations.models.access_token import Scope
from llm.models import LanguageModel, Provider
from llm.wire.items import message, user_message

PASSWORD = "correct horse"


def a_user(name: str = "ada", **fields: Any) -> User:
    return User.objects.create_user(name, password=PASSWORD, **fields)


def staff(name: str, *permissions: str) -> User:
    user = a_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def signed_in(user: User, **kwargs: Any) -> Client:
    client = Client(**kwargs)
    client.force_login(user)
    return client


def bearer(user: User) -> dict[str, str]:
    """The headers of a program that calls the API in the name of `user`."""
    _, token = AccessToken.issue(user, "test", scopes=Scope.values)
    return {"Authorization": f"Bearer {token}"}


def program(user: User, **kwargs: Any) -> Client:
    return Client(headers=bearer(user), **kwargs)


def a_model(name: str = "m-1", **fields: Any) -> LanguageModel:
    provider, _ = Provider.objects.get_or_create(name="Test", kind="scripted")
    return LanguageModel.objects.create(provider=provider, name=name, **fields)


def a_finished_turn(
    conversation: Conversation, question: str = "Hi", answer: str = "Hello!"
) -> Turn:
    turn = conversation.open_turn([user_message(question)]).turn
    Item.of(turn, 1, message("assistant", answer), origin=Item.Origin.OUTPUT).save()
    turn.status = Turn.Status.COMPLETED
    turn.usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    turn.started_at = turn.finished_at = turn.created_at
    turn.save()
    return turn
