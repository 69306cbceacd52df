"""Laws of a conversation's tree, whatever is done to it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.engine.loading.item_loader import load_items
from conversations.models import BranchChoice, Conversation, Tree, Turn
from conversations.turns import branches
from llm.wire.items import text_of, user_message
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db
ACTS = ["say", "edit", "regenerate", "move", "delete", "undo", "wake"]


@pytest.fixture
def owner():
    return a_user()


@pytest.mark.slow
@pytest.mark.smoke
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 99)), max_size=14))
def test_every_branch_is_a_lineage_and_nothing_is_lost(owner, acts):
    talk = Conversation.objects.create(owner=owner)
    deleted: list[Turn] = []
    for number, (act, pick) in enumerate(acts):
        before = Turn.objects.filter(conversation=talk).count()
        _do(talk, deleted, act, pick, f"text {number}")
        Turn.objects.filter(conversation=talk).update(status="completed")
        assert Turn.objects.filter(conversation=talk).count() >= before
        _check(talk)
    for turn in reversed(deleted):
        assert branches.restore_branch(turn)
    assert not Turn.objects.filter(conversation=talk).exclude(deleted_at=None).exists()


def _do(talk, deleted, act: str, pick: int, text: str) -> None:
    alive = list(talk.turns.filter(deleted_at=None))
    turn = alive[pick % len(alive)] if alive else None
    if act == "say" or turn is None:
        shown = BranchChoice.objects.shown_leaf(talk.pk, talk.owner_id)
        assert talk.open_turn([user_message(text)]).turn.parent_id == shown
    elif act == "move":
        BranchChoice.objects.choose(talk.pk, talk.owner_id, turn.pk)
    elif act == "delete":
        branches.delete_branch(turn)
        deleted.append(turn)
    elif act == "undo" and deleted:
        if branches.restore_branch(deleted[-1]):
            deleted.pop()
    elif act == "wake":
        talk.open_turn([], parent=turn, caused_by=turn.pk)
    elif act in ("edit", "regenerate") and branches.has_question(turn):
        items = branches.question_items(turn)
        if act == "edit":
            items = branches.edited_items(turn, text)
        new = talk.open_turn(items, **branches.place_beside(turn)).turn
        assert new.sibling_ids == Tree.of(talk.pk).siblings(new.pk)
        assert BranchChoice.objects.shown_leaf(talk.pk, talk.owner_id) == new.pk


def _check(talk: Conversation) -> None:
    tree = Tree.of(talk.pk)
    alive = {turn.pk: turn for turn in talk.turns.filter(deleted_at=None)}
    assert set(tree) == set(alive)
    leaf = BranchChoice.objects.shown_leaf(talk.pk, talk.owner_id)
    assert (leaf is None) == (not alive)
    for turn in alive.values():
        line = tree.lineage(turn.pk)
        assert [alive[pk].parent_id for pk in line] == [None, *line[:-1]]
        assert turn.pk in tree.siblings(turn.pk)
        assert turn.pk in tree.lineage(tree.leaf_of(turn.pk))
        loaded = load_items(turn)
        texts = ["".join(text_of(item)) for item in loaded.before]
        assert texts == [_text(alive[pk]) for pk in line[:-1] if _text(alive[pk])]
    if leaf is not None:
        assert not tree.children.get(leaf)


def _text(turn: Turn) -> str:
    return "".join("".join(text_of(row.payload)) for row in turn.items.all())
