"""Statements of the heartbeat: the same text for any number of turns.

Both databases' drivers store prepared statements by their text. With a text for each
number of running turns, SQLite's took 16 KB for every open answer.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.engine import claim_store, lease_store
from conversations.engine.lease_store import Snapshot
from conversations.models import Conversation, Turn
from llm.wire.items import user_message

pytestmark = pytest.mark.django_db


def claimed_turns(number: int) -> list[claim_store.Claim]:
    owner = User.objects.create_user("anna")
    claims = []
    for _ in range(number):
        conversation = Conversation.objects.create(owner=owner)
        turn = conversation.open_turn([user_message("Hi")]).turn
        claim = claim_store.claim(turn.pk)
        assert claim is not None
        claims.append(claim)
    return claims


def statements_of(beats: dict[claim_store.Claim, Snapshot | None]) -> list[str]:
    texts: list[str] = []

    def note(execute: Any, sql: str, *arguments: Any) -> Any:
        if "conversations_turn" in sql:  # and no savepoint, which has a name of its own
            texts.append(sql)
        return execute(sql, *arguments)

    with connection.execute_wrapper(note):
        result = lease_store.heartbeat(beats)
    assert not result.lost
    return texts


def test_the_number_of_turns_is_not_in_the_statements():
    claims = claimed_turns(12)
    few = statements_of({claims[0]: None})
    many = statements_of({claim: Snapshot([], 1) for claim in claims})
    assert few == many
    assert len(few) == 2


def test_each_turn_gets_its_own_snapshot():
    """With quotes, brackets and non-ASCII characters: the beats travel together."""
    claims = claimed_turns(3)
    texts = ['{"a": ["]"]}', "\\ ' \" %s ü 😀", "null"]
    items = [user_message(text) for text in texts]
    beats = zip(claims, items, strict=True)
    statements_of({claim: Snapshot([item], 5) for claim, item in beats})
    stored = [Turn.objects.get(pk=claim.turn_id) for claim in claims]
    assert [turn.partial for turn in stored] == [[item] for item in items]
    assert [turn.last_sequence for turn in stored] == [5] * 3
