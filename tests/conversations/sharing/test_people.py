"""Conversations with several people: invitations, roles, and whose keys are used."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from conversations import engine
from conversations.access import participation
from conversations.access.account_deletion import close_account
from conversations.access.participation import check_author, invite, remove, role_of
from conversations.engine import background_store
from conversations.engine.maintenance.erasure import ERASED
from conversations.models import (
    Attachment,
    AuthorGone,
    Conversation,
    Item,
    Participant,
    Question,
    Rating,
    ToolCall,
    Turn,
)
from conversations.models.turn import CALLER
from conversations.requests.turn_request import TurnRequestSerializer
from conversations.turns import waiting_messages
from conversations.turns.attachments import UploadRefused, check_inline_quota
from llm.models import LanguageModel
from llm.wire.items import user_message
from tests.conversations.page_scene import (
    ada,
    conversation,
    model,
    page_of,
    read,
    web,
)
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    program,
    signed_in,
)

__all__ = ["ada", "conversation", "model", "web"]

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("scripted_host"),
    pytest.mark.slow,
    pytest.mark.smoke,
]


@pytest.fixture(autouse=True)
def submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine runs the turns."""
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture
def bob() -> Any:
    return a_user("bob")


def join(conversation: Conversation, user: Any, role: str = "writer") -> Participant:
    row = invite(conversation, user.get_username(), role)
    row.accept()
    row.refresh_from_db()
    return row


# Inviting


def test_an_invited_person_sees_the_conversation_after_accepting(
    web: Client, conversation: Conversation, bob: Any
):
    a_finished_turn(conversation)
    form = {"name": "bob", "role": "viewer"}
    assert web.post(reverse("people", args=[conversation.pk]), form).status_code == 302
    theirs = signed_in(bob)
    assert "1 invitation" in read(theirs.get("/"))
    assert theirs.get(page_of(conversation)).status_code == 404
    invitation = Participant.objects.get()
    theirs.post(reverse("accept-invitation", args=[invitation.pk]))
    assert "Hello!" in read(theirs.get(page_of(conversation)))
    assert "Shared with me" in read(theirs.get("/"))


def test_an_invitation_does_not_tell_whether_the_name_exists(
    web: Client, ada: Any, conversation: Conversation, bob: Any
):
    a_user("gone", is_active=False)
    page = reverse("people", args=[conversation.pk])
    api = reverse("api:participants", args=[conversation.pk])
    for name in ("bob", "nobody", "gone"):
        web.post(page, {"name": name, "role": "viewer"})
    shown = read(web.get(page))
    assert shown.count("If there is such a person") == 3
    rows = program(ada).get(api).json()["data"]
    assert [row["accepted_at"] for row in rows] == [None] * 3
    assert {tuple(row) for row in rows} == {tuple(rows[0])}


def test_an_invitation_reveals_nothing_of_the_conversation(
    conversation: Conversation, bob: Any
):
    a_finished_turn(conversation)
    invite(conversation, "bob", "writer")
    shown = read(signed_in(bob).get(reverse("invitations")))
    assert "ada invites you" in shown
    assert "Paris" not in shown
    listed = program(bob).get(reverse("api:invitations")).json()["data"]
    assert [row["title"] for row in listed] == [""]


def test_nobody_accepts_the_invitation_of_another(conversation: Conversation, bob: Any):
    row, eve = invite(conversation, "bob", "writer"), a_user("eve")
    accept = reverse("accept-invitation", args=[row.pk])
    assert signed_in(eve).post(accept).status_code == 404
    api = reverse("api:accept-invitation", args=[row.pk])
    assert program(eve).post(api).status_code == 404
    assert program(eve).delete(f"/api/participants/{row.pk}/").status_code == 404
    assert signed_in(eve).post(f"/people/{row.pk}/remove/").status_code == 404
    row.refresh_from_db()
    assert row.accepted_at is row.revoked_at is None


@pytest.mark.parametrize("form", [{"name": "ada"}, {"name": " "}, {"role": "boss"}])
def test_bad_invitations_are_refused(
    web: Client, conversation: Conversation, form: dict[str, str]
):
    sent = {"name": "bob", "role": "viewer", **form}
    answer = web.post(reverse("people", args=[conversation.pk]), sent)
    assert answer.status_code == 400
    assert not Participant.objects.exists()


def test_the_number_of_people_is_bounded(
    monkeypatch: pytest.MonkeyPatch, web: Client, conversation: Conversation
):
    monkeypatch.setattr(participation, "MAX_PEOPLE", 1)
    page = reverse("people", args=[conversation.pk])
    assert web.post(page, {"name": "a", "role": "viewer"}).status_code == 302
    assert web.post(page, {"name": "b", "role": "viewer"}).status_code == 400
    assert web.post(page, {"name": "a", "role": "writer"}).status_code == 302


def test_programs_invite_accept_and_leave(
    ada: Any, conversation: Conversation, bob: Any
):
    people = reverse("api:participants", args=[conversation.pk])
    fields = {"name": "bob", "role": "writer"}
    made = program(ada).post(people, fields, "application/json")
    assert made.status_code == 201
    accept = reverse("api:accept-invitation", args=[made.json()["id"]])
    accepted = program(bob).post(accept)
    assert accepted.json()["title"] == "Paris"
    turns = reverse("api:turns", args=[conversation.pk])
    assert program(bob).get(turns).status_code == 200
    gone = program(bob).delete(f"/api/participants/{made.json()['id']}/")
    assert gone.status_code == 204
    assert program(bob).get(turns).status_code == 404


# Roles

VIEWER_MAY = {
    "page": ("get", "/chat/{c}/"),
    "turn": ("get", "/chat/{c}/turns/{t}/"),
    "background": ("get", "/chat/{c}/background/"),
    "gauge": ("get", "/chat/{c}/context/"),
    "people": ("get", "/chat/{c}/people/"),
    "turns": ("get", "/api/conversations/{c}/turns/"),
    "one turn": ("get", "/api/turns/{t}/"),
    "calls": ("get", "/api/conversations/{c}/tool-calls/"),
}
WRITERS_MAY = {
    "continue": ("post", "/chat/{c}/turns/{t}/continue/"),
    "stop": ("post", "/chat/{c}/turns/{t}/stop/"),
    "cancel": ("post", "/api/turns/{t}/cancel/"),
}
OWNER_ONLY = {
    "rename": ("post", "/chat/{c}/rename/"),
    "edit": ("get", "/chat/{c}/turns/{t}/edit/"),
    "fork": ("post", "/chat/{c}/turns/{t}/fork/"),
    "delete a branch": ("post", "/chat/{c}/turns/{t}/delete/"),
    "rate": ("post", "/chat/{c}/turns/{t}/rating/"),
    "export": ("get", "/chat/{c}/export/"),
    "delete": ("post", "/chat/{c}/delete/"),
    "tools": ("post", "/chat/{c}/tools/"),
    "share": ("post", "/chat/{c}/share/"),
    "see links": ("get", "/chat/{c}/share/"),
    "invite": ("post", "/chat/{c}/people/"),
    "pin": ("post", "/chat/{c}/items/{i}/"),
    "API of it": ("get", "/api/conversations/{c}/"),
    "API delete": ("delete", "/api/conversations/{c}/"),
    "API item": ("get", "/api/conversations/{c}/items/{i}/"),
    "API links": ("get", "/api/conversations/{c}/shares/"),
    "API invite": ("post", "/api/conversations/{c}/participants/"),
}


def codes(user: Any, turn: Turn, requests: dict[str, Any]) -> dict[str, int]:
    item = turn.items.first().payload["id"]
    client = signed_in(user)
    found = {}
    for name, (method, path) in requests.items():
        path = path.format(c=turn.conversation_id, t=turn.pk, i=item)
        found[name] = getattr(client, method)(path).status_code
    return found


@pytest.mark.parametrize("role", ["viewer", "writer", "approver"])
def test_participants_read_but_never_do_what_is_the_owner_s(
    conversation: Conversation, bob: Any, role: str
):
    turn = a_finished_turn(conversation)
    join(conversation, bob, role)
    assert set(codes(bob, turn, VIEWER_MAY).values()) == {200}
    assert set(codes(bob, turn, OWNER_ONLY).values()) == {404}
    writes = set(codes(bob, turn, WRITERS_MAY).values())
    assert writes == ({404} if role == "viewer" else {200, 302})


def invited(conversation: Conversation, bob: Any) -> None:
    invite(conversation, "bob", "approver")


def removed(conversation: Conversation, bob: Any) -> None:
    remove(join(conversation, bob, "approver"))


def deleted(conversation: Conversation, bob: Any) -> None:
    join(conversation, bob, "approver")
    conversation.delete_softly()


def owner_gone(conversation: Conversation, bob: Any) -> None:
    join(conversation, bob, "approver")
    type(bob).objects.filter(pk=conversation.owner_id).update(is_active=False)


def elsewhere(conversation: Conversation, bob: Any) -> None:
    other = Conversation.objects.create(owner=conversation.owner)
    join(other, bob, "approver")


@pytest.mark.parametrize("case", [invited, removed, deleted, owner_gone, elsewhere])
def test_others_find_nothing(conversation: Conversation, bob: Any, case: Any):
    turn = a_finished_turn(conversation)
    case(conversation, bob)
    everything = VIEWER_MAY | WRITERS_MAY | OWNER_ONLY
    assert set(codes(bob, turn, everything).values()) == {404}
    post = signed_in(bob).post(page_of(conversation), {"text": "Hi"})
    assert post.status_code == 404
    assert conversation.turns.count() == 1


def test_a_viewer_cannot_write_by_any_way(conversation: Conversation, bob: Any):
    turn = a_finished_turn(conversation)
    join(conversation, bob, "viewer")
    web, api = signed_in(bob), program(bob)
    assert web.post(page_of(conversation), {"text": "Hi"}).status_code == 403
    retry = reverse("retry", args=[conversation.pk, turn.pk])
    assert web.post(retry, {"text": "Hi"}).status_code == 404
    turns = reverse("api:turns", args=[conversation.pk])
    assert api.post(turns, {"input": "Hi"}, "application/json").status_code == 404
    files = reverse("api:attachments", args=[conversation.pk])
    upload = {"file": SimpleUploadedFile("a.txt", b"frogs")}
    assert api.post(files, upload).status_code == 404
    assert conversation.turns.count() == 1
    assert "not write in it" in read(web.get(page_of(conversation)))


def test_only_owner_and_approver_decide(conversation: Conversation, bob: Any):
    turn = a_finished_turn(conversation)
    call = ToolCall.objects.create(turn=turn, call_id="c", name="dig")
    question = Question.objects.create(
        tool_call=call, kind="form", expires_at="2100-01-01T00:00:00Z", schema={}
    )
    for role in ("viewer", "writer"):
        row = join(conversation, bob, role)
        assert not Question.objects.answerable_by(bob).exists()
        path = reverse("question", args=[question.pk])
        page = signed_in(bob).get(path)  # as the conversation's page shows it
        assert page.status_code == 200
        assert "<form" not in page.text
        assert signed_in(bob).post(path, {"action": "decline"}).status_code == 403
        question.refresh_from_db()
        assert question.state == Question.State.OPEN
        remove(row)
        assert signed_in(bob).get(path).status_code == 404
    join(conversation, bob, "approver")
    answer = signed_in(bob).post(
        reverse("question", args=[question.pk]), {"action": "decline"}
    )
    assert answer.status_code == 302
    question.refresh_from_db()
    assert question.state == Question.State.DECLINED
    assert question.decided_by == bob


def test_a_shared_conversation_is_not_found_by_search_or_in_own_lists(
    conversation: Conversation, bob: Any
):
    a_finished_turn(conversation, "frogs")
    join(conversation, bob, "approver")
    assert program(bob).get("/api/conversations/").json()["results"] == []
    assert conversation.pk not in str(program(bob).get("/api/search/?q=frogs").json())


def test_a_participant_does_not_see_the_owner_s_rating(
    conversation: Conversation, ada: Any, bob: Any
):
    turn = a_finished_turn(conversation)
    join(conversation, bob, "viewer")
    Rating.objects.create(turn=turn, user=ada, value="bad", comment="Only for staff")
    for address in (
        page_of(conversation),
        reverse("turn", args=[conversation.pk, turn.pk]),
    ):
        shown = signed_in(bob).get(address).content.decode()
        assert "Only for staff" not in shown


def test_a_participant_reads_artifacts(conversation: Conversation, bob: Any):
    page = "<title>A page</title>\n<p>\none\ntwo\n</p>\n"
    turn = a_finished_turn(conversation, answer=f"```html\n{page}\n```")
    address = reverse("artifact", args=[turn.pk, 0, 0])
    assert signed_in(bob).get(address).status_code == 404
    join(conversation, bob, "viewer")
    assert signed_in(bob).get(address).status_code == 200


# Writing


def test_a_turn_has_its_author_and_the_page_shows_who_wrote(
    web: Client, ada: Any, conversation: Conversation, bob: Any
):
    a_finished_turn(conversation)
    join(conversation, bob)
    signed_in(bob).post(page_of(conversation), {"text": "From me"})
    api = reverse("api:turns", args=[conversation.pk])
    program(bob).post(api, {"input": "And me"}, "application/json")
    authors = [turn.author for turn in conversation.turns.all()]
    assert authors == [None, bob, bob]
    shown = read(web.get(page_of(conversation)))
    assert "ada Hi" in shown
    assert "bob From me" in shown
    for reader, others in ((web, 2), (signed_in(bob), 1)):
        page = reader.get(page_of(conversation)).content.decode()
        assert page.count("is-of-another") == others


def test_no_names_are_shown_to_one_who_is_alone(
    web: Client, conversation: Conversation
):
    a_finished_turn(conversation)
    page = web.get(page_of(conversation)).content.decode()
    assert "asked-author" not in page


def test_a_writer_uses_only_models_of_their_own(
    ada: Any, model: LanguageModel, conversation: Conversation, bob: Any
):
    from django.contrib.auth.models import Group

    group = Group.objects.create(name="few")
    model.groups.add(group)
    ada.groups.add(group)
    join(conversation, bob)
    api = reverse("api:turns", args=[conversation.pk])
    sent = {"input": "Hi", "model": "fast"}
    assert program(bob).post(api, sent, "application/json").status_code == 404
    assert program(ada).post(api, sent, "application/json").status_code == 202


def test_a_writer_may_write_where_the_owner_has_declared_other_tools(
    conversation: Conversation, bob: Any
):
    declared = {"type": "mcp", "server_label": "m", "authorization": "secret-1"}
    conversation.options = {"tools": [declared]}
    conversation.save()
    join(conversation, bob)
    sent = {"text": "Hi", "key": "k"}
    assert signed_in(bob).post(page_of(conversation), sent).status_code == 302
    api = reverse("api:turns", args=[conversation.pk])
    post = program(bob).post(api, {"input": "Hi"}, "application/json")
    assert post.status_code == 202
    by_page, by_program = (turn.options for turn in conversation.turns.all())
    assert by_page == {}
    assert list(by_program) == [CALLER]  # the request's id


def test_a_writer_who_compares_models_does_not_write_as_the_owner(
    conversation: Conversation, bob: Any
):
    declared = {"type": "mcp", "server_label": "m", "authorization": "secret-1"}
    conversation.options = {"tools": [declared]}
    conversation.save()
    other = a_model("slow", alias="slow")
    a_finished_turn(conversation)
    join(conversation, bob)
    sent = {"text": "Which?", "compare": [other.public_name]}
    assert signed_in(bob).post(page_of(conversation), sent).status_code == 302
    compared = conversation.turns.exclude(comparison="")
    assert [(turn.author, turn.options) for turn in compared] == [(bob, {})] * 2


def test_the_owner_s_declared_tools_are_not_used_or_shown_to_others(
    ada: Any, conversation: Conversation, bob: Any
):
    declared = {"type": "mcp", "server_label": "m", "authorization": "secret-1"}
    Conversation.objects.filter(pk=conversation.pk).update(
        options={"tools": [declared], "temperature": 1}
    )
    conversation.refresh_from_db()
    join(conversation, bob)
    own = a_finished_turn(conversation)
    theirs = conversation.open_turn([user_message("Hi")], author=bob).turn
    assert "tools" in own.options
    assert theirs.options == {"temperature": 1}
    api = reverse("api:turns", args=[conversation.pk])
    assert "secret-1" not in str(program(bob).get(api).json())
    assert "secret-1" not in str(program(bob).get(f"/api/turns/{own.pk}/").json())
    waits = conversation.open_turn([user_message("And then?")]).turn
    waiting = program(bob).get(reverse("api:queue", args=[conversation.pk])).json()
    assert [turn["id"] for turn in waiting["data"]] == [waits.pk]
    assert "secret-1" not in str(waiting)


def test_the_owner_sees_no_tools_that_a_participant_declares(
    ada: Any, conversation: Conversation, bob: Any
):
    declared = {"type": "mcp", "server_label": "m", "authorization": "secret-2"}
    join(conversation, bob)
    options = {"tools": [declared], "temperature": 1}
    theirs = conversation.open_turn(
        [user_message("Hi")], author=bob, options=options
    ).turn
    address = f"/api/turns/{theirs.pk}/"
    assert program(bob).get(address).json()["options"] == options
    assert program(ada).get(address).json()["options"] == {"temperature": 1}
    bob.delete()
    assert program(ada).get(address).json()["options"] == {"temperature": 1}


def test_who_continues_what_the_owner_continues_sees_no_declared_tools(
    ada: Any, conversation: Conversation, bob: Any
):
    declared = {"type": "mcp", "server_label": "m", "authorization": "secret-1"}
    conversation.options = {"tools": [declared]}
    conversation.save()
    join(conversation, bob)
    cut = a_finished_turn(conversation)
    Turn.objects.filter(pk=cut.pk).update(status=Turn.Status.INCOMPLETE)
    api = reverse("api:continue", args=[cut.pk])
    first, second = program(ada).post(api), program(bob).post(api)
    assert first.json()["id"] == second.json()["id"]
    assert "secret-1" in str(first.json())
    assert "secret-1" not in str(second.json())


def test_files_count_for_the_quota_of_who_sends_them(
    settings: Any, tmp_path: Any, ada: Any, conversation: Conversation, bob: Any
):
    settings.MEDIA_ROOT, settings.UPLOAD_QUOTA = tmp_path, 8
    join(conversation, bob)
    files = reverse("api:attachments", args=[conversation.pk])

    def upload(user: Any) -> int:
        file = SimpleUploadedFile("a.txt", b"frogs")
        return program(user).post(files, {"file": file}).status_code

    assert [upload(bob), upload(bob), upload(ada), upload(ada)] == [201, 413, 201, 413]
    uploaders = list(
        Attachment.objects.order_by("created_at").values_list("uploaded_by")
    )
    assert uploaders == [(bob.pk,), (None,)]


def test_files_inside_messages_count_for_their_author(
    settings: Any, ada: Any, conversation: Conversation, bob: Any
):
    join(conversation, bob)
    turn = conversation.open_turn([user_message("Hi")], author=bob).turn
    Turn.objects.filter(pk=turn.pk).update(inline_bytes=10)
    settings.UPLOAD_QUOTA = 30
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    items = [{**user_message("x"), "content": [picture]}]
    check_inline_quota(ada.pk, items)
    with pytest.raises(UploadRefused):
        check_inline_quota(bob.pk, items)


# Ending


def test_removing_a_participant_stops_their_turns_only(
    conversation: Conversation, bob: Any
):
    row = join(conversation, bob)
    own = conversation.open_turn([user_message("Mine")]).turn
    theirs = conversation.open_turn([user_message("Theirs")], author=bob).turn
    remove(row)
    own.refresh_from_db()
    theirs.refresh_from_db()
    assert (own.cancel_requested, theirs.cancel_requested) == (False, True)


def background_call(turn: Turn) -> ToolCall:
    return ToolCall.objects.create(
        turn=turn, call_id="c1", name="dig", state="executing", blocking=False
    )


def leave(row: Participant) -> None:
    remove(row)


def become_viewer(row: Participant) -> None:
    invite(row.conversation, row.name, "viewer")


def deactivate(row: Participant) -> None:
    type(row.user).objects.filter(pk=row.user_id).update(is_active=False)


def delete_account(row: Participant) -> None:
    row.user.delete()


def close(row: Participant) -> None:
    close_account(row.user)


@pytest.mark.parametrize("end", [leave, become_viewer, close])
def test_background_calls_of_who_may_not_write_any_more_are_stopped(
    conversation: Conversation, bob: Any, end: Any
):
    row = join(conversation, bob)
    own = background_call(conversation.open_turn([user_message("Mine")]).turn)
    turn = conversation.open_turn([user_message("Theirs")], author=bob).turn
    theirs = background_call(turn)
    Turn.objects.filter(pk=turn.pk).update(status="completed")
    end(row)
    own.refresh_from_db()
    theirs.refresh_from_db()
    assert (own.cancel_requested, theirs.cancel_requested) == (False, True)
    halts = Turn.objects.values_list("halted_by", flat=True)
    assert set(halts) == {"", Turn.HaltedBy.PERSON}
    assert Turn.objects.get(halted_by=Turn.HaltedBy.PERSON) == turn


def erase(row: Participant) -> None:
    Turn.objects.filter(author=row.user_id).update(author=None, author_name=ERASED)


@pytest.mark.parametrize(
    "end", [erase, delete_account, deactivate, become_viewer, leave]
)
def test_a_background_call_ends_when_its_author_may_not_write_any_more(
    conversation: Conversation, bob: Any, end: Any
):
    row = join(conversation, bob)
    turn = conversation.open_turn([user_message("Hi")], author=bob).turn
    payload = {"type": "function_call", "id": "f", "call_id": "c1", "name": "dig"}
    payload |= {"arguments": "{}"}
    Item.of(turn, 1, payload, origin=Item.Origin.OUTPUT).save()
    call = background_call(turn)
    end(row)
    claim = background_store.claim(call.pk)
    assert claim is not None
    work = background_store.load(claim)
    assert work.outcome is not None
    assert (work.outcome.state, dict(work.tools)) == ("cancelled", {})
    background_store.conclude(claim, work.outcome)
    call.refresh_from_db()
    assert call.state == ToolCall.State.CANCELLED
    assert not ToolCall.objects.in_background().exists()


def test_claims_of_a_background_call_are_counted_no_further_than_the_column_takes(
    conversation: Conversation,
):
    call = background_call(conversation.open_turn([user_message("Hi")]).turn)
    ToolCall.objects.update(claims=background_store.MOST_CLAIMS)
    assert background_store.claim(call.pk) is not None
    call.refresh_from_db()
    assert call.claims == background_store.MOST_CLAIMS


@pytest.mark.parametrize("end", [leave, become_viewer, deactivate, delete_account])
def test_no_turn_runs_in_the_name_of_who_may_not_write_any_more(
    conversation: Conversation, bob: Any, end: Any
):
    row = join(conversation, bob)
    turn = conversation.open_turn([user_message("Hi")], author=bob).turn
    check_author(turn)
    end(row)
    turn = Turn.objects.get(pk=turn.pk)
    with pytest.raises(AuthorGone):
        check_author(turn)
    if turn.author_id is None:
        with pytest.raises(AuthorGone):
            _ = turn.actor  # and not the owner
    assert turn.author_name == "bob"


# The queue


def test_a_message_joins_only_a_running_turn_of_its_own_author(
    conversation: Conversation, bob: Any
):
    join(conversation, bob)
    running = conversation.open_turn([user_message("Mine")]).turn
    Turn.objects.filter(pk=running.pk).update(status="in_progress")
    theirs = waiting_messages.open_message(
        conversation, [user_message("Psst")], "steer", author=bob
    )
    own = waiting_messages.open_message(conversation, [user_message("And")], "steer")
    assert (theirs.turn.steering, own.turn.steering) == ("", "asked")


def test_two_who_write_at_once_stay_in_one_branch(
    ada: Any, conversation: Conversation, bob: Any, model: LanguageModel
):
    """Both requests are checked before either is written."""
    join(conversation, bob)
    last = a_finished_turn(conversation)
    requests = []
    for user in (ada, bob):
        row = Conversation.objects.find_writable(user, conversation.pk)
        request = TurnRequestSerializer(
            data={"input": "Hi", "branch": last.pk, "model": model.public_name},
            context={"user": user, "conversation": row},
        )
        request.is_valid(raise_exception=True)
        requests.append(request)
    first, second = (request.save().turn for request in requests)
    assert (first.parent_id, second.parent_id) == (last.pk, first.pk)


def test_nobody_changes_a_waiting_message_of_another(
    web: Client, ada: Any, conversation: Conversation, bob: Any
):
    join(conversation, bob)
    running = conversation.open_turn([user_message("Mine")]).turn
    Turn.objects.filter(pk=running.pk).update(status="in_progress")
    theirs = conversation.open_turn([user_message("Theirs")], author=bob).turn
    fields = {"input": "In bob's name"}
    there = f"/api/turns/{theirs.pk}/"
    refused = program(ada).patch(there, fields, "application/json")
    assert refused.status_code == 404
    assert program(bob).patch(there, fields, "application/json").status_code == 200


def test_each_viewer_chooses_a_branch_of_their_own(
    web: Client, ada: Any, conversation: Conversation, bob: Any
):
    first = a_finished_turn(conversation, "One", "First!")
    left = a_finished_turn(conversation, "Left", "LEFT!")
    right = a_finished_turn(conversation, "Right", "RIGHT!")
    Turn.objects.filter(pk=right.pk).update(parent=first)
    join(conversation, bob, "viewer")
    theirs = signed_in(bob)
    show = reverse("show-branch", args=[conversation.pk, left.pk])
    assert theirs.post(show).status_code == 302
    assert "LEFT!" in read(theirs.get(page_of(conversation)))
    assert "RIGHT!" in read(web.get(page_of(conversation)))
    assert signed_in(a_user("eve")).post(show).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "writer", "approver"])
def test_programs_of_participants_choose_their_own_branch(
    web: Client, ada: Any, conversation: Conversation, bob: Any, role: str
):
    first = a_finished_turn(conversation, "One", "First!")
    left = a_finished_turn(conversation, "Left", "LEFT!")
    right = a_finished_turn(conversation, "Right", "RIGHT!")
    Turn.objects.filter(pk=right.pk).update(parent=first)
    here = reverse("api:branch", args=[conversation.pk])
    theirs, eve = program(bob), program(a_user("eve"))
    chosen = {"turn": left.pk}
    for client in (theirs, eve):
        assert client.get(here).status_code == 404
        assert client.put(here, chosen, "application/json").status_code == 404
    row = join(conversation, bob, role)
    assert theirs.get(here).json() == {"turn": right.pk}
    assert theirs.put(here, chosen, "application/json").json() == chosen
    assert theirs.get(here).json() == chosen
    assert program(ada).get(here).json() == {"turn": right.pk}
    assert "LEFT!" in read(signed_in(bob).get(page_of(conversation)))
    assert "RIGHT!" in read(web.get(page_of(conversation)))
    # What pages leave to the owner, programs of participants cannot do either.
    there = f"/api/turns/{left.pk}"
    assert theirs.delete(f"{there}/branch/").status_code == 404
    assert theirs.post(f"{there}/fork/").status_code == 404
    remove(row)
    assert theirs.get(here).status_code == 404
    assert eve.put(here, chosen, "application/json").status_code == 404


@pytest.mark.parametrize("by", ["page", "api"])
def test_a_writer_continues_the_branch_that_they_look_at(
    ada: Any, conversation: Conversation, bob: Any, by: str
):
    first = a_finished_turn(conversation, "One", "First!")
    left = a_finished_turn(conversation, "Left", "LEFT!")
    right = a_finished_turn(conversation, "Right", "RIGHT!")
    Turn.objects.filter(pk=right.pk).update(parent=first)
    join(conversation, bob)
    here = reverse("api:branch", args=[conversation.pk])
    for person, chosen in ((bob, left), (ada, right)):
        program(person).put(here, {"turn": chosen.pk}, "application/json")
    if by == "page":
        signed_in(bob).post(page_of(conversation), {"text": "Go on"})
    else:
        turns = reverse("api:turns", args=[conversation.pk])
        program(bob).post(turns, {"input": "Go on"}, "application/json")
    assert conversation.turns.get(author=bob).parent_id == left.pk
    assert program(ada).get(here).json() == {"turn": right.pk}


def test_an_invitation_reaches_who_gets_the_name_later(
    web: Client, conversation: Conversation
):
    invite(conversation, "carla", "viewer")
    carla = a_user("carla")
    invite(conversation, "carla", "writer")
    assert Participant.objects.open_invitations(carla).count() == 1


@pytest.mark.parametrize("is_taken", [True, False])
def test_an_invitation_gives_nothing_to_who_had_the_name_before(
    conversation: Conversation, bob: Any, is_taken: bool
):
    former = join(conversation, bob, "viewer")
    bob.username = "robert"
    bob.save()
    newcomer = a_user("bob") if is_taken else None
    row = invite(conversation, "bob", "writer")
    assert (row.user, row.role) == (newcomer, "writer")
    assert row.accepted_at is None
    former.refresh_from_db()
    assert former.role == "viewer"
    assert former.revoked_at is not None


def test_who_is_invited_again_by_a_new_name_has_one_role(
    conversation: Conversation, bob: Any
):
    """Otherwise the role of the former name would stay."""
    before = join(conversation, bob, "approver")
    bob.username = "robert"
    bob.save()
    again = invite(conversation, "robert", "viewer")
    assert again.pk == before.pk
    assert (again.name, role_of(bob, conversation)) == ("robert", "viewer")
    current = Participant.objects.current().filter(conversation=conversation)
    assert [row.pk for row in current] == [again.pk]
    remove(again)
    assert role_of(bob, conversation) == ""
    anew = invite(conversation, "robert", "viewer")
    assert role_of(bob, conversation) == ""  # until he accepts it
    anew.accept()
    assert role_of(bob, conversation) == "viewer"


def test_a_name_that_was_invited_before_it_was_taken_gives_no_second_role(
    conversation: Conversation, bob: Any
):
    join(conversation, bob, "approver")
    invite(conversation, "robert", "writer")  # there is no Robert yet
    bob.username = "robert"
    bob.save()
    invite(conversation, "robert", "viewer")
    assert role_of(bob, conversation) == "viewer"
    (only,) = Participant.objects.current().filter(conversation=conversation)
    assert (only.user, only.name) == (bob, "robert")


def test_of_two_open_invitations_the_accepted_one_counts(
    conversation: Conversation, bob: Any
):
    invite(conversation, "bob", "approver")
    bob.username = "robert"
    bob.save()
    second = invite(conversation, "robert", "viewer")
    open_ones = Participant.objects.open_invitations(bob)
    assert open_ones.count() == 2  # one row would tell that the names are one person's
    second.accept()
    assert (role_of(bob, conversation), open_ones.count()) == ("viewer", 0)
