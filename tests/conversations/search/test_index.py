"""The full-text index finds what a scan of all messages finds, on both databases."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from conversations.models import Conversation, Item, SearchDocument, Turn
from conversations.search import message_search, postgresql
from conversations.search import results as finding
from conversations.search.index import index_pending
from conversations.search.matching import PORTION, Query, fold, tokens_of
from conversations.search.message_search import MessageSearch
from conversations.search.results import find_conversations
from llm.wire.items import message, text_of, user_message
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db

WORDS = [
    *(
        "a",
        "an",
        "and",
        "ant",
        "Anton",
        "the",
        "then",
        "python",
        "Zymurgy",
        "x_1",
        "__init__",
        "_x_1_",
    ),
    *("ﾃﾞｰﾀ", "データ"),
    *("café", "cafés", "Łódź", "straße", "naïve", "ΣΊΣΥΦΟΣ", "Москва", "100", "1000"),
    *(
        "東京都の天気",
        "京都",
        "天気予報",
        "한국어",
        "ภาษาไทย",
        "हिन्दी",
        "שָׁלוֹם",
        "bücher",
    ),
    *("it's", 'qu"ote', "back\\slash", "per%cent", "semi;colon", "NEAR", "AND", "or"),
    *("w" * 70 + "end", "w" * 70 + "other", "", "\N{THAI CHARACTER SARA A}"),
]


@pytest.fixture
def ada() -> Any:
    return a_user("ada")


def a_conversation(owner: Any, title: str, *texts: str) -> Conversation:
    row = Conversation.objects.create(owner=owner, title=title[:200])
    for text in texts:
        a_turn(row, user_message(text))
    return row


def a_turn(conversation: Conversation, *items: Any, status: str = "completed") -> Turn:
    turn = Turn.objects.create(conversation=conversation, status=status)
    for position, item in enumerate(items):
        Item.of(turn, position, item, origin=Item.Origin.INPUT).save()
    return turn


def test_a_long_text_has_the_tokens_of_its_words():
    words = [f"Wörd{number}" for number in range(30_000)]
    text = "\u3000".join(["東京都の天気", *words])
    assert len(text) > 4 * PORTION
    found = tokens_of(text)
    assert found == {t for word in [*words, "東京都の天気"] for t in tokens_of(word)}


@pytest.mark.slow
def test_long_messages_are_indexed_one_at_a_time(ada: Any):
    length = 500_000
    text = "many words " * (length // 11)
    for number in range(6):
        a_conversation(ada, f"Long {number}", text)
    tracemalloc.start()
    index()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * length
    assert SearchDocument.objects.count() == 6


def index() -> None:
    for _ in index_pending():
        pass


def found(user: Any, query: str) -> list[str]:
    """Ids of all conversations that are found, page after page."""
    ids: list[str] = []
    while True:
        page = find_conversations(user, query, len(ids))
        ids += [each.id for each in page.conversations]
        if not page.has_more:
            return ids


def scanned(user: Any, query: str) -> set[str]:
    wanted = Query.of(query)
    rows = Item.objects.filter(turn__conversation__owner=user)
    return {
        row.turn.conversation_id
        for row in rows.select_related("turn__conversation")
        if wanted
        and wanted.matches(
            fold(f"{row.turn.conversation.title}\n{text_of(row.payload)}")
        )
    }


def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "BUCKET", 3)
    monkeypatch.setattr(postgresql, "FIRST_PORTION", 4)
    monkeypatch.setattr(postgresql, "LAST_PORTION", 5)
    monkeypatch.setattr(postgresql, "MOST_BUCKETS", 2)


@pytest.mark.parametrize("seed", range(2))
def test_the_index_finds_what_a_scan_finds(
    ada: Any, seed: int, monkeypatch: pytest.MonkeyPatch
):
    if seed:
        small_buckets(monkeypatch)
    chance = random.Random(seed)
    for number in range(60):
        texts = [
            " ".join(chance.choices(WORDS, k=chance.randint(1, 6))) for _ in range(3)
        ]
        a_conversation(ada if number % 3 else a_user(f"u{number}"), *texts)
    index()
    assert not Turn.objects.filter(is_indexed=False).exists()
    for _ in range(60):
        words = chance.choices(WORDS, k=chance.randint(1, 3))
        query = " ".join(word[: chance.randint(1, 80)] for word in words)
        assert set(found(ada, query)) == scanned(ada, query), query


def test_pages_lead_to_the_first_conversation(ada: Any):
    count = 2 * finding.PAGE + 7
    rows = [a_conversation(ada, "", "common words") for _ in range(count)]
    first = a_conversation(ada, "", "common zymurgy")
    index()
    ids = found(ada, "common")
    assert ids == [first.pk, *(row.pk for row in reversed(rows))]
    assert found(ada, "common zym") == [first.pk]


def test_a_rare_word_is_found_behind_any_number_of_common_ones(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    small_buckets(monkeypatch)
    rare = a_conversation(ada, "", "python zymurgy")
    rows = [a_conversation(ada, "", "python") for _ in range(30)]
    index()
    assert found(ada, "python zymurgy") == [rare.pk]
    assert found(ada, "python") == [*(row.pk for row in reversed(rows)), rare.pk]


def test_the_first_page_needs_no_more_queries_the_more_messages_match(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    small_buckets(monkeypatch)
    monkeypatch.setattr(finding, "PAGE", 2)
    monkeypatch.setattr(message_search, "CHUNK", 2)
    numbers = []
    for count in (10, 40):
        other = a_user(f"other{count}")
        for _ in range(count):
            a_conversation(ada, "", "common words")
            a_conversation(other, "", "common words")
        index()
        with CaptureQueriesContext(connection) as captured:
            page = find_conversations(ada, "common wor")
        assert page.has_more
        numbers.append(len(captured))
    assert numbers[0] == numbers[1]


def test_a_new_title_is_indexed_along_with_earlier_messages(ada: Any):
    row = a_conversation(ada, "Old", "needle in hay")
    index()
    assert found(ada, "old needle") == [row.pk]
    row.title = "New"
    row.save(update_fields=["title"])
    for _ in range(2):
        index()
        assert found(ada, "new") == found(ada, "new needle") == [row.pk]
        assert found(ada, "old") == []


def test_a_conversation_without_a_message_is_found_by_its_title(ada: Any):
    row = a_conversation(ada, "Nothing yet")
    index()
    assert found(ada, "nothing") == [row.pk]
    a_turn(row, user_message("hello"))
    index()
    assert found(ada, "nothing") == found(ada, "nothing hello") == [row.pk]


def test_a_corrected_text_is_found_in_its_new_form(ada: Any):
    row = a_conversation(ada, "", "my password is swordfish")
    index()
    item = Item.objects.get(turn__conversation=row)
    item.correct(user_message("my password is (removed)"))
    for _ in range(2):
        assert found(ada, "swordfish") == []
        assert found(ada, "removed") == [row.pk]
        index()


def test_erased_text_leaves_the_index(ada: Any):
    row = a_conversation(ada, "", "swordfish")
    index()
    Turn.objects.filter(conversation=row).delete()
    row.delete()
    assert not SearchDocument.objects.exists()
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM conversations_search")
            assert cursor.fetchone() == (0,)


def test_a_turn_that_goes_on_is_found_at_once_and_indexed_when_it_is_over(ada: Any):
    row = a_conversation(ada, "Talk")
    turn = a_turn(row, user_message("needle"), status=Turn.Status.RUNNING)
    index()
    turn.refresh_from_db()
    assert not turn.is_indexed
    assert found(ada, "needle") == [row.pk]
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    index()
    turn.refresh_from_db()
    assert turn.is_indexed
    assert found(ada, "needle") == [row.pk]


def test_only_messages_of_users_and_models_are_indexed(ada: Any):
    row = Conversation.objects.create(owner=ada, title="Talk")
    interrupted = {**message("assistant", "cut needle"), "parley:interrupted": True}
    a_turn(row, message("developer", "needle"), interrupted)
    index()
    assert found(ada, "needle") == []


def test_a_message_with_more_words_than_an_index_takes_is_found(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(postgresql, "MOST_TOKENS", 1000)
    many = a_conversation(ada, "", " ".join(f"word{n}" for n in range(500)))
    a_conversation(ada, "", "few words")
    index()
    assert found(ada, "word499 word1") == [many.pk]
    assert found(ada, "word500") == []


def test_documents_of_earlier_versions_are_found_before_and_after_their_conversion(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite's documents have not changed")
    small_buckets(monkeypatch)
    texts = ["needle é", "hay", "", "it's needless", "too many: needle", "needle"]
    old = [a_conversation(ada, "", text) for text in texts]
    eve = a_conversation(a_user("eve"), "", "needle")
    index()
    with connection.cursor() as cursor:
        # As version 0.1 wrote them, the fifth as one with too many words.
        cursor.execute(
            "UPDATE conversations_searchdocument SET entries = NULL, tokens ="
            " array_to_tsvector(chr(57344) || owner_id::text || CASE"
            " WHEN conversation_id = %s THEN ARRAY[chr(57345)] ELSE ARRAY("
            "SELECT split_part(lexeme, '/', 3) FROM"
            " unnest(tsvector_to_array(entries)) AS lexeme) END)",
            [old[4].pk],
        )
    new = a_conversation(ada, "", "needle")
    index_turns_only = index_pending()
    assert next(index_turns_only) == {"turns": 1}
    needles = [new.pk, old[5].pk, old[4].pk, old[3].pk, old[0].pk]
    for _ in range(2):
        assert found(ada, "needl") == needles
        assert found(ada, "needle e") == [old[0].pk]
        assert found(ada, "it's") == [old[3].pk]
        assert found(eve.owner, "needle") == [eve.pk]
        index()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(tokens), count(entries) FROM conversations_searchdocument"
        )
        assert cursor.fetchone() == (0, SearchDocument.objects.count())


def test_documents_with_tokens_of_an_earlier_version_are_written_anew(ada: Any):
    old = [a_conversation(ada, "", f"an _emphasis_ and needle {n}") for n in range(3)]
    waiting = a_turn(old[0], user_message("needle"))
    index()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE conversations_searchdocument SET tokens_version = NULL")
        if connection.vendor == "sqlite":
            cursor.execute(
                "UPDATE conversations_search SET tokens = replace(tokens, 'emph', '_')"
            )
    Turn.objects.filter(pk=waiting.pk).update(
        is_indexed=False, status=Turn.Status.WAITING
    )
    pks = [row.pk for row in reversed(old)]
    assert found(ada, "needle") == [old[0].pk, *pks[:2]]
    assert not find_conversations(ada, "emphasis").is_complete
    steps = list(index_pending())
    assert steps == [{"renewed turns": 3}]
    assert find_conversations(ada, "emphasis").is_complete
    assert found(ada, "emphasis") == pks
    assert list(index_pending()) == []


@pytest.mark.slow
def test_a_message_of_a_million_words_is_indexed(ada: Any):
    text = " ".join(f"{n:x}" for n in range(200_000))
    row = a_conversation(ada, "", text)
    index()
    assert found(ada, "30d3f") == [row.pk]


def test_a_search_reports_while_old_messages_are_not_indexed(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(message_search, "MAX_UNINDEXED", 2)
    a_conversation(ada, "", "one", "two", "three")
    assert not find_conversations(ada, "three").is_complete
    index()
    assert find_conversations(ada, "three").is_complete


def test_a_search_reads_no_more_than_so_much_by_itself(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(message_search, "MAX_UNINDEXED_TEXT", 10)
    a_conversation(ada, "", "needle one")
    a_conversation(ada, "", "a longer text with a needle")
    assert len(find_conversations(ada, "needle").conversations) == 1
    assert not find_conversations(ada, "needle").is_complete
    index()
    assert len(find_conversations(ada, "needle").conversations) == 2
    assert find_conversations(ada, "needle").is_complete


def test_a_message_without_content_hides_no_other(ada: Any):
    row = a_conversation(ada, "", "needle")
    odd = [{"type": "message", "role": "user"}, {**user_message("x"), "content": [7]}]
    for payload in odd:
        a_turn(row, payload)
    for _ in range(2):
        assert found(ada, "needle") == [row.pk]
        index()


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def stored(content: str) -> str:
    return f'{{"type": "message", "role": "user", "content": {content}}}'


MALFORMED = {
    "a list": "[1, [2]]",
    "null": "null",
    "a number": "7",
    "a string": '"needle"',
    "no type": '{"role": "user", "content": "x"}',
    "odd role": '{"type": "message", "role": ["user"], "content": "needle"}',
    "a number as content": stored("1e400"),
    "an object as content": stored('{"a": 1}'),
    "odd parts": stored('[null, [], {"text": 7}]'),
    "deep": stored(deep(900)),
    "deeper": stored(deep(1990)),
    "a long word": stored(f'"{"x" * 3_000_000}"'),
    "NUL": stored(r'"a\u0000b"'),
    "half a letter": stored(r'"a\ud800b"'),
}


@pytest.mark.parametrize("odd", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_message_stops_no_other_from_being_indexed(ada: Any, odd: str):
    before = a_conversation(ada, "", "needle before")
    poisoned = a_conversation(ada, "")
    turn = a_turn(poisoned, user_message("to be replaced"), user_message("needle in"))
    after = a_conversation(ada, "", "needle after")
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "UPDATE conversations_item SET payload = %s"
                " WHERE turn_id = %s AND position = 0",
                [odd, turn.pk],
            )
    except DatabaseError:
        if connection.vendor == "sqlite":
            raise
        pytest.skip("PostgreSQL stores no JSON that is malformed")
    everything = [after.pk, poisoned.pk, before.pk]
    for _ in range(2):
        assert found(ada, "needle") == everything
        index()
    assert not Turn.objects.filter(is_indexed=False).exists()


@pytest.mark.parametrize("title", ["", "needle"], ids=["message", "title"])
def test_conversations_of_others_are_not_found(ada: Any, title: str):
    theirs = a_conversation(a_user("eve"), title, *([] if title else ["needle"]))
    for _ in range(2):  # before and after it is indexed
        assert found(ada, "needle") == []
        assert found(theirs.owner, "needle") == [theirs.pk]
        index()


def test_a_search_for_any_word_matches_one_of_them(ada: Any):
    one = a_conversation(ada, "", "tea")
    other = a_conversation(ada, "", "coffee")
    for _ in range(2):
        search = MessageSearch.of(ada.pk, Query.of("coffee tea milk"), needs_all=False)
        assert [match.conversation for match in search] == [other.pk, one.pk]
        index()


def test_tokens_are_the_beginnings_that_terms_look_for():
    for text in WORDS:
        query = Query.of(text)
        tokens = tokens_of(text)
        for terms in query.terms:
            for term in terms:
                assert any(token.startswith(term) for token in tokens)
