"""Read-only links: who opens them, what they show, and what ends them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access import sharing
from conversations.access.sharing import create_link
from conversations.models import (
    Attachment,
    Conversation,
    Item,
    ShareLink,
    ShareRule,
    ToolCall,
    Turn,
)
from conversations.pages import share_views
from conversations.pages.shared_transcript import line_of
from conversations.turns import waiting_messages
from conversations.turns.attachments import store
from conversations.turns.branches import continuation_items
from llm.models import LanguageModel
from llm.wire.items import CITED_TEXT, function_call_output, message, user_message
from tests.conversations.page_scene import (
    CALL,
    THOUGHT,
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    submitted,
    web,
)
from tests.conversations.scene import (
    a_finished_turn,
    a_user,
    program,
    signed_in,
    staff,
)
from tools.loop.late_results import result_message

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture(autouse=True)
def anything_goes(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SHARE_LINKS = "public"
    # All tests of a process view from one address.
    monkeypatch.setattr(sharing, "VIEWS_PER_MINUTE", 10_000)


def a_link(conversation: Conversation, **fields: Any) -> ShareLink:
    given = {"audience": "public", "kind": "snapshot", **fields}
    return create_link(conversation, conversation.owner, given)


def address(link: ShareLink) -> str:
    return reverse("shared", args=[link.token.reveal()])


def opened(link: ShareLink, by: Client | None = None) -> str:
    response = (by or Client()).get(address(link))
    assert response.status_code == 200
    return read(response)


def is_closed(link: ShareLink, by: Client | None = None) -> bool:
    response = (by or Client()).get(address(link))
    return response.status_code == 404 and "Hello!" not in read(response)


def add(turn: Turn, payload: Any, **fields: Any) -> Item:
    at = turn.items.count()
    item = Item.of(turn, at, payload, origin=fields.pop("origin", Item.Origin.OUTPUT))
    item.save()
    return item


# Making one


def test_a_link_is_made_on_the_page_and_opens_without_signing_in(
    web: Client, conversation: Conversation
):
    a_finished_turn(conversation)
    form = {"audience": "public", "kind": "snapshot"}
    made = web.post(reverse("share", args=[conversation.pk]), form, follow=True)
    link = ShareLink.objects.get()
    assert f"http://testserver{address(link)}" in read(made)
    assert "Hello!" in opened(link)


def test_a_long_answer_is_shown_whole_with_its_formats(conversation: Conversation):
    paragraphs = [f"Part **{number}** of it." for number in range(2_000)]
    answer = message("assistant", "\n\n".join(paragraphs))
    a_turn(conversation, Turn.Status.COMPLETED, answer)
    html = Client().get(address(a_link(conversation))).content.decode()
    assert html.count("<strong>") == 2_000
    assert "**" not in html


def test_the_database_holds_no_token_in_the_clear(conversation: Conversation):
    a_finished_turn(conversation)
    link = a_link(conversation)
    token = link.token.reveal()
    assert len(token) >= 43  # 256 bits
    row = ShareLink.objects.filter(pk=link.pk).values()[0]
    assert token not in str(row)


def test_nobody_shares_a_conversation_of_another_user(conversation: Conversation):
    a_finished_turn(conversation)
    bob = a_user("bob")
    link = a_link(conversation)
    share = reverse("share", args=[conversation.pk])
    api = reverse("api:conversation-shares", args=[conversation.pk])
    form = {"audience": "public", "kind": "snapshot"}
    for client in (signed_in(bob), program(bob)):
        assert client.get(api).status_code == 404
        assert client.post(api, form, "application/json").status_code == 404
        one = reverse("api:share", args=[link.pk])
        assert client.get(one).status_code == client.delete(one).status_code == 404
    assert signed_in(bob).get(share).status_code == 404
    assert signed_in(bob).post(share, form).status_code == 404
    revoke = reverse("revoke-share", args=[link.pk])
    assert signed_in(bob).post(revoke).status_code == 404
    assert link.pk not in read(signed_in(bob).get(reverse("shares")))
    assert ShareLink.objects.filter(revoked_at=None).count() == 1


def test_programs_make_list_and_revoke_links(ada: Any, conversation: Conversation):
    a_finished_turn(conversation)
    api, here = program(ada), reverse("api:conversation-shares", args=[conversation.pk])
    fields = {"audience": "signed_in", "kind": "live", "days": 2}
    made = api.post(here, fields, "application/json")
    assert made.status_code == 201
    assert made.json()["url"].startswith("http://testserver/shared/")
    assert [link["id"] for link in api.get(here).json()["data"]] == [made.json()["id"]]
    one = reverse("api:share", args=[made.json()["id"]])
    assert api.delete(one).status_code == 204
    assert api.get(one).status_code == 404
    assert api.get(reverse("api:shares")).json()["results"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"audience": "everyone"},
        {"audience": "group"},
        {"audience": "group", "group": 10**12},
        {"audience": "public", "days": 10**9},
        {"audience": "public", "turn": "resp_none"},
        {"audience": "public", "kind": "both"},
    ],
)
def test_invalid_fields_are_named(ada: Any, conversation: Conversation, fields: Any):
    a_finished_turn(conversation)
    here = reverse("api:conversation-shares", args=[conversation.pk])
    answer = program(ada).post(here, fields, "application/json")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in fields | {"group": 1}
    assert not ShareLink.objects.exists()


def test_an_empty_conversation_has_nothing_to_share(
    web: Client, conversation: Conversation
):
    form = {"audience": "public", "kind": "snapshot"}
    answer = web.post(reverse("share", args=[conversation.pk]), form)
    assert answer.status_code == 400
    assert "nothing to share yet" in read(answer)


def test_the_number_of_links_is_bounded(
    monkeypatch: pytest.MonkeyPatch, web: Client, conversation: Conversation
):
    a_finished_turn(conversation)
    monkeypatch.setattr(sharing, "MAX_LINKS", 1)
    form = {"audience": "public", "kind": "snapshot"}
    page = reverse("share", args=[conversation.pk])
    assert web.post(page, form).status_code == 302
    assert web.post(page, form).status_code == 400


# Staff's policy


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("off", []),
        ("group", ["group"]),
        ("signed_in", ["group", "signed_in"]),
        ("public", ["group", "signed_in", "public"]),
    ],
)
def test_the_setting_bounds_the_audience(
    settings: Any, ada: Any, setting: str, allowed: list[str]
):
    settings.SHARE_LINKS = setting
    assert sharing.allowed_audiences(ada) == allowed


def test_a_rule_for_a_group_replaces_the_setting_for_its_members(
    settings: Any, ada: Any
):
    strict, free = Group.objects.create(name="s"), Group.objects.create(name="f")
    ShareRule.objects.create(group=strict, widest="off")
    ada.groups.add(strict)
    assert sharing.allowed_audiences(ada) == []
    assert sharing.widest_audience(a_user("bob")) == "public"
    ShareRule.objects.create(group=free, widest="group")
    ada.groups.add(free)
    assert sharing.allowed_audiences(ada) == ["group"]


def test_a_narrower_setting_ends_existing_links(
    settings: Any, conversation: Conversation
):
    a_finished_turn(conversation)
    link = a_link(conversation)
    assert "Hello!" in opened(link)
    settings.SHARE_LINKS = "signed_in"
    assert is_closed(link, signed_in(a_user("bob")))


def test_a_forbidden_audience_is_refused_however_it_is_sent(
    settings: Any, ada: Any, web: Client, conversation: Conversation
):
    settings.SHARE_LINKS = "group"
    a_finished_turn(conversation)
    form = {"audience": "public", "kind": "snapshot"}
    assert web.post(reverse("share", args=[conversation.pk]), form).status_code == 400
    here = reverse("api:conversation-shares", args=[conversation.pk])
    assert program(ada).post(here, form, "application/json").status_code == 400


@pytest.mark.parametrize("setting", ["public", "off"])
def test_the_dialog_can_be_left_also_where_links_are_switched_off(
    settings: Any, web: Client, conversation: Conversation, setting: str
):
    settings.SHARE_LINKS = setting
    html = web.get(reverse("share", args=[conversation.pk])).content.decode()
    part = html[html.index("data-dialog-part") :]
    assert part.count("data-cancel") == 1


# Opening one


def test_a_link_for_people_who_are_signed_in_asks_others_to_sign_in(
    conversation: Conversation,
):
    a_finished_turn(conversation)
    link = a_link(conversation, audience="signed_in")
    answer = Client().get(address(link))
    assert answer.headers["Location"] == f"/login/?next={address(link)}"
    assert "Hello!" in opened(link, signed_in(a_user("bob")))


def test_a_link_for_a_group_opens_for_its_members_while_the_owner_is_one(
    ada: Any, web: Client, conversation: Conversation
):
    a_finished_turn(conversation)
    group = Group.objects.create(name="chemists")
    ada.groups.add(group)
    link = a_link(conversation, audience="group", group=group)
    bob, eve = a_user("bob"), a_user("eve")
    bob.groups.add(group)
    assert "Hello!" in opened(link, signed_in(bob))
    assert is_closed(link, signed_in(eve))
    ada.groups.remove(group)
    assert is_closed(link, signed_in(bob))
    assert "Hello!" in opened(link, web)


def test_another_group_of_the_site_is_not_offered(ada: Any, conversation: Conversation):
    a_finished_turn(conversation)
    others = Group.objects.create(name="others")
    here = reverse("api:conversation-shares", args=[conversation.pk])
    fields = {"audience": "group", "group": others.pk}
    answer = program(ada).post(here, fields, "application/json")
    assert answer.status_code == 400


def end_by_revoking(link: ShareLink) -> None:
    signed_in(link.owner).post(reverse("revoke-share", args=[link.pk]))


def end_by_time(link: ShareLink) -> None:
    past = timezone.now() - timedelta(seconds=1)
    ShareLink.objects.filter(pk=link.pk).update(expires_at=past)


def end_by_deleting_the_conversation(link: ShareLink) -> None:
    link.conversation.delete_softly()


def end_by_deactivating_the_owner(link: ShareLink) -> None:
    type(link.owner).objects.filter(pk=link.owner_id).update(is_active=False)


@pytest.mark.parametrize(
    "end",
    [
        end_by_revoking,
        end_by_time,
        end_by_deleting_the_conversation,
        end_by_deactivating_the_owner,
    ],
)
def test_an_ended_link_opens_for_nobody(conversation: Conversation, end: Any):
    a_finished_turn(conversation)
    link = a_link(conversation)
    bob = signed_in(a_user("bob"))
    assert "Hello!" in opened(link, bob)
    end(link)
    assert is_closed(link)
    assert is_closed(link, bob)


def test_wrong_tokens_are_answered_alike(client: Client, conversation: Conversation):
    a_finished_turn(conversation)
    link = a_link(conversation)
    link.revoke()
    revoked = client.get(address(link))
    unknown = client.get(reverse("shared", args=["x" * 43]))
    endless = client.get(reverse("shared", args=["x" * 5000]))
    assert [a.status_code for a in (revoked, unknown, endless)] == [404] * 3
    assert read(revoked) == read(unknown) == read(endless)


def test_the_page_is_neither_cached_indexed_nor_named_to_others(
    conversation: Conversation,
):
    a_finished_turn(conversation)
    link = a_link(conversation)
    for answer in (Client().get(address(link)), Client().get("/shared/wrong/")):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "noindex" in answer.headers["X-Robots-Tag"]


def test_no_log_has_the_token(
    caplog: pytest.LogCaptureFixture, conversation: Conversation
):
    a_finished_turn(conversation)
    group = Group.objects.create(name="g")
    conversation.owner.groups.add(group)
    link = a_link(conversation, audience="group", group=group)
    assert is_closed(link, signed_in(a_user("bob")))
    assert link.token.reveal() not in caplog.text


def test_no_log_of_a_fault_has_the_token(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    conversation: Conversation,
):
    a_finished_turn(conversation)
    link = a_link(conversation)
    monkeypatch.setattr(share_views, "find_open_link", lambda *_: 1 / 0)
    browser = Client(raise_request_exception=False)
    assert browser.get(address(link)).status_code == 500
    assert "/shared/…/" in caplog.text
    assert link.token.reveal() not in caplog.text


def test_views_of_an_address_are_limited_also_for_wrong_tokens(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sharing, "VIEWS_PER_MINUTE", 2)
    someone = Client(REMOTE_ADDR="192.0.2.77")
    codes = [someone.get("/shared/wrong/").status_code for _ in range(3)]
    assert codes == [404, 404, 429]
    other = Client(REMOTE_ADDR="192.0.2.78")
    assert other.get("/shared/wrong/").status_code == 404


def test_views_are_counted_but_not_the_owners(web: Client, conversation: Conversation):
    a_finished_turn(conversation)
    link = a_link(conversation)
    opened(link)
    opened(link, web)
    opened(link, signed_in(a_user("bob")))
    link.refresh_from_db()
    assert link.views == 2


# What it shows


def test_nothing_can_be_written_or_followed_from_the_page(conversation: Conversation):
    a_finished_turn(conversation)
    link = a_link(conversation)
    page = Client().get(address(link)).content.decode()
    assert "<form" not in page
    assert "<textarea" not in page
    assert conversation.pk not in page
    assert "/api/" not in page
    assert Client().post(address(link)).status_code == 405


def test_the_owners_name_is_shown_only_if_chosen(conversation: Conversation):
    a_finished_turn(conversation)
    assert "ada" not in opened(a_link(conversation))
    assert "Shared by ada" in opened(a_link(conversation, shows_owner=True))


def test_instructions_and_other_roles_are_never_shown(conversation: Conversation):
    conversation.instructions = "secret prompt"
    conversation.save()
    system = {**message("system", "secret rule"), "id": "msg_s"}
    turn = conversation.open_turn([system, user_message("Hi")]).turn
    Turn.objects.filter(pk=turn.pk).update(status="completed")
    everything = dict.fromkeys(sharing.SHOWN, True)
    shown = opened(a_link(conversation, **everything))
    assert "Hi" in shown
    assert "secret" not in shown


def a_tool_turn(conversation: Conversation, name: str = "weather_demo") -> Turn:
    call = {**CALL, "name": name}
    output = function_call_output("call_1", "It rains frogs.")
    turn = a_turn(conversation, "completed", THOUGHT, call, output, message_of("Done."))
    now = timezone.now()
    turn.tool_calls.create(
        call_id="call_1",
        name=name,
        state=ToolCall.State.COMPLETED,
        output="It rains frogs.",
        ended_at=now,
    )
    Turn.objects.filter(pk=turn.pk).update(finished_at=now)
    return turn


def message_of(text: str) -> Any:
    return message("assistant", text)


PARTS = {
    "shows_reasoning": "It is about",
    "shows_arguments": "Paris",
    "shows_results": "frogs",
}


@pytest.mark.parametrize("kind", ["snapshot", "live"])
@pytest.mark.parametrize("chosen", [None, *PARTS])
def test_thoughts_arguments_and_results_are_shown_only_if_chosen(
    conversation: Conversation, chosen: str | None, kind: str
):
    Conversation.objects.filter(pk=conversation.pk).update(title="Weather")
    conversation.refresh_from_db()
    call_only = {
        **THOUGHT,
        "summary": [{"type": "summary_text", "text": "It is about"}],
    }
    turn = a_tool_turn(conversation)
    turn.items.filter(type="reasoning").update(payload=call_only)
    link = a_link(conversation, kind=kind, **({chosen: True} if chosen else {}))
    shown = opened(link)
    assert "weather_demo" in shown
    for part, words in PARTS.items():
        assert (words in shown) == (part == chosen), part


@pytest.mark.parametrize("shows", [True, False])
def test_words_of_sources_and_names_of_files_are_shown_only_with_the_results(
    conversation: Conversation, shows: bool
):
    place = {"start_index": 0, "end_index": 9}
    page = {"type": "url_citation", "url": "https://a.test/1", "title": "Weather"}
    file = {"type": "file_citation", "filename": "Salaries.pdf"}
    answer = message_of(
        "It rains.\n\n```html\n<p>\n1\n2\n3\n4\n</p>\n```\n\nNot[^a].\n\n[^a]: So."
    )
    answer["content"][0]["annotations"] = [
        {**file, **place, CITED_TEXT: "Ada earns much"},
        {**page, **place, CITED_TEXT: "Frogs in Oslo"},
    ]
    a_turn(conversation, "completed", answer)
    shown = opened(a_link(conversation, shows_results=shows))
    assert "Weather" in shown
    link = a_link(conversation, shows_results=shows)
    html = Client().get(address(link)).content.decode()
    numbers = re.findall(r'<sup class="cite"><a href="#([^"]+)"', html)
    assert len(numbers) == 2
    assert re.findall(r'<li id="([^"]+-source-\d)"', html) == numbers
    assert html.count('<sup class="note-ref"><a id=') == 1
    assert "artifact-link" not in html  # only the owner opens artifacts
    for words in ("Frogs in Oslo", "Salaries.pdf", "Ada earns much"):
        assert (words in shown) == shows, words


def test_a_page_of_answers_is_rendered_up_to_its_budget(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(share_views, "MAX_RENDERED", 12)
    for number in range(4):
        a_finished_turn(conversation, "Say it", f"**loud {number}**")
    link = a_link(conversation)
    html = Client().get(address(link)).content.decode()
    assert html.count("<strong>") == 2
    assert '<p class="plain" dir="auto">**loud 2**</p>' in html
    assert '<p class="plain" dir="auto">**loud 3**</p>' in html


def test_thoughts_count_for_the_budget_of_the_page(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(share_views, "MAX_RENDERED", 5)
    thought = {**THOUGHT, "summary": [{"type": "summary_text", "text": "**so so**"}]}
    a_turn(conversation, "completed", thought, message_of("**loud**"))
    link = a_link(conversation, shows_reasoning=True)
    html = Client().get(address(link)).content.decode()
    assert html.count("<strong>") == 1
    assert '<p class="plain" dir="auto">**loud**</p>' in html


@pytest.mark.parametrize("tool", ["recall", "remember", "get_history", "get_context"])
def test_memories_chats_and_context_are_not_shown_even_so(
    conversation: Conversation, tool: str
):
    Conversation.objects.filter(pk=conversation.pk).update(title="Weather")
    conversation.refresh_from_db()
    a_tool_turn(conversation, tool).items.filter(type="reasoning").delete()
    shown = opened(a_link(conversation, shows_arguments=True, shows_results=True))
    assert "frogs" not in shown
    assert "Paris" not in shown


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("has_row", [True, False])
def test_private_results_of_background_calls_are_shown_in_no_language(
    conversation: Conversation, language: str, has_row: bool
):
    turn = a_turn(conversation, "completed", message_of("Searching."))
    add(turn, result_message("call_1", "recall", "It rains frogs."))
    if has_row:
        turn.tool_calls.create(
            call_id="call_1",
            name="recall",
            state=ToolCall.State.COMPLETED,
            blocking=False,
            output="It rains frogs.",
            ended_at=timezone.now(),
            delivered_in=turn,
        )
    Turn.objects.filter(pk=turn.pk).update(finished_at=timezone.now())
    link = a_link(conversation, shows_arguments=True, shows_results=True)
    reader = Client(headers={"Accept-Language": language})
    assert "frogs" not in opened(link, reader)


def test_the_request_to_go_on_is_not_shown_as_the_owner_s_words(
    conversation: Conversation,
):
    conversation.open_turn(continuation_items())
    shown = opened(a_link(conversation))
    assert "Continued" in shown
    assert "Go on exactly" not in shown


def test_a_provider_s_error_is_not_shown(conversation: Conversation):
    error = {"code": "E_X", "message": "key sk-123 of host.internal"}
    a_turn(conversation, "failed", error=error, finished_at=timezone.now())
    shown = opened(a_link(conversation))
    assert "could not be finished" in shown
    assert "sk-123" not in shown


# Snapshot and live


def test_a_snapshot_shows_nothing_that_came_later(conversation: Conversation):
    turn = a_finished_turn(conversation)
    snapshot, live = a_link(conversation), a_link(conversation, kind="live")
    add(turn, message_of("more of the answer"))
    a_finished_turn(conversation, "Second?", "Second!")
    Turn.objects.filter(pk=turn.pk).update(partial=[message_of("half a word")])
    assert "Second" not in opened(snapshot)
    assert "more of the answer" not in opened(snapshot)
    assert "half a word" not in opened(snapshot)
    assert "Second!" in opened(live)
    assert "more of the answer" in opened(live)


@pytest.mark.parametrize("by", ["page", "api"])
def test_a_snapshot_keeps_its_title_and_a_live_link_follows(
    web: Client, ada: Any, conversation: Conversation, by: str
):
    a_finished_turn(conversation)
    snapshot, live = a_link(conversation), a_link(conversation, kind="live")
    if by == "page":
        renamed = web.post(f"/chat/{conversation.pk}/rename/", {"title": "Divorce"})
        assert renamed.status_code == 302
    else:
        here = f"/api/conversations/{conversation.pk}/"
        renamed = program(ada).patch(here, {"title": "Divorce"}, "application/json")
        assert renamed.status_code == 200
    for reader in (Client(), signed_in(a_user("bob"))):
        shown = reader.get(address(snapshot)).content.decode()
        assert "Divorce" not in shown
        assert shown.count("Paris") == 2  # the title and the heading
        assert "Divorce" in opened(live, reader)


def test_the_title_that_is_kept_comes_from_the_conversation_only(
    ada: Any, conversation: Conversation
):
    a_finished_turn(conversation)
    here = reverse("api:conversation-shares", args=[conversation.pk])
    fields = {"audience": "public", "title": "Forged"}
    made = program(ada).post(here, fields, "application/json")
    assert made.status_code == 400
    assert made.json()["error"]["param"] == "title"
    form = {"audience": "public", "kind": "snapshot", "title": "Forged"}
    signed_in(ada).post(reverse("share", args=[conversation.pk]), form)
    assert "Forged" not in opened(ShareLink.objects.get())


def test_what_was_said_while_the_answer_was_written_is_shown(
    conversation: Conversation,
):
    turn = a_finished_turn(conversation)
    add(turn, user_message("In <i>euros</i>, please."))
    snapshot = a_link(conversation)
    add(turn, user_message("And in dollars."))
    assert "In <i>euros</i>, please." in opened(snapshot)
    assert "And in dollars." not in opened(snapshot)
    assert "And in dollars." in opened(a_link(conversation))


def test_a_result_that_came_later_is_not_in_a_snapshot(conversation: Conversation):
    turn = a_turn(conversation, "completed", CALL, message_of("Wait."))
    call = turn.tool_calls.create(call_id="call_1", name="dig", blocking=False)
    link = a_link(conversation, shows_results=True)
    call.output, call.state = "late frogs", ToolCall.State.COMPLETED
    call.ended_at = timezone.now()
    call.save()
    assert "late frogs" not in opened(link)
    live = a_link(conversation, shows_results=True, kind="live")
    assert "late frogs" in opened(live)


def test_a_live_link_shows_no_message_that_waits(conversation: Conversation):
    a_finished_turn(conversation)
    link = a_link(conversation, kind="live")
    running = conversation.open_turn([user_message("Now")]).turn
    waiting = conversation.open_turn([user_message("A draft")]).turn
    conversation.open_turn([user_message("Another")])
    assert line_of(link)[-1] == running.pk
    assert "A draft" not in opened(link)
    Turn.objects.filter(pk=running.pk).update(status="completed")
    assert line_of(link)[-1] == waiting.pk


def test_only_the_shared_branch_is_shown(conversation: Conversation):
    first = a_finished_turn(conversation, "One", "First!")
    left = a_finished_turn(conversation, "Left", "LEFT!")
    right = a_finished_turn(conversation, "Right", "RIGHT!")
    Turn.objects.filter(pk=right.pk).update(parent=first)
    link = a_link(conversation, kind="live", turn=left.pk)
    after = a_finished_turn(conversation, "After", "AFTER!")
    Turn.objects.filter(pk=after.pk).update(parent=left)
    shown = opened(link)
    assert "RIGHT!" not in shown
    assert "First!" in shown
    assert "AFTER!" in shown
    assert "AFTER!" not in opened(a_link(conversation, turn=left.pk))


def test_what_is_redacted_or_deleted_disappears_from_links(conversation: Conversation):
    turn = a_finished_turn(conversation, "Hi", "a secret word")
    later = a_finished_turn(conversation, "Two", "Two!")
    link = a_link(conversation)
    item = turn.items.get(position=1)
    item.correct({**item.payload, "content": message_of("[removed]")["content"]})
    assert "secret word" not in opened(link)
    Turn.objects.filter(pk=later.pk).update(deleted_at=timezone.now())
    assert "Two!" not in opened(link)
    assert "[removed]" in opened(link)


def test_an_erased_branch_does_not_make_a_link_show_another(conversation: Conversation):
    first = a_finished_turn(conversation, "One", "First!")
    shared = a_finished_turn(conversation, "Left", "LEFT!")
    other = a_finished_turn(conversation, "Right", "RIGHT!")
    Turn.objects.filter(pk=other.pk).update(parent=first)
    links = [a_link(conversation, turn=shared.pk, kind=k) for k in ("snapshot", "live")]
    shared.delete()
    assert all("RIGHT!" not in opened(link) for link in links)


def test_a_long_conversation_is_shown_in_pages(
    monkeypatch: pytest.MonkeyPatch, conversation: Conversation
):
    monkeypatch.setattr("conversations.pages.shared_transcript.PAGE", 2)
    for number in range(5):
        a_finished_turn(conversation, f"Q{number}", f"A{number}!")
    link = a_link(conversation)
    shown = [Client().get(address(link) + f"?page={n}") for n in ("1", "3", "9", "x")]
    texts = [re.findall(r"A\d!", read(page)) for page in shown]
    assert texts == [["A0!", "A1!"], ["A4!"], ["A4!"], ["A0!", "A1!"]]


# Files


def a_file(conversation: Conversation, name: str = "notes.txt") -> Attachment:
    row = Attachment(
        conversation=conversation, name=name, content_type="text/plain", size=5
    )
    store(row, row.pk, ContentFile(b"frogs"))
    row.save()
    return row


def with_file(conversation: Conversation, row: Attachment) -> Turn:
    part = {"type": "input_file", "file_id": row.pk, "filename": row.name}
    asked = user_message("Read this")
    turn = conversation.open_turn(
        [{**asked, "content": [*asked["content"], part]}]
    ).turn
    Turn.objects.filter(pk=turn.pk).update(status="completed")
    return turn


def file_address(link: ShareLink, row: Attachment) -> str:
    return reverse("shared-file", args=[link.token.reveal(), row.pk])


@pytest.fixture
def media(settings: Any, tmp_path: Any) -> None:
    settings.MEDIA_ROOT = tmp_path


@pytest.mark.usefixtures("media")
def test_files_of_shown_messages_are_served_at_the_links_address(
    conversation: Conversation,
):
    row = a_file(conversation)
    with_file(conversation, row)
    link = a_link(conversation)
    assert file_address(link, row) in Client().get(address(link)).content.decode()
    answer = Client().get(file_address(link, row))
    assert answer.content == b"frogs"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    link.revoke()
    assert Client().get(file_address(link, row)).status_code == 404


@pytest.mark.usefixtures("media")
def test_other_files_are_not_served(ada: Any, conversation: Conversation):
    a_finished_turn(conversation)
    link = a_link(conversation)
    unsent, later = a_file(conversation), a_file(conversation)
    with_file(conversation, later)
    elsewhere = Conversation.objects.create(owner=ada)
    foreign = a_file(elsewhere)
    with_file(elsewhere, foreign)
    for row in (unsent, later, foreign):
        assert Client().get(file_address(link, row)).status_code == 404


@pytest.mark.usefixtures("media")
@pytest.mark.parametrize("shows", [True, False])
def test_files_in_results_are_served_only_with_the_results(
    conversation: Conversation, shows: bool
):
    row = a_file(conversation)
    part = {"type": "input_file", "file_id": row.pk, "filename": row.name}
    output = {**function_call_output("call_1", ""), "output": [part]}
    a_turn(conversation, "completed", CALL, output)
    link = a_link(conversation, shows_results=shows)
    code = Client().get(file_address(link, row)).status_code
    assert code == (200 if shows else 404)


# Staff


def test_staff_revoke_links_in_the_admin_without_reading_them(
    conversation: Conversation,
):
    a_finished_turn(conversation)
    link = a_link(conversation)
    admin = signed_in(staff("sam", "view_sharelink", "change_sharelink"))
    listed = admin.get("/admin/conversations/sharelink/")
    shown = admin.get(f"/admin/conversations/sharelink/{link.pk}/change/")
    for page in (listed, shown):
        assert page.status_code == 200
        assert link.token.reveal() not in page.content.decode()
        assert "Paris" not in read(page)
    action = {
        "action": "revoke",
        "_selected_action": [link.pk],
        "confirmed": "yes",
    }
    admin.post("/admin/conversations/sharelink/", action)
    assert is_closed(link)


def test_staff_who_may_only_look_cannot_revoke(conversation: Conversation):
    a_finished_turn(conversation)
    link = a_link(conversation)
    admin = signed_in(staff("sam", "view_sharelink"))
    action = {
        "action": "revoke",
        "_selected_action": [link.pk],
        "confirmed": "yes",
    }
    admin.post("/admin/conversations/sharelink/", action)
    assert "Hello!" in opened(link)


def test_the_chat_page_leads_to_sharing(web: Client, conversation: Conversation):
    a_finished_turn(conversation)
    page = web.get(page_of(conversation)).content.decode()
    assert reverse("share", args=[conversation.pk]) in page
    assert reverse("shares") in page


def test_a_model_is_named_as_users_see_it(
    model: LanguageModel, conversation: Conversation
):
    turn = a_finished_turn(conversation)
    Turn.objects.filter(pk=turn.pk).update(language_model=model)
    assert "Fast one" in opened(a_link(conversation))


def test_a_link_outlives_the_waiting_message_that_it_ends_with(
    conversation: Conversation,
):
    a_finished_turn(conversation)
    running = conversation.open_turn([user_message("Second")]).turn
    Turn.objects.filter(pk=running.pk).update(status="in_progress")
    waiting = conversation.open_turn([user_message("Third")]).turn
    link = a_link(conversation, kind="live")
    waiting_messages.remove(waiting)
    assert "Second" in opened(link)


def test_a_deleted_branch_of_any_length_costs_the_same_number_of_queries(
    conversation: Conversation, django_assert_num_queries: Any
):
    first = a_finished_turn(conversation)
    for _ in range(10):
        last = a_finished_turn(conversation)
    link = a_link(conversation)
    Turn.objects.exclude(pk=first.pk).update(deleted_at=timezone.now())
    link.refresh_from_db()
    with django_assert_num_queries(2):
        assert line_of(link) == [first.pk]
    assert link.leaf_id == last.pk


def test_a_message_that_joined_a_running_answer_is_shown(conversation: Conversation):
    turn = a_finished_turn(conversation)
    joined = user_message("And in Rome?")
    Item.of(turn, 2, joined, origin=Item.Origin.OUTPUT).save()
    Item.of(turn, 3, message("assistant", "Sun."), origin=Item.Origin.OUTPUT).save()
    page = opened(a_link(conversation))
    assert "And in Rome?" in page
    assert "Sun." in page
