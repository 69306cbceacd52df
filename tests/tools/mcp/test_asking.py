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


def person(answer: FormAnswer, questions: list[Any]) -> Context:
    async def answering(context: Context, message: str, schema: Any) -> FormAnswer:
        questions.append((message, schema))
        return answer

    return Context(ask=answering)


async def test_an_invalid_form_is_not_shown_to_a_person():
    questions: list[Any] = []
    schema = {"type": "object", "properties": {"n": {"type": "none"}}}
    broken = {**FORM, "requestedSchema": schema}
    answer = await elicit(SERVER, person(FormAnswer("accept"), questions), broken)
    assert (answer.action, questions) == ("cancel", [])


@pytest.mark.parametrize(
    "properties",
    [
        {f"f{number}": {"type": "string"} for number in range(101)},
        {"n": {"type": "string", "description": "x" * 70_000}},
        {"n": {"type": "string", "title": "half a pair: \ud83d"}},
    ],
    ids=["too many fields", "too long", "not text"],
)
async def test_a_form_that_no_page_can_show_is_cancelled(properties: Any):
    questions: list[Any] = []
    schema = {"type": "object", "properties": properties}
    person_asked = person(FormAnswer("accept"), questions)
    assert await person_asked.asking("Which?", schema) == FormAnswer("cancel")
    assert questions == []


async def test_a_question_names_its_server_and_emptied_fields_stay_empty():
    questions: list[Any] = []
    answer = await elicit(
        SERVER, person(FormAnswer("accept", {"s": "x"}), questions), FORM
    )
    assert answer == FormAnswer("accept", {"s": "x"})
    assert questions == [("Docs asks: Which one?", FORM["requestedSchema"])]


async def test_a_declined_form_contains_no_data():
    answer = await elicit(SERVER, person(FormAnswer("decline", {"s": "x"}), []), FORM)
    assert answer.action == "decline"


async def test_without_a_person_the_question_is_cancelled():
    assert await elicit(SERVER, None, FORM) == FormAnswer("cancel")
    assert await elicit(SERVER, Context(), FORM) == FormAnswer("cancel")


async def test_a_link_is_shown_and_its_outcome_is_not_requested():
    questions: list[Any] = []
    link = {"mode": "url", "message": "Sign in.", "url": "https://login.host/x"}
    answer = await elicit(
        SERVER, person(FormAnswer("accept", {"a": 1}), questions), link
    )
    assert answer == FormAnswer("accept")
    assert "https://login.host/x" in questions[0][0]


@pytest.mark.parametrize(
    "url",
    ["http://host/", "javascript:alert(1)", "https://a@b/", "https://", "https://["],
)
async def test_a_dangerous_link_is_declined_without_being_shown(url: str):
    questions: list[Any] = []
    link = {"mode": "url", "message": "Go.", "url": url}
    assert await elicit(
        SERVER, person(FormAnswer("accept"), questions), link
    ) == FormAnswer("decline")
    assert not questions
