"""What people find in their conversations by its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from conversations.models import Conversation, Item, Turn
from conversations.pages.transcript import FOLLOWING, WINDOW, transcript
from conversations.search import results as finding
from conversations.search.index import index_pending
from conversations.search.results import MAX_QUERY, HighlightedText, SearchResult
from llm.wire.items import message, user_message
from tests.conversations.page_scene import ada, model, page_of, read, submitted, web
from tests.conversations.scene import a_user

__all__ = ["ada", "model", "submitted", "web"]
pytestmark = pytest.mark.django_db


@pytest.fixture(params=["from the index", "before it is indexed"], autouse=True)
def is_indexed(request: pytest.FixtureRequest) -> bool:
    """All that is found is found in both ways."""
    return request.param == "from the index"


@pytest.fixture
def find(is_indexed: bool) -> Any:
    def find(user: Any, query: str) -> list[SearchResult]:
        if is_indexed:
            list(index_pending())
        return list(finding.find_conversations(user, query).conversations)

    return find


def a_talk(owner: Any, title: str, *texts: str) -> Conversation:
    conversation = Conversation.objects.create(owner=owner, title=title)
    for text in texts:
        turn_with(conversation, user_message(text))
    return conversation


def turn_with(conversation: Conversation, *items: Any) -> Turn:
    before = conversation.turns.order_by("-created_at", "-pk").first()
    turn = Turn.objects.create(
        conversation=conversation, parent=before, status=Turn.Status.COMPLETED
    )
    for position, item in enumerate(items):
        Item.of(turn, position, item, origin=Item.Origin.INPUT).save()
    return turn


def text_of(pieces: Sequence[HighlightedText]) -> str:
    return "".join(f"[{p.text}]" if p.is_match else p.text for p in pieces)


def titles(found: list[SearchResult]) -> list[str]:
    return [text_of(each.title) for each in found]


def test_words_are_found_in_titles_and_messages(find: Any, ada: Any):
    a_talk(ada, "Trip to Paris", "Where to eat?")
    a_talk(ada, "Dinner", "What do people eat in paris?")
    a_talk(ada, "Oslo", "How cold is it?")
    assert titles(find(ada, "PARIS")) == ["Dinner", "Trip to [Paris]"]
    [by_text, by_title] = find(ada, "paris")
    assert text_of(by_text.excerpt) == "What do people eat in [paris]?"
    assert by_text.turn_id == Turn.objects.get(conversation__title="Dinner").pk
    assert (by_title.excerpt, by_title.turn_id) == ((), "")


def test_all_words_must_be_there_though_one_may_stand_in_the_title(find: Any, ada: Any):
    a_talk(ada, "Trip to Paris", "Where to eat?")
    a_talk(ada, "Paris in spring")
    assert titles(find(ada, "eat paris")) == ["Trip to [Paris]"]
    assert find(ada, "eat oslo") == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("東京", "明日の東京の天気は？"),
        ("cafe\N{COMBINING ACUTE ACCENT}", "Ein CAFÉ in Łódź"),
        ("łódź", "Ein CAFÉ in Łódź"),
        ("cafe lodz", "Ein CAFÉ in Łódź"),
        ("京の天気は", "明日の東京の天気は？"),
        ("天", "明日の東京の天気は？"),
        ("ทำไม", "แล้วทำไมล่ะ"),
        ("हिन्दी", "यह हिन्दी है"),
        ("weath", "The weather"),
        ("strasse", "Die STRASSE, die Straße"),
        ("foo_bar", "call foo_bar2()"),
        ("the", "The"),
        (".*", "(.*)"),
        ("100%", "100 % of_it"),
    ],
)
def test_words_of_all_languages_are_found(find: Any, ada: Any, query: str, text: str):
    a_talk(ada, "", text)
    assert bool(find(ada, query)) == (query != ".*")  # there is no word in that


@pytest.mark.parametrize("query", ["", "  ", "...", "x" * 5 * MAX_QUERY])
def test_a_query_without_words_finds_nothing(find: Any, ada: Any, query: str):
    a_talk(ada, "x", "... and so on")
    assert find(ada, query) == []


def test_other_users_deleted_and_unsent_texts_are_not_found(find: Any, ada: Any):
    a_talk(a_user("eve"), "Paris")
    a_talk(ada, "Paris").delete_softly()
    talk = a_talk(ada, "Work")
    turn_with(talk, message("developer", "Speak of Paris."))
    turn_with(talk, {**message("assistant", "Paris"), "parley:interrupted": True})
    assert find(ada, "paris") == []


def test_an_excerpt_shows_the_words_in_the_midst_of_a_long_text(find: Any, ada: Any):
    a_talk(ada, "Long", f"{'before ' * 99}needle {'after ' * 99}")
    [found] = find(ada, "needle")
    excerpt = text_of(found.excerpt)
    assert excerpt.startswith("…before")
    assert "before [needle] after" in excerpt
    assert excerpt.endswith("…")
    assert len(excerpt) < 150


def test_a_search_takes_as_many_queries_however_much_there_is(
    find: Any, ada: Any, django_assert_max_num_queries: Any
):
    for number in range(20):
        a_talk(ada, f"Talk {number}", "needle", "hay", "needle")
    find(ada, "needle")  # so that all is indexed that is to be
    with django_assert_max_num_queries(7):
        assert len(finding.find_conversations(ada, "needle").conversations) == 20


# In the sidebar


def test_results_appear_in_the_sidebar_and_link_to_their_message(web: Client, ada: Any):
    talk = a_talk(ada, "Dinner", "Why <b>?", "What to eat in Paris")
    a_talk(ada, "Oslo")
    for path in ("/", "/chats/", page_of(talk)):
        page_text = read(web.get(path, {"q": "eat paris"}))
        assert "Found “eat paris” Dinner What to eat in Paris" in page_text
        assert "Oslo" not in page_text
    turn = talk.turns.latest("created_at")
    link = f"?q=eat%20paris&amp;at={turn.pk}#turn-{turn.pk}"
    page = web.get("/", {"q": "eat paris"}).content.decode()
    assert f'{page_of(talk)}{link}"' in page
    assert 'value="eat paris"' in page


def test_search_terms_and_results_are_escaped(web: Client, ada: Any):
    a_talk(ada, "<i>x</i>", "<b>y</b>")
    page = web.get("/chats/", {"q": "<b>y"}).content.decode()
    assert "&lt;<mark>b</mark>&gt;<mark>y</mark>&lt;/<mark>b</mark>&gt;" in page
    assert "“&lt;b&gt;y”" in page
    assert "<b>" not in page


@pytest.mark.parametrize("query", ["zebra", "\0", "%", "&q=1"])
def test_an_empty_result_is_reported(web: Client, ada: Any, query: str):
    a_talk(ada, "Oslo")
    page_text = read(web.get("/chats/", {"q": query}))
    assert ("Nothing found for" in page_text) == (query != "\0")


def test_a_place_far_back_is_shown_with_what_follows_it(ada: Any):
    talk = a_talk(ada, "Long", *[str(number) for number in range(3 * WINDOW)])
    turns = list(talk.turns.order_by("created_at", "pk"))
    window = transcript(talk, talk.owner, at=turns[5].pk)
    assert window.turns[0].turn == turns[0]
    assert window.turns[-1].turn == turns[5 + FOLLOWING]
    assert not window.is_latest
    assert not window.has_earlier
    assert transcript(talk, talk.owner, at=turns[-3].pk).is_latest
    assert transcript(talk, talk.owner, at="resp_none").is_latest


def test_a_link_to_a_place_leads_there(find: Any, web: Client, ada: Any):
    talk = a_talk(ada, "Long", "needle", *["hay"] * (2 * WINDOW))
    [found] = find(ada, "needle")
    page = web.get(page_of(talk), {"q": "needle", "at": found.turn_id})
    assert f'id="turn-{found.turn_id}"' in page.content.decode()
    assert urlsplit(page.request["PATH_INFO"]).path == page_of(talk)


def test_a_conversation_that_is_erased_meanwhile_is_left_out(
    find: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
):
    a_talk(ada, "Stays", "needle")
    gone = a_talk(ada, "Goes", "needle")
    build = finding.build_results

    def erase_first(*args: Any) -> Any:
        gone.turns.all().delete()
        gone.delete()
        return build(*args)

    monkeypatch.setattr(finding, "build_results", erase_first)
    assert titles(find(ada, "needle")) == ["Stays"]
