"""Branches through the pages' forms, without JavaScript."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.engine.maintenance.retention import clean_up
from conversations.models import (
    Attachment,
    BranchChoice,
    Conversation,
    Item,
    Participant,
    ToolCall,
    Turn,
)
from conversations.models.conversation import TitleSource
from conversations.models.folder import Folder, Tag
from conversations.models.item import CONTINUES
from conversations.pages.transcript import LATEST, WINDOW
from conversations.search.index import index_pending
from conversations.search.results import find_conversations
from conversations.turns.branches import place_beside
from llm.models import LanguageModel, Provider
from llm.wire.items import text_of, user_message
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture
def talk() -> Conversation:
    model = a_model(is_default=True)
    return Conversation.objects.create(owner=a_user(), language_model=model)


@pytest.fixture
def ada(talk) -> Client:
    return signed_in(talk.owner)


def page(client: Client, talk: Conversation, query: str = "") -> str:
    response = client.get(reverse("conversation", args=[talk.pk]) + query)
    assert response.status_code == 200
    return response.content.decode()


def shown(html: str) -> list[str]:
    """Ids of the turns on the page."""
    return re.findall(r'id="turn-(resp_\w+)"', html)


def post(client: Client, name: str, turn: Turn, **data):
    url = reverse(name, args=[turn.conversation_id, turn.pk])
    return client.post(url, data)


def newest(talk: Conversation) -> Turn:
    return talk.turns.order_by("-created_at").first()


def test_an_edit_stands_beside_the_first_version(ada, talk):
    first = a_finished_turn(talk, "Hi")
    last = a_finished_turn(talk, "And?")
    url = reverse("edit-message", args=[talk.pk, first.pk])
    assert "Hi" in ada.get(url).content.decode()
    response = ada.post(url, {"text": "Good day", "key": "k"})
    edited = newest(talk)
    assert response.url.endswith(f"#turn-{edited.pk}")
    assert edited.parent_id is None
    assert "".join(text_of(edited.items.get().payload)) == "Good day"
    html = page(ada, talk)
    assert shown(html) == [edited.pk]
    assert "2/2" in html
    post(ada, "show-branch", first)
    assert shown(page(ada, talk)) == [first.pk, last.pk]
    assert "1/2" in page(ada, talk)


def test_models_are_grouped_by_provider_wherever_one_is_chosen(ada, talk):
    host = Provider.objects.create(name="Orchard", kind="scripted")
    LanguageModel.objects.create(provider=host, name="quince")
    turn = a_finished_turn(talk, "Hi")
    own = talk.language_model.provider.name
    edit = ada.get(reverse("edit-message", args=[talk.pk, turn.pk]))
    new = ada.get(reverse("chat")).content.decode()
    for html in (edit.content.decode(), new):
        assert re.findall(r'<optgroup label="([^"]+)"', html) == ["Orchard", own]
    compare = new[new.index("compare-menu") :]
    assert re.findall(r"<h2>([^<]+)</h2>", compare)[:2] == ["Orchard", own]


def test_an_edit_keeps_the_files_that_stay_ticked(ada, talk):
    files = [
        Attachment.objects.create(
            conversation=talk, name=f"{n}.txt", content_type="text/plain", size=1
        )
        for n in "ab"
    ]
    parts = [{"type": "input_file", "file_id": f.pk, "filename": f.name} for f in files]
    item = user_message("Read")
    turn = talk.open_turn([{**item, "content": [*parts, *item["content"]]}]).turn
    Turn.objects.update(status="completed")
    post(ada, "edit-message", turn, text="Read it", keep=files[1].pk)
    content = newest(talk).items.get().payload["content"]
    assert [part.get("file_id") for part in content] == [files[1].pk, None]


@pytest.mark.parametrize("text", ["", "  ", "x" * 2_000_000, "a\0b"])
def test_an_edit_that_cannot_be_sent_is_given_back(ada, talk, text, settings):
    settings.MAX_INPUT_SIZE = 1_000_000
    turn = a_finished_turn(talk)
    response = post(ada, "edit-message", turn, text=text)
    assert response.status_code == 400
    assert "alert" in response.content.decode()
    assert talk.turns.count() == 1


def test_a_second_answer_stands_beside_the_first_with_its_model(ada, talk):
    other = a_model("m-2")
    turn = a_finished_turn(talk)
    post(ada, "retry", turn, key="a")
    again = newest(talk)
    assert (again.parent_id, again.language_model) == (None, turn.language_model)
    post(ada, "retry", turn, key="b", model=other.public_name)
    assert newest(talk).language_model == other
    assert "3/3" in page(ada, talk)


def test_a_failed_turn_stays_beside_its_repetition(ada, talk):
    turn = a_finished_turn(talk)
    Turn.objects.update(status="failed", error={"message": "Broken.", "code": "x"})
    post(ada, "retry", turn, key="a")
    assert shown(page(ada, talk)) == [newest(talk).pk]
    post(ada, "show-branch", turn)
    assert "Broken." in page(ada, talk)


def test_a_message_goes_to_the_branch_that_the_page_shows(ada, talk):
    first = a_finished_turn(talk)
    below = a_finished_turn(talk)
    other = talk.open_turn([user_message("other")], is_first=True).turn
    Turn.objects.update(status="completed")
    url = reverse("conversation", args=[talk.pk])
    html = page(ada, talk, f"?branch={first.pk}")
    assert shown(html) == [first.pk, below.pk]
    assert f'name="branch" value="{below.pk}"' in html
    ada.post(url, {"text": "Go on", "branch": first.pk, "key": "k"})
    assert newest(talk).parent_id == below.pk
    ada.post(url, {"text": "Go on", "branch": other.pk, "key": "l"})
    assert newest(talk).parent_id == other.pk


def test_each_viewer_has_a_branch_of_their_own(ada, talk):
    first = a_finished_turn(talk)
    talk.open_turn([user_message("other")], is_first=True)
    eve = a_user("eve")
    BranchChoice.objects.choose(talk.pk, eve.pk, first.pk)
    assert shown(page(ada, talk)) == [newest(talk).pk]
    assert BranchChoice.objects.shown_leaf(talk.pk, eve.pk) == first.pk


@pytest.mark.parametrize(
    "name", ["show-branch", "fork", "delete-branch", "edit-message", "restore-branch"]
)
def test_another_persons_turn_does_not_exist(talk, name):
    turn = a_finished_turn(talk)
    eve = signed_in(a_user("eve"))
    assert post(eve, name, turn, text="x").status_code == 404
    assert Turn.objects.filter(deleted_at=None).count() == 1
    assert Conversation.objects.count() == 1


# Deletion


def test_a_deleted_branch_is_gone_until_it_is_restored(ada, talk):
    root = a_finished_turn(talk, "root")
    one = a_finished_turn(talk, "walrus")
    below = a_finished_turn(talk, "below")
    [*_] = index_pending()
    response = post(ada, "delete-branch", one)
    html = page(ada, talk, f"?deleted_branch={one.pk}")
    assert response.url.startswith(f"/chat/{talk.pk}/?deleted_branch={one.pk}")
    assert shown(html) == [root.pk]
    assert reverse("restore-branch", args=[talk.pk, one.pk]) in html
    assert not find_conversations(talk.owner, "walrus").conversations
    [*_] = index_pending()
    assert not find_conversations(talk.owner, "walrus").conversations
    for turn in (one, below):
        assert ada.get(f"/api/turns/{turn.pk}/").status_code == 404
    assert talk.open_turn([user_message("new")]).turn.parent_id == root.pk
    post(ada, "restore-branch", one)
    assert shown(page(ada, talk)) == [root.pk, one.pk, below.pk]
    assert find_conversations(talk.owner, "walrus").conversations


def test_after_a_deletion_the_page_shows_a_sibling(ada, talk):
    root = a_finished_turn(talk)
    one, other = (talk.open_turn([user_message(n)], parent=root).turn for n in "ab")
    post(ada, "delete-branch", other)
    html = page(ada, talk)
    assert shown(html) == [root.pk, one.pk]
    assert "1/2" not in html


def test_the_only_message_can_be_deleted_too(ada, talk):
    turn = a_finished_turn(talk)
    post(ada, "delete-branch", turn)
    assert shown(page(ada, talk)) == []
    assert talk.open_turn([user_message("new")]).turn.parent_id is None


def test_what_runs_in_a_deleted_branch_is_stopped(ada, talk):
    turn = a_finished_turn(talk)
    call = ToolCall.objects.create(
        turn=turn, call_id="c", name="dig", state="executing", blocking=False
    )
    queued = talk.open_turn([user_message("more")]).turn
    post(ada, "delete-branch", turn)
    call.refresh_from_db()
    queued.refresh_from_db()
    assert call.cancel_requested
    assert queued.cancel_requested


def test_a_branch_below_a_deleted_one_cannot_be_restored_alone(ada, talk):
    root = a_finished_turn(talk)
    below = a_finished_turn(talk)
    post(ada, "delete-branch", below)
    post(ada, "delete-branch", root)
    assert post(ada, "restore-branch", below).status_code == 404
    post(ada, "restore-branch", root)
    assert shown(page(ada, talk)) == [root.pk]
    assert post(ada, "restore-branch", below).status_code == 302


def test_deleted_branches_are_erased_after_the_retention_time(ada, talk, settings):
    settings.DELETED_RETENTION_DAYS = 3
    root = a_finished_turn(talk)
    post(ada, "delete-branch", a_finished_turn(talk))
    [*_] = clean_up()
    assert Turn.objects.count() == 2
    Turn.objects.exclude(deleted_at=None).update(
        deleted_at=timezone.now() - timedelta(days=4)
    )
    [*_] = clean_up()
    assert list(Turn.objects.all()) == [root]


def test_a_deleted_conversation_comes_back_by_its_notice(ada, talk):
    turn = a_finished_turn(talk, "Walrus")
    response = ada.post(reverse("delete", args=[talk.pk]))
    html = ada.get(response.url).content.decode()
    url = reverse("restore-conversation", args=[talk.pk])
    assert url in html
    assert "Walrus" in html
    eve = signed_in(a_user("eve"))
    assert "Walrus" not in eve.get(response.url).content.decode()
    assert eve.post(url).status_code == 404
    assert ada.post(url).url == reverse("conversation", args=[talk.pk])
    assert shown(page(ada, talk)) == [turn.pk]


# Copies


def test_a_fork_has_the_branch_up_to_the_turn(ada, talk):
    root = a_finished_turn(talk, "root")
    one = a_finished_turn(talk, "one")
    ToolCall.objects.create(turn=one, call_id="c", name="dig", state="executing")
    a_finished_turn(talk, "later")
    talk.open_turn([user_message("aside")], parent=root)
    response = post(ada, "fork", one, key="k")
    copy = Conversation.objects.exclude(pk=talk.pk).get()
    assert copy.title == "root (fork)"
    assert response.url.startswith(f"/chat/{copy.pk}/")
    texts = [
        "".join(text_of(i.payload))
        for i in Item.objects.filter(turn__conversation=copy)
    ]
    assert texts == ["root", "Hello!", "one", "Hello!"]
    assert copy.turns.get(parent=None).children.count() == 1
    assert ToolCall.objects.get(turn__conversation=copy).state == "cancelled"
    assert post(ada, "fork", one, key="k").url == response.url
    assert Conversation.objects.count() == 2


def test_a_fork_stays_in_its_folder_with_its_tags(ada, talk):
    Conversation.objects.filter(pk=talk.pk).update(
        folder=Folder.objects.create(owner=talk.owner, name="Digs"),
        title_source=TitleSource.PERSON,
    )
    talk.tags.add(Tag.objects.create(owner=talk.owner, name="field"))
    post(ada, "fork", a_finished_turn(talk))
    copy = Conversation.objects.exclude(pk=talk.pk).get()
    assert copy.folder is not None
    assert copy.folder.name == "Digs"
    assert copy.title_source == TitleSource.PERSON
    assert [tag.name for tag in copy.tags.all()] == ["field"]


def test_files_of_a_fork_outlive_the_original(ada, talk, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    file = Attachment(
        conversation=talk, name="a.txt", content_type="text/plain", size=1
    )
    file.file.save("a.txt", ContentFile(b"x"))
    part = {"type": "input_file", "file_id": file.pk, "filename": "a.txt"}
    turn = talk.open_turn([{**user_message("Read"), "content": [part]}]).turn
    post(ada, "fork", turn)
    copied = Attachment.objects.exclude(pk=file.pk).get()
    payload = Item.objects.get(turn__conversation=copied.conversation).payload
    assert payload["content"][0]["file_id"] == copied.pk
    Conversation.objects.filter(pk=talk.pk).update(
        deleted_at=timezone.now() - timedelta(days=4000)
    )
    [*_] = clean_up()
    assert not Attachment.objects.filter(pk=file.pk).exists()
    with copied.file.open() as stored:
        assert stored.read() == b"x"


def test_a_turn_under_way_is_copied_as_stopped(ada, talk):
    turn = talk.open_turn([user_message("Hi")]).turn
    post(ada, "fork", turn)
    assert newest(Conversation.objects.exclude(pk=talk.pk).get()).status == "cancelled"
    assert turn.status == "queued"


# Continuing


@pytest.mark.parametrize("status", ["incomplete", "cancelled", "failed"])
def test_a_cut_answer_is_continued_on_its_branch(ada, talk, status):
    turn = a_finished_turn(talk)
    Turn.objects.update(status=status, error={"message": "x", "code": "y"})
    html = page(ada, talk)
    url = reverse("continue", args=[talk.pk, turn.pk])
    # Of the message box, whose text would be lost without scripts.
    assert re.search(rf'form="composer"\s+formnovalidate\s+formaction="{url}"', html)
    ada.post(url)
    follow = newest(talk)
    assert follow.parent_id == turn.pk
    assert follow.items.get().payload[CONTINUES] is True
    html = page(ada, talk)
    assert "Continued" in html
    assert "cut off" not in html
    ada.post(url)
    assert talk.turns.count() == 2


def test_a_complete_answer_is_not_continued(ada, talk):
    turn = a_finished_turn(talk)
    url = reverse("continue", args=[talk.pk, turn.pk])
    assert url not in page(ada, talk)
    ada.post(url)
    assert talk.turns.count() == 1


# Comparison


def test_models_answer_side_by_side_until_one_is_chosen(ada, talk):
    root = a_finished_turn(talk)
    others = [a_model(name) for name in ("m-2", "m-3")]
    url = reverse("conversation", args=[talk.pk])
    names = [model.public_name for model in others]
    ada.post(url, {"text": "Which?", "compare": names, "key": "k"})
    one, two, three = talk.turns.filter(parent=root)
    assert [t.language_model.name for t in (one, two, three)] == ["m-1", "m-2", "m-3"]
    html = page(ada, talk)
    assert shown(html) == [root.pk, one.pk, two.pk, three.pk]
    assert html.count("Go on with this answer") == 2
    post(ada, "show-branch", two)
    ada.post(url, {"text": "Go on", "key": "l"})
    assert newest(talk).parent_id == two.pk
    html = page(ada, talk)
    assert shown(html) == [root.pk, two.pk, newest(talk).pk]
    assert "2/3" in html


def test_what_is_compared_names_files_and_author_and_is_printed_as_a_whole(ada, talk):
    url = reverse("conversation", args=[talk.pk])
    bo = a_user("bo")
    invited = {"role": "writer", "name": "bo", "accepted_at": timezone.now()}
    Participant.objects.create(conversation=talk, user=bo, **invited)
    file = SimpleUploadedFile("plan.txt", b"Dig.", "text/plain")
    names = [a_model(name, label=f"{name} label").public_name for name in ("m-2",)]
    fields = {"text": "Which?", "compare": names, "key": "k", "file": file}
    assert signed_in(bo).post(url, fields).status_code == 302
    html = page(ada, talk)
    head = html[html.index('class="transcript"') : html.index('class="comparison"')]
    assert "plan.txt" in head
    assert re.search(r'class="asked-author"[^>]*>bo<', head)
    answer: Any = ada.get(reverse("print-conversation", args=[talk.pk]))
    paper = b"".join(answer.streaming_content).decode()
    for turn in talk.turns.all():
        assert f'id="turn-{turn.pk}"' in paper
    assert "m-2 label" in paper


@pytest.mark.parametrize("status", ["failed", "cancelled", "completed"])
def test_each_finished_turn_has_links_to_its_message_and_its_answer(ada, talk, status):
    turn = talk.open_turn([user_message("One?")]).turn
    Turn.objects.filter(pk=turn.pk).update(status=status, finished_at=timezone.now())
    other = talk.open_turn([user_message("Two?")], **place_beside(turn)).turn
    BranchChoice.objects.choose(talk.pk, talk.owner_id, other.pk)
    assert shown(page(ada, talk)) == [other.pk]
    address = reverse("conversation", args=[talk.pk]) + f"?at={turn.pk}"
    html = ada.get(address).text
    for anchor in (f"message-{turn.pk}", f"answer-{turn.pk}"):
        assert f'href="{address}#{anchor}"' in html
        assert html.count(f'id="{anchor}"') == 1


def test_stop_in_the_message_box_stops_all_answers_that_are_compared(
    ada, talk, monkeypatch
):
    stopped: list[str] = []
    monkeypatch.setattr(engine, "cancel", lambda turn: stopped.append(turn.pk))
    a_finished_turn(talk)
    names = [a_model(name).public_name for name in ("m-2", "m-3")]
    url = reverse("conversation", args=[talk.pk])
    ada.post(url, {"text": "Which?", "compare": names, "key": "k"})
    turns = list(talk.turns.exclude(comparison=""))
    box = re.search(r'id="stop".*?formaction="([^"]+)"', page(ada, talk), re.S)
    assert box
    ada.post(box[1])
    assert sorted(stopped) == sorted(turn.pk for turn in turns)
    stopped.clear()
    post(ada, "stop", turns[1])  # the button of one column
    assert stopped == [turns[1].pk]


def test_the_arrows_take_along_what_is_written_but_not_sent(ada, talk):
    turn = a_finished_turn(talk)
    url = reverse("show-branch", args=[talk.pk, turn.pk])
    answer = ada.post(url, {"text": "Half a message"})
    assert (answer.status_code, talk.turns.count()) == (200, 1)
    assert re.search(r"<textarea[^>]*>\s*Half a message</textarea>", answer.text)
    assert ada.post(url, {"text": " "}).status_code == 302


@pytest.mark.parametrize("asked", [[], ["m-4", "m-5"]])
def test_interrupt_stops_all_answers_that_are_compared(
    ada, talk, monkeypatch, django_capture_on_commit_callbacks, asked
):
    stopped: list[str] = []
    monkeypatch.setattr(engine, "cancel", lambda turn: stopped.append(turn.pk))
    a_finished_turn(talk)
    names = [a_model(name).public_name for name in ("m-2", "m-3")]
    url = reverse("conversation", args=[talk.pk])
    ada.post(url, {"text": "Which?", "compare": names, "key": "k"})
    compared = sorted(talk.turns.exclude(comparison="").values_list("pk", flat=True))
    others = [a_model(name).public_name for name in asked]
    message = {"text": "No", "when": "interrupt", "compare": others, "key": "l"}
    with django_capture_on_commit_callbacks(execute=True):
        ada.post(url, message)
    assert sorted(set(stopped)) == compared
    requested = talk.turns.filter(cancel_requested=True).values_list("pk", flat=True)
    assert sorted(requested) == compared


def test_more_models_than_can_be_compared_are_refused(ada, talk):
    names = [a_model(f"n-{n}").public_name for n in range(5)]
    url = reverse("conversation", args=[talk.pk])
    response = ada.post(url, {"text": "Which?", "compare": names})
    assert response.status_code == 400
    assert "at most 4 models" in response.content.decode()
    assert not talk.turns.exists()


def test_a_long_conversation_takes_as_many_queries_as_a_short_one(
    ada, talk, django_assert_max_num_queries
):
    for _ in range(3):
        a_finished_turn(talk)
    with django_assert_max_num_queries(60) as few:
        page(ada, talk)
    for _ in range(60):
        a_finished_turn(talk)
    with django_assert_max_num_queries(len(few)):
        html = page(ada, talk)
    assert len(shown(html)) == LATEST
    earlier = re.search(r"\?before=\w+", html)
    assert len(shown(page(ada, talk, earlier[0]))) == WINDOW
