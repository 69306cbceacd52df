"""A refusal that a turn has stored in English is shown in the reader's language, word
for word as it would have been written in it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from django.utils import translation

from conversations.access.limits.admission import limit_error
from conversations.access.limits.amounts import AppliedLimit, BalanceKey, Caps
from conversations.access.limits.refusal_texts import translate_refusal
from conversations.templatetags.chat import error_text

pytestmark = pytest.mark.django_db

AMOUNTS = {  # of a measure: what the limit is, and what a call needs
    "requests": [(1, 1), (12_345, 20_000), (10, 1)],
    "tokens": [(1, 2), (2_500_000, 3_000_000)],
    "cost": [(250_000_000, 10**9), (5 * 10**9, 10**10), (1, 2)],
    "size": [(500, 1000), (1536, 10_000), (20 * 2**20, 30 * 2**20)],
}
CASES = [
    (kind, period, measure, cap, needed)
    for kind, period in product(("user", "group", "token"), ("day", "month", "total"))
    for measure, amounts in AMOUNTS.items()
    for cap, needed in amounts
]


def written(
    kind: str, period: str, measure: str, cap: int, needed: int, model: str = ""
) -> tuple[str, Callable[[], str]]:
    """The English text, and what writes it in the active language."""
    caps = Caps(**{measure: cap})
    limit = AppliedLimit(BalanceKey(kind, 1, period), period, caps, model)
    error = limit_error(limit, measure, needed)
    assert error.localized is not None
    return str(error), error.localized


@pytest.mark.parametrize("language", ["de", "fr", "es", "zh-hans"])
def test_each_refusal_is_shown_as_it_would_be_written(language: str):
    for case in CASES:
        english, localized = written(*case)
        with translation.override(language):
            assert translate_refusal(english) == localized()
            assert localized() != english


@pytest.mark.parametrize("model", ["gpt (preview)", "Ünïcode, is reached."])
def test_a_limit_of_one_model_names_it(model: str):
    english, localized = written("user", "day", "cost", 10**9, 2 * 10**9, model)
    with translation.override("de"):
        assert translate_refusal(english) == localized()
    assert model in localized()


def test_a_turn_that_failed_for_a_limit_is_shown_in_the_reader_s_language():
    english, localized = written("user", "month", "tokens", 1000, 2000)
    with translation.override("de"):
        assert error_text(english) == localized()
    with translation.override("en"):
        assert error_text(english) == english


@pytest.mark.parametrize(
    "words",
    [
        "",
        "The provider is down.",
        "Your limit, many messages a day, is reached.",
        "Your limit, , messages a day, is reached.",
        "Your limit, 1.2.3 KB a day, is reached.",
        "A new period begins on Nov. 31, 2026, midnight.",
        "Ask your administrators if you need more. Or not.",
    ],
)
def test_words_of_others_stay(words: str):
    with translation.override("de"):
        assert error_text(words) == words


def test_a_period_that_begins_at_noon_is_translated():
    with translation.override("de"):
        text = translate_refusal("A new period begins on Nov. 30, 2026, noon.")
    assert text is not None
    assert "30. November 2026 12:00" in text
