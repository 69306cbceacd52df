from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.search import fragments, ranked, score, words_of

TEXTS = ["I like tea.", "Tea and coffee, please", "My cat is called Łódź.", ""]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tea", [0, 1]),
        ("COFFEE tea", [1, 0]),
        ("łódź", [2]),
        ("cof", [1]),
        ("offee", []),
        ("...", []),
        ("", []),
    ],
)
def test_what_has_more_of_the_words_stands_first(query, found):
    rows = list(range(len(TEXTS)))
    assert ranked(query, rows, lambda row: TEXTS[row]) == found


def test_a_letter_and_its_accent_are_one_however_they_are_stored():
    assert words_of("cafe\N{COMBINING ACUTE ACCENT}") == words_of("CAFÉ") == ["café"]


words = st.text(st.sampled_from('abcXYZ019éÜßжя_ -"\\\n'), max_size=12)


@given(words, words)
def test_a_database_that_looks_for_the_fragments_loses_nothing(query, text):
    texts = fragments(query)
    if texts is None or not score(set(words_of(query)), text):
        return
    stored = json.dumps({"text": text}).lower()  # as SQLite has it
    assert any(each in stored for each in texts)
    assert any(each in text.lower() for each in texts)
