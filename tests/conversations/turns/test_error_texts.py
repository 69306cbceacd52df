"""Errors of turns in the reader's language."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from rest_framework.exceptions import APIException, ValidationError

from conversations.engine.loading.approvals import ApprovalExpired
from conversations.engine.runs.run import Interrupted, ServerFault
from conversations.models.turn import AuthorGone
from conversations.requests.errors import AlreadySentConflict, error_object
from conversations.turns.error_texts import TEXTS, in_own_language
from llm import errors
from llm.errors import LLMError

OF_TURNS = [
    *(
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, LLMError)
    ),
    *(ApprovalExpired, Interrupted, ServerFault, AuthorGone),
]


@pytest.fixture
def reversing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A language in which every text of the catalogue is in brackets."""
    from llm.error_texts import english_texts

    monkeypatch.setattr(english_texts, "gettext", lambda text: f"[{text}]")


@pytest.mark.parametrize("error", OF_TURNS, ids=lambda each: each.__name__)
def test_the_default_message_of_each_error_is_a_text(error: type[LLMError]):
    assert str(error()) in TEXTS


@pytest.mark.usefixtures("reversing")
@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (str(errors.RateLimited()), f"[{errors.RateLimited()}]"),
        ("You have hit your limit (from the provider).", None),
        ("", None),
        (
            "The model 'a (b' has an invalid option; ask the staff to correct it: a\nb",
            "[The model 'a (b' has an invalid option; ask the staff to correct it:"
            " a\nb]",
        ),
        ("The key %(key)s of %s is", None),
    ],
)
def test_a_providers_words_stay_as_they_are(message: str, shown: str | None):
    assert in_own_language(message) == (message if shown is None else shown)


@pytest.mark.usefixtures("reversing")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AlreadySentConflict(), "[It has been sent already.]"),
        (ValidationError({"x": ["It has been sent already."]}), "x: [It has been"),
        (ValidationError({"x": ["expected a list."]}), "x: expected a list."),
    ],
)
def test_refusals_of_requests_are_in_the_readers_language(
    error: APIException, message: str
):
    assert error_object(error)["message"].startswith(message)


def test_a_hostile_message_is_read_in_linear_time():
    """It ends at once; a pattern that goes back would take hours."""
    message = "The key " + " of the provider " * 30 + "x" * 500
    assert in_own_language(message) == message


def test_the_texts_are_those_of_the_code():
    """A text that no code writes any more would never be shown."""
    root = Path(__file__).parents[3]
    code = "".join(
        path.read_text()
        for app in ("llm", "conversations")
        for path in (root / app).rglob("*.py")
        if path.name != "error_texts.py"
    )
    words = [" ".join(text.split("%(")[0].split()[:6]) for text in TEXTS]
    assert [each for each in words if each not in code] == []
