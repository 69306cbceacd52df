"""What a page without a WebSocket compares to notice what others change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from conversations.access.participation import invite
from conversations.models import Conversation, Question, Turn
from tests.conversations.api.test_queue import line, patch, path_of, post, send, web
from tests.conversations.scene import a_user, signed_in

__all__ = ["line", "web"]

pytestmark = pytest.mark.django_db(transaction=True)


def changes(web: Any, conversation: Conversation) -> dict[str, Any]:
    answer = web.get(path_of(conversation, "changes"))
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def differing(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_nothing_differs_while_nothing_changes(web, conversation, line):
    assert changes(web, conversation) == changes(web, conversation)


def test_each_change_of_a_waiting_message_makes_the_queue_differ(
    web, conversation, line
):
    _, b, c = line
    acts = [
        lambda: post(web, path_of(conversation, "queue"), order=[c, b]),
        lambda: patch(web, b, input="better"),
        lambda: web.delete(f"/api/turns/{c}/"),
        lambda: send(web, conversation, "d"),
    ]
    before = changes(web, conversation)
    for act in acts:
        act()
        after = changes(web, conversation)
        assert "queue" in differing(before, after)
        before = after


def test_a_title_and_the_title_of_another_conversation_differ(web, conversation):
    other = Conversation.objects.create(owner=conversation.owner, title="Other")
    before = changes(web, conversation)
    Conversation.objects.filter(pk=other.pk).update(title="Renamed")
    between = changes(web, conversation)
    assert differing(before, between) == {"titles"}
    Conversation.objects.filter(pk=conversation.pk).update(title="This one")
    assert differing(between, changes(web, conversation)) == {"title", "titles"}


def test_new_deleted_and_restored_turns_make_the_branches_differ(
    web, conversation, line
):
    def set_deleted(*pks: str, at: Any) -> None:
        Turn.objects.filter(pk__in=pks).update(deleted_at=at)

    now = timezone.now()
    acts = [
        lambda: set_deleted(line[2], at=now),
        lambda: set_deleted(line[2], at=None),
        lambda: send(web, conversation, "d"),
        # As many as before, but others:
        lambda: [set_deleted(line[1], at=now), send(web, conversation, "e")],
        lambda: [
            set_deleted(line[1], at=None),
            set_deleted(line[2], at=now + timedelta(seconds=1)),
        ],
        lambda: Turn.objects.filter(pk=line[2]).delete(),
    ]
    before = changes(web, conversation)
    for act in acts:
        act()
        after = changes(web, conversation)
        assert "branches" in differing(before, after)
        before = after


def test_a_chosen_branch_differs_for_who_chose_it(web, conversation):
    first, second = [Turn.objects.create(conversation=conversation) for _ in range(2)]
    invite(conversation, (bob := a_user("bob")).get_username(), "writer").accept()
    other = signed_in(bob)
    before, others = changes(web, conversation), changes(other, conversation)
    for turn in (first, second):
        path = path_of(conversation, "branch")
        body = {"turn": turn.pk}
        assert web.put(path, body, content_type="application/json").status_code == 200
        after = changes(web, conversation)
        assert differing(before, after) == {"branches"}
        before = after
    assert changes(other, conversation) == others


def test_questions_are_listed_until_they_are_decided(web, conversation):
    turn = Turn.objects.create(conversation=conversation, status="waiting")
    calls = [turn.tool_calls.create(call_id=str(n), name="send") for n in range(2)]
    hour = timezone.now() + timedelta(hours=1)
    made = [
        Question.objects.create(
            tool_call=call, kind="approval", arguments={}, expires_at=hour
        )
        for call in calls
    ]
    ids = sorted(row.pk for row in made)
    assert changes(web, conversation)["open_questions"] == ids
    web.post(reverse("question", args=[ids[0]]), {"action": "decline"})
    assert changes(web, conversation)["open_questions"] == ids[1:]
    Turn.objects.filter(pk=turn.pk).update(deleted_at=timezone.now())
    assert changes(web, conversation)["open_questions"] == []


def test_nobody_else_reads_them(conversation):
    stranger = signed_in(a_user("eve"))
    assert stranger.get(path_of(conversation, "changes")).status_code == 404
