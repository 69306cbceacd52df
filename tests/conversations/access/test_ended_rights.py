"""What a person or program has begun stops with its rights."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.access.participation import check_author
from conversations.engine import background_store, claim_store
from conversations.engine.loading.turn_loader import load
from conversations.models import (
    AccessToken,
    AuthorGone,
    Conversation,
    Item,
    ToolCall,
    Turn,
)
from conversations.models.access_token import Scope
from llm.wire.items import user_message
from tests.conversations.scene import a_model, a_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def turn() -> Turn:
    """Of a program; nothing has claimed it yet."""
    model = a_model(is_default=True)
    ada = a_user("ada")
    token, _ = AccessToken.issue(ada, "test", scopes=Scope.values)
    row = Conversation.objects.create(owner=ada, title="Of Ada")
    opened = row.open_turn(
        [user_message("Hi")], access_token=token, language_model=model
    )
    return opened.turn


def background_call(turn: Turn) -> ToolCall:
    return ToolCall.objects.create(
        turn=turn, call_id="c1", name="dig", state="executing", blocking=False
    )


def revoke(token: AccessToken) -> None:
    token.revoke()


def deactivate(token: AccessToken) -> None:
    token.user.is_active = False
    token.user.save()


def expire(token: AccessToken) -> None:
    before = timezone.now() - timedelta(seconds=1)
    AccessToken.objects.filter(pk=token.pk).update(expires_at=before)


def deactivate_unnoticed(token: AccessToken) -> None:
    User.objects.filter(pk=token.user_id).update(is_active=False)


@pytest.mark.parametrize("end", [revoke, deactivate])
def test_turns_and_background_calls_stop(turn: Turn, end: Callable[[Any], None]):
    call = background_call(turn)
    other = turn.conversation.open_turn([user_message("By hand")]).turn
    end(turn.access_token)
    turn.refresh_from_db()
    call.refresh_from_db()
    assert (turn.cancel_requested, call.cancel_requested) == (True, True)
    assert turn.halted_by == Turn.HaltedBy.PERSON
    other.refresh_from_db()
    assert other.cancel_requested == (end is deactivate)


@pytest.mark.parametrize("end", [revoke, deactivate, expire, deactivate_unnoticed])
def test_no_turn_uses_rights_that_have_ended(turn: Turn, end: Callable[[Any], None]):
    check_author(turn)
    end(turn.access_token)
    claim = claim_store.claim(turn.pk)
    assert claim is not None
    with pytest.raises(AuthorGone):
        load(claim)


@pytest.mark.parametrize("end", [revoke, deactivate, expire, deactivate_unnoticed])
def test_no_background_call_uses_rights_that_have_ended(
    turn: Turn, end: Callable[[Any], None]
):
    call = background_call(turn)
    payload = {"type": "function_call", "id": "f", "call_id": "c1", "name": "dig"}
    payload |= {"arguments": "{}"}
    Item.of(turn, 1, payload, origin=Item.Origin.OUTPUT).save()
    end(turn.access_token)
    ToolCall.objects.update(cancel_requested=False)
    claim = background_store.claim(call.pk)
    assert claim is not None
    work = background_store.load(claim)
    assert work.outcome is not None
    assert (work.outcome.state, dict(work.tools)) == ("cancelled", {})


def test_other_changes_of_a_token_or_person_stop_nothing(turn: Turn):
    token = turn.access_token
    assert token is not None
    token.note_use()
    token.user.first_name = "Ada"
    token.user.save()
    turn.refresh_from_db()
    assert not turn.cancel_requested
