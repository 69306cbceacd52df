from __future__ import annotations

from typing import Any

import pytest

from tools.mcp.elicitation import elicit
from tools.mcp.server_spec import ServerSpec
from tools.registry import Context, FormAnswer

SERVER = ServerSpec(name="docs", label="Docs")
FORM = {
    "message": "Which one?",
    "requestedSchema": {
        "type": "object",
        "properties": {"n": {"type": "integer", "default": 3}, "s": {"type": "string"}},
    },
}


def person(answer: FormAnswer, asked: list[Any]) -> Context:
    async def answering(context: Context, message: str, schema: Any) -> FormAnswer:
        asked.append((message, schema))
        return answer

    return Context(ask=answering)


async def test_a_form_that_cannot_be_read_is_put_to_nobody():
    asked: list[Any] = []
    schema = {"type": "object", "properties": {"n": {"type": "none"}}}
    broken = {**FORM, "requestedSchema": schema}
    answer = await elicit(SERVER, person(FormAnswer("accept"), asked), broken)
    assert (answer.action, asked) == ("cancel", [])


async def test_a_question_says_who_asks_and_defaults_fill_what_was_left_out():
    asked: list[Any] = []
    answer = await elicit(SERVER, person(FormAnswer("accept", {"s": "x"}), asked), FORM)
    assert answer == FormAnswer("accept", {"n": 3, "s": "x"})
    assert asked == [("Docs asks: Which one?", FORM["requestedSchema"])]


async def test_who_declines_says_nothing():
    answer = await elicit(SERVER, person(FormAnswer("decline", {"s": "x"}), []), FORM)
    assert answer.action == "decline"


async def test_where_nobody_can_be_asked_the_question_is_cancelled():
    assert await elicit(SERVER, None, FORM) == FormAnswer("cancel")
    assert await elicit(SERVER, Context(), FORM) == FormAnswer("cancel")


async def test_a_link_is_shown_and_what_happens_there_is_not_asked():
    asked: list[Any] = []
    link = {"mode": "url", "message": "Sign in.", "url": "https://login.host/x"}
    answer = await elicit(SERVER, person(FormAnswer("accept", {"a": 1}), asked), link)
    assert answer == FormAnswer("accept")
    assert "https://login.host/x" in asked[0][0]


@pytest.mark.parametrize(
    "url",
    ["http://host/", "javascript:alert(1)", "https://a@b/", "https://", "https://["],
)
async def test_a_link_that_nobody_should_follow_is_declined_unseen(url: str):
    asked: list[Any] = []
    link = {"mode": "url", "message": "Go.", "url": url}
    assert await elicit(
        SERVER, person(FormAnswer("accept"), asked), link
    ) == FormAnswer("decline")
    assert not asked
