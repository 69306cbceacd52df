"""What the open pages of a conversation hear of a decision."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.urls import reverse
from django.utils import timezone

from conversations.models import Question, ToolCall, Turn
from tests.conversations.api.test_queue import web

__all__ = ["web"]

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_page_hears_of_an_answer_while_others_are_awaited(
    page, conversation, web
):
    turn = await Turn.objects.acreate(
        conversation=conversation, status=Turn.Status.WAITING
    )
    questions = []
    for number in range(2):
        call = await turn.tool_calls.acreate(
            call_id=f"call_{number}",
            name="send",
            state=ToolCall.State.AWAITING_APPROVAL,
        )
        questions.append(
            await Question.objects.acreate(
                tool_call=call,
                kind=Question.Kind.APPROVAL,
                arguments={},
                expires_at=timezone.now() + timedelta(hours=1),
            )
        )
    first, second = questions
    path = reverse("question", args=[first.pk])
    await sync_to_async(web.post)(path, {"action": "decline"})
    assert (await page.until("parley:question.decided"))["id"] == first.pk
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.WAITING
    await second.arefresh_from_db()
    assert second.state == Question.State.OPEN
