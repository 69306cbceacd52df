from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.search.matching import Query, fold, rank, tokens_of, words_of

TEXTS = ["I like tea.", "Tea and coffee, please", "My cat is called Łódź.", ""]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tea", [0, 1]),
        ("COFFEE tea", [1, 0]),
        ("łódź", [2]),
        ("lodz", [2]),
        ("cof", [1]),
        ("offee", []),
        ("...", []),
        ("", []),
    ],
)
def test_a_result_with_more_of_the_words_comes_first(query, found):
    rows = list(range(len(TEXTS)))
    assert rank(query, rows, lambda row: TEXTS[row]) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cafe\N{COMBINING ACUTE ACCENT}", ["cafe"]),
        ("CAFÉ", ["cafe"]),
        ("Straße", ["strasse"]),
        ("İstanbul", ["istanbul"]),
        ("ﬁne", ["fine"]),
        ("ｆｕｌｌ", ["full"]),
        ("foo_bar-baz", ["foo_bar", "baz"]),
        ("東京tower", ["東京", "tower"]),
        ("हिन्दी", ["हिन्दी"]),
        ("ﾃﾞｰﾀ", ["データ"]),
        ("ﾃﾞｰﾀ ガ", words_of("データ ｶﾞ")),
    ],
)
def test_words_are_folded_for_case_accents_and_forms(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("emphasis", "an _emphasis_", ["emphasis"]),
        ("_emphasis_", "an emphasis", ["emphasis"]),
        ("init", "def __init__(self)", ["init"]),
        ("__init__", "init", ["init"]),
        ("name case_n", "snake_case_name", ["case_name"]),
        ("ame", "snake_case_name", []),
        ("データ", "売上ﾃﾞｰﾀ。", ["ﾃﾞｰﾀ"]),
        ("ﾃﾞｰﾀ", "売上データ。", ["データ"]),
        ("キ ロ", "5㌔", ["㌔"]),
    ],
)
def test_parts_of_words_and_half_width_katakana_are_found(query, text, marked):
    wanted = Query.of(query)
    spans = wanted.match_spans(text)
    assert [text[start:end] for start, end in spans] == marked
    assert wanted.matches(fold(text)) == bool(marked)
    tokens = tokens_of(text)
    terms = [term for terms in wanted.terms for term in terms]
    assert bool(marked) == all(
        any(token.startswith(term) for token in tokens) for term in terms
    )


letters = st.text(
    st.sampled_from('abcXYZ019éÜßжя_ -"\\\nİﬁ東京都のแล้ว한국…½ﾃﾞﾀｶ㌔'), max_size=30
)


@given(letters, letters)
def test_an_index_of_tokens_loses_no_text_that_a_query_matches(query, text):
    wanted = Query.of(query)
    tokens = tokens_of(text)
    has_terms = all(
        any(token.startswith(term) for token in tokens)
        for terms in wanted.terms
        for term in terms
    )
    matches = wanted.matches(fold(text))
    assert has_terms or not matches
    if wanted.is_exact:
        assert matches == has_terms


@given(letters, letters)
def test_matches_are_marked_where_they_stand(query, text):
    text = unicodedata.normalize("NFC", text)
    wanted = Query.of(query)
    places = wanted.match_spans(text)
    assert bool(places) == bool(wanted.score(fold(text)))
    if places:
        assert wanted.first_position(text) == places[0][0]
    for start, end in places:
        assert 0 <= start < end <= len(text)
        assert wanted.score(fold(text[start:end])) or end - start == 1
