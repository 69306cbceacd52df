"""Errors of turns on the page, in the reader's language."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from conversations.models import Conversation, Turn
from llm.errors import RateLimited
from tests.conversations.page_scene import (
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    submitted,
    web,
)

__all__ = ["ada", "conversation", "model", "submitted", "web"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("message", [str(RateLimited()), "Es war einmal <b>.", 7])
def test_a_failed_turn_says_why(
    web: Client, conversation: Conversation, language: str, message: Any
):
    turn = a_turn(conversation, "failed")
    error = {"code": "E_LLM_RATE_LIMIT", "message": message}
    Turn.objects.filter(pk=turn.pk).update(error=error)
    page = web.get(page_of(conversation), headers={"Accept-Language": language})
    with translation.override(language):
        words = (
            message if isinstance(message, str) else "The answer could not be finished."
        )
        assert translation.gettext(words) in read(page)
