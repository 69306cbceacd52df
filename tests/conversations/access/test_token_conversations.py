"""A token that is limited to conversations and folders reaches no others, by any
route."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import URLPattern, reverse
from django.utils import timezone

from conversations import engine
from conversations import tools as own_tools
from conversations.access import stored_turn_visibility as visibility
from conversations.access.errors import ConversationNotAllowed
from conversations.api.urls import urlpatterns
from conversations.gateway.endpoints import usage
from conversations.gateway.input_references import find_items
from conversations.gateway.previous_responses import (
    ConversationNotFound,
    PreviousNotFound,
    find_conversation,
    find_turn,
)
from conversations.gateway.stored_rows import ResponseNotFound, find
from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    Question,
    ToolCall,
    Turn,
)
from conversations.models.folder import Folder
from conversations.models.memory import Memory
from conversations.turns.branches import delete_branch
from llm.models import LanguageModel
from llm.wire.items import text_of, user_message
from tests.conversations.scene import a_model, a_user, signed_in
from tools.errors import ToolError
from tools.models import Tool
from tools.registry import Context

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

JSON = "application/json"
SECRET = "xylophone"
GATEWAY = {"gateway": {"echo": {}}}

#: Routes that a limited token may not use at all.
REFUSED = [
    *("bulk", "export-all", "folders", "folder"),
    *("folder-files", "folder-file", "tags", "imports"),
    *("import", "conversation-shares", "participants", "participant"),
    *("invitations", "accept-invitation", "shares", "share"),
    *("restore-conversation", "fork", "standing-approvals", "standing-approval"),
    *("own-keys", "own-key", "memories", "memory"),
    *("restore-memory", "sign-ins", "sign-in", "prompts"),
    *("prompt", "webhooks", "webhook", "webhook-secret"),
    *("deliveries", "send-again", "usage", "all-usage"),
]
#: Those that no token may use.
BROWSER = ["tokens", "token", "sessions", "session", "password", "settings"]
BROWSER += ["delete-account", "dismiss-announcement"]
#: Those that name a row: one of another conversation is not found.
ROWS = [
    *("export", "conversation", "turns", "context"),
    *("item", "attachments", "branch", "delete-branch"),
    *("restore-branch", "attachment", "queue", "seen"),
    *("changes", "turn", "cancel", "rating"),
    *("details", "continue", "events", "tool-calls"),
    *("tool-call-cancel", "question", "answer"),
]
#: Those whose answers list rows.
LISTS = ["conversations", "questions", "open-questions", "search"]
#: Those that tell nothing of conversations.
NEUTRAL = ["dictation", "presets", "tools", "models", "limits", "announcements"]
NEUTRAL += ["terms", "schema", "callback", "logged-requests", "logged-request"]


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture
def ada() -> User:
    Tool.objects.sync()
    a_model(is_default=True)
    return a_user("ada", is_staff=True, is_superuser=True)


class Chat:
    """A conversation with a row of each kind that a route can name."""

    def __init__(self, owner: User, word: str, **fields: Any) -> None:
        self.row = Conversation.objects.create(owner=owner, title=word, **fields)
        self.turn = self.row.open_turn([user_message(word)]).turn
        self.call = ToolCall.objects.create(
            turn=self.turn, call_id="c1", name="send", state="awaiting_approval"
        )
        self.question = Question.objects.create(
            tool_call=self.call,
            kind="approval",
            arguments={"to": word},
            expires_at=timezone.now() + timedelta(hours=1),
        )
        self.file = Attachment.objects.create(
            conversation=self.row, name="a.txt", content_type="text/plain", size=1
        )
        self.file.file.save("a.txt", ContentFile(b"x"))
        self.turn.ratings.create(user=owner, value="good")

    def url_of(self, name: str) -> str:
        item = self.turn.items.get().payload.get("id", "x")
        turns = {"turn", "cancel", "rating", "details", "continue", "events"}
        turns |= {"delete-branch", "restore-branch", "fork"}
        named: dict[str, Any] = {
            "item": [self.row.pk, item],
            "attachment": [self.file.pk],
            "tool-call-cancel": [self.call.pk],
            "question": [self.question.pk],
            "answer": [self.question.pk],
        }
        usual = self.turn.pk if name in turns else self.row.pk
        return reverse(f"api:{name}", args=named.get(name, [usual]))


@pytest.fixture
def folder(ada: User) -> Folder:
    return Folder.objects.create(owner=ada, name="Work")


@pytest.fixture
def open_chat(ada: User) -> Chat:
    return Chat(ada, "meadow")


@pytest.fixture
def secret_chat(ada: User) -> Chat:
    return Chat(ada, SECRET)


def issue(user: User, *chats: Chat, **more: Any) -> tuple[AccessToken, Client]:
    ids = " ".join(chat.row.pk for chat in chats)
    scopes = ["chat", "gateway", "tools", "approve", "admin-read"]
    fields = {"allowed_conversations": ids, "scopes": scopes, **more}
    row, token = AccessToken.issue(user, "t", **fields)
    return row, Client(headers={"Authorization": f"Bearer {token}"})


def routes() -> Iterator[tuple[str, str]]:
    """Each method of each route of the API."""
    for pattern in urlpatterns:
        assert isinstance(pattern, URLPattern)
        view = getattr(pattern.callback, "view_class", None)
        for method in ("get", "post", "put", "patch", "delete"):
            allowed = getattr(view, "http_method_names", ())
            if method in allowed and hasattr(view, method):
                yield str(pattern.name), method


def test_the_tables_have_each_route_of_the_api():
    names = {str(pattern.name) for pattern in urlpatterns}
    listed = [*REFUSED, *BROWSER, *ROWS, *LISTS, *NEUTRAL]
    assert sorted(listed) == sorted(names)


@pytest.mark.parametrize(("name", "method"), [*routes()])
def test_no_route_reaches_another_conversation(
    name: str, method: str, ada: User, open_chat: Chat, secret_chat: Chat
):
    _, program = issue(ada, open_chat)
    send = getattr(program, method)
    if name in ROWS:
        answer = send(secret_chat.url_of(name), content_type=JSON)
        assert answer.status_code == 404, answer.content
        if name == "restore-branch":
            delete_branch(secret_chat.turn)
        _, everything = issue(ada)
        found = getattr(everything, method)(secret_chat.url_of(name), content_type=JSON)
        assert found.status_code != 404, found.content
        return
    pattern = next(each for each in urlpatterns if each.name == name)
    args = ["1" for _ in pattern.pattern.converters]
    query = f"?query={SECRET}" if name == "search" else ""
    answer = send(reverse(f"api:{name}", args=args) + query, content_type=JSON)
    assert SECRET.encode() not in answer.content.replace(query.encode(), b"")
    if name in REFUSED or name in BROWSER:
        assert answer.status_code == 403, answer.content
    if name in REFUSED:
        assert answer.json()["error"]["code"] == "conversation_not_allowed"


def test_it_restores_no_branch_of_another_conversation(
    ada: User, open_chat: Chat, secret_chat: Chat
):
    _, program = issue(ada, open_chat)
    for chat, status in ((secret_chat, 404), (open_chat, 200)):
        delete_branch(chat.turn)
        answer = program.post(chat.url_of("restore-branch"))
        assert answer.status_code == status, answer.content
        chat.turn.refresh_from_db()
        assert (chat.turn.deleted_at is None) == (status == 200)


def test_it_does_what_it_may_in_its_own(ada: User, open_chat: Chat, secret_chat: Chat):
    _, program = issue(ada, open_chat)
    [listed] = program.get("/api/conversations/").json()["results"]
    assert listed["id"] == open_chat.row.pk
    assert program.get(open_chat.url_of("conversation")).status_code == 200
    assert program.get(open_chat.url_of("turn")).status_code == 200
    assert program.get(open_chat.url_of("export")).status_code == 200
    [question] = program.get("/api/questions/").json()
    assert question["id"] == open_chat.question.pk
    found = program.get("/api/search/?query=meadow").json()["results"]
    assert [each["conversation"] for each in found] == [open_chat.row.pk]
    answer = program.post(open_chat.url_of("turns"), {"input": "Hi"}, content_type=JSON)
    assert answer.status_code == 202


def test_a_folder_takes_in_what_is_in_it_now(
    ada: User, folder: Folder, open_chat: Chat, secret_chat: Chat
):
    _, program = issue(ada, allowed_folders=str(folder.pk))
    assert program.get(open_chat.url_of("turns")).status_code == 404
    Conversation.objects.filter(pk=open_chat.row.pk).update(folder=folder)
    assert program.get(open_chat.url_of("turns")).status_code == 200
    Conversation.objects.filter(pk=open_chat.row.pk).update(folder=None)
    assert program.get(open_chat.url_of("turns")).status_code == 404


def test_it_opens_conversations_in_its_folder_alone(
    ada: User, folder: Folder, open_chat: Chat
):
    other = Folder.objects.create(owner=ada, name="Home")
    _, program = issue(ada, open_chat, allowed_folders=str(folder.pk))
    url = "/api/conversations/"
    for body, status in (
        ({}, 403),
        ({"folder": None}, 403),
        ({"folder": other.pk}, 400),
        ({"folder": folder.pk}, 201),
    ):
        answer = program.post(url, body, content_type=JSON)
        assert answer.status_code == status, answer.content
    moved = program.patch(
        open_chat.url_of("conversation"), {"folder": other.pk}, content_type=JSON
    )
    assert moved.status_code == 400


def test_a_list_whose_conversations_are_gone_allows_none(
    ada: User, open_chat: Chat, secret_chat: Chat
):
    _, program = issue(ada, open_chat)
    open_chat.row.delete()
    assert program.get("/api/conversations/").json()["results"] == []
    assert program.get("/api/search/?query=xylophone").json()["results"] == []


def test_a_conversation_shared_with_its_user_is_beyond_it(ada: User, open_chat: Chat):
    grace = a_user("grace")
    theirs = Chat(grace, SECRET)
    theirs.row.participants.create(
        user=ada,
        name="ada",
        role="approve",
        invited_by=grace,
        accepted_at=timezone.now(),
    )
    _, everything = issue(ada)
    assert everything.get(theirs.url_of("turns")).status_code == 200
    _, program = issue(ada, open_chat)
    assert program.get(theirs.url_of("turns")).status_code == 404


# Messages that wait


def test_a_token_changes_only_messages_that_were_sent_with_it(
    ada: User, open_chat: Chat
):
    """Another's message would run its words without its limits."""
    token, program = issue(ada, open_chat)
    persons = open_chat.row.open_turn([user_message("mine")], queue=True).turn
    theirs = open_chat.row.open_turn(
        [user_message("its")], queue=True, access_token=token
    ).turn
    for turn, status, words in ((persons, 403, "mine"), (theirs, 200, "changed")):
        answer = program.patch(
            f"/api/turns/{turn.pk}/", {"input": "changed"}, content_type=JSON
        )
        assert answer.status_code == status, answer.content
        assert text_of(turn.items.get().payload) == words


# The gateway


def from_gateway(row: Conversation, token: AccessToken | None) -> Turn:
    opened = row.open_turn([user_message(SECRET)], options=GATEWAY, access_token=token)
    return opened.turn


def test_the_gateway_continues_none_of_the_others(
    ada: User, open_chat: Chat, secret_chat: Chat
):
    token, _ = issue(ada, open_chat)
    assert find_conversation(token, open_chat.row.pk) == open_chat.row
    with pytest.raises(ConversationNotFound):
        find_conversation(token, secret_chat.row.pk)
    other, _ = issue(ada)
    turn = from_gateway(secret_chat.row, other)
    item = turn.items.get().payload["id"]
    assert find_turn(other, turn.pk) == turn
    assert find_items(other, [item])
    with pytest.raises(PreviousNotFound):
        find_turn(token, turn.pk)
    with pytest.raises(ResponseNotFound):
        find(token, turn.pk)
    assert find_items(token, [item]) == {}
    with pytest.raises(ConversationNotAllowed):
        usage.read_report(token, {}, False)


def test_responses_of_the_token_itself_are_within_it(ada: User, open_chat: Chat):
    token, program = issue(ada, open_chat)
    row = Conversation.objects.create(owner=ada, is_from_api=True)
    turn = from_gateway(row, token)
    assert find_turn(token, turn.pk) == turn
    assert program.get(f"/api/conversations/{row.pk}/").status_code == 200
    from_gateway(row, None)  # a person goes on in it
    assert visibility.find_visible_turns(token, Turn.objects.filter(pk=turn.pk)) == []
    assert program.get(f"/api/conversations/{row.pk}/").status_code == 404


# Tools


def test_its_tools_read_none_of_the_others(
    ada: User, open_chat: Chat, secret_chat: Chat
):
    token, _ = issue(ada, open_chat)
    Memory.objects.remember(ada.pk, SECRET, secret_chat.row.pk, secret_chat.turn.pk)
    mine = Context(user_id=ada.pk, access_token_id=token.pk)
    person = Context(user_id=ada.pk)
    assert {row["title"] for row in own_tools.get_history(mine)} == {"meadow"}
    assert own_tools.get_history(mine, SECRET) == []
    assert own_tools.get_history(person, SECRET)
    assert own_tools.recall(person)
    for use in (
        lambda: own_tools.recall(mine),
        lambda: own_tools.remember("x", mine),
        lambda: own_tools.forget(1, mine),
    ):
        with pytest.raises(ToolError):
            use()


def test_a_deleted_token_lifts_no_limit(ada: User, open_chat: Chat, secret_chat: Chat):
    token, _ = issue(ada, open_chat)
    rows = {
        status: open_chat.row.open_turn([user_message("x")], access_token=token).turn
        for status in ("queued", "waiting", "completed", "failed")
    }
    for status, turn in rows.items():
        Turn.objects.filter(pk=turn.pk).update(status=status)
    call = ToolCall.objects.create(
        turn=rows["completed"], call_id="b1", blocking=False, state="executing"
    )
    program = Context(user_id=ada.pk, access_token_id=token.pk)
    token.delete()
    for use in (own_tools.get_history, own_tools.recall):
        with pytest.raises(ToolError):
            use(program)
    stopped = Turn.objects.filter(cancel_requested=True)
    assert {*stopped} == {rows["queued"], rows["waiting"]}
    halted = Turn.objects.filter(halted_by=Turn.HaltedBy.PERSON)
    assert {*halted} == {rows["queued"], rows["waiting"], rows["completed"]}
    call.refresh_from_db()
    assert call.cancel_requested


# SCIM


def test_it_manages_no_accounts(ada: User, open_chat: Chat):
    for chats, status in (([open_chat], 403), ([], 200)):
        _, program = issue(ada, *chats, scopes=["scim"])
        assert program.get("/scim/v2/Users").status_code == status


# Making one


def test_a_person_limits_it_to_their_own(
    ada: User, folder: Folder, open_chat: Chat, client: Client
):
    theirs = Chat(a_user("grace"), SECRET)
    page = signed_in(ada)
    body = {"label": "x", "conversations": [open_chat.row.pk], "folders": [folder.pk]}
    made = page.post("/api/tokens/", body, content_type=JSON)
    assert made.status_code == 201, made.content
    assert made.json()["conversations"] == [open_chat.row.pk]
    assert made.json()["folders"] == [folder.pk]
    [row] = AccessToken.objects.all()
    limit = row.conversation_limit
    assert limit
    assert limit.folders == {folder.pk}
    for field, value in (("conversations", theirs.row.pk), ("folders", 99_999)):
        body = {"label": "x", field: [value]}
        refused = page.post("/api/tokens/", body, content_type=JSON)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == field


def test_the_page_offers_and_shows_them(ada: User, folder: Folder, open_chat: Chat):
    page = signed_in(ada)
    text = page.get(reverse("tokens")).content.decode()
    assert "meadow" in text
    assert "Work" in text
    body = {
        "label": "x",
        "scopes": ["chat"],
        "allowed_conversations": [open_chat.row.pk],
        "allowed_folders": [folder.pk],
        "budget_period": "total",
    }
    shown = page.post(reverse("tokens"), body).content.decode()
    assert "Work, meadow" in shown
    [row] = AccessToken.objects.all()
    assert row.allowed_conversations == open_chat.row.pk
    body["allowed_conversations"] = [Chat(a_user("grace"), SECRET).row.pk]
    assert page.post(reverse("tokens"), body).status_code == 400


def fields_of(response: Any) -> dict[str, Any]:
    """What the page of a token sends if nothing is entered."""
    form = response.context["adminform"].form
    sent = {each.html_name: each.value() for each in form}
    sent["allowed_models"] = [row.pk for row in form.instance.allowed_models.all()]
    return {name: value for name, value in sent.items() if value not in (None, False)}


def test_staff_limit_one_in_the_admin(ada: User, open_chat: Chat):
    theirs = Chat(a_user("grace"), SECRET)
    token, _ = issue(ada)
    page = signed_in(ada)
    url = reverse("admin:conversations_accesstoken_change", args=[token.pk])
    for id, status in ((theirs.row.pk, 200), (open_chat.row.pk, 302)):
        shown = fields_of(page.get(url))
        answer = page.post(url, {**shown, "allowed_conversations": id})
        assert answer.status_code == status
    token.refresh_from_db()
    assert token.allowed_conversations == open_chat.row.pk
    open_chat.row.delete()  # a list with a row that is gone can still be saved
    answer = page.post(url, fields_of(page.get(url)))
    assert answer.status_code == 302


def test_an_old_page_of_the_admin_takes_no_limit_back(ada: User, open_chat: Chat):
    token, _ = issue(ada)
    page = signed_in(ada)
    url = reverse("admin:conversations_accesstoken_change", args=[token.pk])
    old = fields_of(page.get(url))
    token.allowed_conversations = open_chat.row.pk
    token.save()
    answer = page.post(url, {**old, "label": "another"})
    assert answer.status_code == 200
    assert "Others have changed this meanwhile" in answer.content.decode()
    token.refresh_from_db()
    assert token.allowed_conversations == open_chat.row.pk
    model = LanguageModel.objects.get()
    now = fields_of(page.get(url))
    token.allowed_models.add(model)
    assert page.post(url, now).status_code == 200
    assert token.allowed_models.get() == model
    answer = page.post(url, {**fields_of(page.get(url)), "label": "another"})
    assert answer.status_code == 302
    token.refresh_from_db()
    assert (token.label, token.allowed_conversations) == ("another", open_chat.row.pk)


@pytest.mark.parametrize("name", ["expires_at", "revoked_at", "logs_requests_until"])
def test_an_old_page_of_the_admin_takes_no_date_back(ada: User, name: str):
    token, _ = issue(ada)
    page = signed_in(ada)
    url = reverse("admin:conversations_accesstoken_change", args=[token.pk])
    old = fields_of(page.get(url))
    setattr(token, name, timezone.now())
    token.save()
    answer = page.post(url, {**old, "label": "another"})
    assert answer.status_code == 200
    assert "Others have changed this meanwhile" in answer.content.decode()
    token.refresh_from_db()
    assert getattr(token, name) is not None
    assert token.label != "another"
    now = fields_of(page.get(url))
    assert page.post(url, {**now, **parts_of(token)}).status_code == 302


def parts_of(token: AccessToken) -> dict[str, str]:
    """The date and the time of its expiry, as the page sends them."""
    if token.expires_at is None:
        return {}
    shown = timezone.localtime(token.expires_at)
    return {"expires_at_0": f"{shown:%Y-%m-%d}", "expires_at_1": f"{shown:%H:%M:%S}"}


def test_the_command_limits_it(
    ada: User, folder: Folder, open_chat: Chat, capsys: pytest.CaptureFixture[str]
):
    call_command(
        "create_token", "ada", conversation=[open_chat.row.pk], folder=["Work"]
    )
    [row] = AccessToken.objects.all()
    assert row.allowed_conversations == open_chat.row.pk
    assert row.allowed_folders == str(folder.pk)
    with pytest.raises(CommandError):
        call_command("create_token", "ada", conversation=["conv_none"])
    with pytest.raises(CommandError):
        call_command("create_token", "ada", folder=["None"])
