"""Forty acts at the real pages, REST and the admin leave forty events."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.audit.models import AuditEvent, AuditText
from conversations.models import (
    AccessToken,
    Conversation,
    Participant,
    Question,
    ShareLink,
    ToolCall,
    Turn,
)
from conversations.models.memory import Memory
from conversations.models.signed_in_session import SignedInSession
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.audit.scene import fill
from tests.conversations.page_scene import CALL, a_turn
from tests.conversations.scene import (
    PASSWORD,
    a_finished_turn,
    a_model,
    a_user,
    program,
)
from tools.models import Tool

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("scripted_host", "silent_engine"),
]

SECRET = "sk-of-these-tests-0123456789abcdef"
NEW_PASSWORD = "a better horse 7"


@pytest.fixture
def silent_engine(monkeypatch):
    """Nothing runs; the acts are those of people."""
    for name in ("submit", "cancel", "notify_decision", "announce_rename"):
        monkeypatch.setattr(engine, name, lambda *a, **k: None)


@dataclass
class Scene:
    """Ada and her rows, and the administrator. `ada` is signed in anew where an act
    has ended her session."""

    user: User
    boss: User
    model: LanguageModel
    folder: Path

    @property
    def ada(self) -> Client:
        client = Client()
        client.force_login(User.objects.get(pk=self.user.pk))
        return client

    @property
    def root(self) -> Client:
        client = Client()
        client.force_login(self.boss)
        return client

    @property
    def api(self) -> Client:
        return self.ada

    def chat(self) -> Conversation:
        row = Conversation.objects.create(owner=self.user, title="Paris")
        a_finished_turn(row)
        return row

    def question(self) -> Question:
        row = Conversation.objects.create(owner=self.user)
        turn = a_turn(row, Turn.Status.WAITING, CALL)
        call = turn.tool_calls.create(
            call_id="call_1",
            name="weather_demo",
            state=ToolCall.State.AWAITING_APPROVAL,
        )
        question = Question(tool_call=call, kind=Question.Kind.APPROVAL)
        question.arguments = {"city": "Paris"}
        question.expires_at = timezone.now() + timedelta(days=1)
        question.save()
        return question

    def key(self) -> ApiKey:
        provider = self.model.provider
        return ApiKey.objects.create(provider=provider, secret=SECRET, label="first")


def page(name: str, *arguments: Any) -> str:
    return reverse(name, args=arguments)


def admin_page(row: Any, kind: str = "change") -> str:
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}_{kind}"
    return reverse(name, args=[row.pk] if kind in ("change", "delete") else [])


def take(client: Client, action: str, row: Any, **fields: Any) -> Any:
    """An action of a list, on one row."""
    data = {"action": action, "_selected_action": [row.pk], "confirmed": "yes"}
    return client.post(admin_page(row, "changelist"), {**data, **fields})


def sends(client: Client, method: str, address: str, data: Any = None) -> Any:
    return getattr(client, method)(address, data, content_type="application/json")


# The acts. Each prepares what it needs and returns what it does.

ACTS: dict[str, tuple[str, str, Callable[[Scene], Callable[[], Any]]]] = {}


def act(action: str, channel: str = "page"):
    def add(prepare: Callable[[Scene], Callable[[], Any]]):
        ACTS[prepare.__name__] = (action, channel, prepare)
        return prepare

    return add


@act("sign_in")
def sign_in(s: Scene):
    data = {"username": "ada", "password": PASSWORD}
    return lambda: Client().post("/login/", data)


@act("sign_in")
def wrong_password(s: Scene):
    data = {"username": "ada", "password": "of somebody else"}
    return lambda: Client().post("/login/", data)


@act("sign_in")
def unknown_name(s: Scene):
    data = {"username": "my-secret-typed-here", "password": "x"}
    return lambda: Client().post("/login/", data)


@act("sign_out")
def sign_out(s: Scene):
    client = s.ada
    return lambda: client.post("/logout/")


@act("sign_out")
def end_a_session(s: Scene):
    client, other = s.ada, s.ada
    other.get("/account/")
    client.get("/account/")
    row = SignedInSession.objects.get(session_key=other.session.session_key)
    return lambda: client.post(f"/account/sessions/{row.pk}/end/")


@act("sign_out", "rest")
def end_all_other_sessions(s: Scene):
    client = s.ada
    return lambda: client.delete("/api/sessions/")


@act("user.change")
def password(s: Scene):
    client = s.ada
    fields = {
        "old_password": PASSWORD,
        "new_password1": NEW_PASSWORD,
        "new_password2": NEW_PASSWORD,
    }
    return lambda: client.post("/account/", fields)


@act("user.change", "rest")
def password_by_rest(s: Scene):
    client = s.ada
    fields = {"old_password": NEW_PASSWORD, "new_password": PASSWORD}
    return lambda: sends(client, "post", "/api/password/", fields)


@act("token.add")
def issue_a_token(s: Scene):
    client = s.ada
    form = {"label": "cli", "scopes": ["chat"], "budget_period": "total"}
    form["allowed_models"] = [s.model.pk]
    return lambda: client.post(page("tokens"), form)


@act("token.add", "rest")
def issue_a_token_by_rest(s: Scene):
    client = s.ada
    body = {"label": "rest", "models": [s.model.public_name]}
    return lambda: sends(client, "post", "/api/tokens/", body)


@act("token.change")
def revoke_a_token(s: Scene):
    client, row = s.ada, AccessToken.issue(s.user, "old")[0]
    return lambda: client.post(page("revoke-token", row.pk))


@act("token.change", "rest")
def revoke_a_token_by_rest(s: Scene):
    client, row = s.ada, AccessToken.issue(s.user, "old")[0]
    return lambda: client.delete(f"/api/tokens/{row.pk}/")


@act("data.export")
def export_a_conversation(s: Scene):
    client, row = s.ada, s.chat()
    return lambda: client.get(page("export-conversation", row.pk), {"format": "json"})


@act("data.export")
def export_everything(s: Scene):
    client = s.ada
    return lambda: client.get(page("export-all"))


@act("data.export", "rest")
def export_everything_by_token(s: Scene):
    client = program(s.user)
    return lambda: client.get("/api/conversations/export/")


@act("content.delete")
def delete_a_conversation(s: Scene):
    client, row = s.ada, s.chat()
    return lambda: client.post(page("delete", row.pk))


@act("content.delete", "rest")
def delete_a_conversation_by_rest(s: Scene):
    client, row = program(s.user), s.chat()
    return lambda: client.delete(f"/api/conversations/{row.pk}/")


@act("content.delete", "rest")
def delete_several_conversations(s: Scene):
    client, rows = program(s.user), [s.chat(), s.chat()]
    body = {"ids": [row.pk for row in rows], "action": "delete"}
    return lambda: sends(client, "post", "/api/conversations/bulk/", body)


@act("content.delete", "rest")
def forget_a_memory(s: Scene):
    row = Memory.objects.create(user=s.user, text="of-a-memory")
    client = s.ada
    return lambda: client.delete(f"/api/memories/{row.pk}/")


@act("share.add")
def share_a_conversation(s: Scene):
    client, row = s.ada, s.chat()
    form = {"audience": "signed_in", "kind": "snapshot"}
    return lambda: client.post(page("share", row.pk), form)


@act("share.revoke", "rest")
def revoke_a_link(s: Scene):
    client, row = program(s.user), ShareLink.objects.filter(revoked_at=None).get()
    return lambda: client.delete(f"/api/shares/{row.pk}/")


@act("share.add", "rest")
def invite_somebody(s: Scene):
    client, row = program(s.user), s.chat()
    body = {"name": "bob", "role": "viewer"}
    address = f"/api/conversations/{row.pk}/participants/"
    return lambda: sends(client, "post", address, body)


@act("share.revoke")
def remove_a_participant(s: Scene):
    client, row = s.ada, Participant.objects.get()
    return lambda: client.post(page("remove-person", row.pk))


@act("approval.decide")
def approve_a_call(s: Scene):
    client, row = s.ada, s.question()
    return lambda: client.post(page("question", row.pk), {"action": "accept"})


@act("approval.decide", "rest")
def decline_a_call(s: Scene):
    client, row = program(s.user), s.question()
    address, body = f"/api/questions/{row.pk}/answer/", {"action": "decline"}
    return lambda: sends(client, "post", address, body)


@act("config.add", "admin")
def add_a_provider(s: Scene):
    client, address = s.root, page("admin:llm_provider_add")
    return lambda: fill(client, address, name="New", kind="scripted")


@act("config.change", "admin")
def change_a_provider(s: Scene):
    client, row = s.root, Provider.objects.get(name="New")
    return lambda: fill(client, admin_page(row), name="Newer")


@act("config.delete", "admin")
def delete_a_provider(s: Scene):
    client, row = s.root, Provider.objects.get(name="Newer")
    return lambda: client.post(admin_page(row, "delete"), {"post": "yes"})


@act("config.change", "admin")
def disable_a_model(s: Scene):
    client = s.root
    return lambda: take(client, "disable", s.model)


@act("config.change", "admin")
def price_a_model(s: Scene):
    """A row within the form."""
    client, address = s.root, admin_page(s.model)
    price = {"valid_from_0": "2026-01-01", "valid_from_1": "00:00:00", "input": "2"}
    first = {f"price_rows-0-{name}": value for name, value in price.items()}
    return lambda: fill(client, address, label="Priced", **first)


@act("key.change", "admin")
def disable_a_key(s: Scene):
    client, row = s.root, s.key()
    return lambda: take(client, "disable", row)


@act("key.change", "admin")
def replace_a_key(s: Scene):
    client, row = s.root, ApiKey.objects.get()
    secret = SECRET.replace("0123", "9876")
    return lambda: fill(client, admin_page(row), secret=secret)


@act("key.delete", "admin")
def delete_a_key(s: Scene):
    client, row = s.root, ApiKey.objects.get()
    return lambda: client.post(admin_page(row, "delete"), {"post": "yes"})


@act("config.change", "admin")
def let_a_group_use_a_tool(s: Scene):
    client, row = s.root, Tool.objects.get(name="calculator")
    group = Group.objects.create(name="Tool users")
    return lambda: take(client, "change_groups", row, add=[group.pk])


@act("config.add", "admin")
def add_a_preset(s: Scene):
    client, address = s.root, page("admin:conversations_preset_add")
    return lambda: fill(client, address, name="brief", label="Brief")


@act("user.add", "admin")
def add_a_user(s: Scene):
    client = s.root
    data = {
        "username": "carol",
        "password1": NEW_PASSWORD,
        "password2": NEW_PASSWORD,
        "usable_password": "true",
    }
    return lambda: client.post(page("admin:auth_user_add"), data)


@act("user.change", "admin")
def make_somebody_staff(s: Scene):
    client, row = s.root, User.objects.get(username="carol")
    group = Group.objects.create(name="Operators")
    return lambda: fill(client, admin_page(row), is_staff="on", groups=[group.pk])


@act("user.change", "admin")
def deactivate_a_user(s: Scene):
    client, row = s.root, User.objects.get(username="carol")
    return lambda: take(client, "deactivate", row)


@act("token.change", "admin")
def raise_a_budget(s: Scene):
    row = AccessToken.issue(s.user, "budget", budget=5, budget_period="month")[0]
    client = s.root
    return lambda: fill(client, admin_page(row), budget="9")


@act("content.read", "admin")
def read_a_conversation(s: Scene):
    client, row = s.root, s.chat()
    return lambda: client.get(admin_page(row.turns.get()))


@act("content.export", "admin")
def export_conversations_of_others(s: Scene):
    client, row = s.root, s.chat()
    return lambda: take(client, "export", row)


@act("content.delete", "admin")
def delete_conversations_of_others(s: Scene):
    client, row = s.root, s.chat()
    return lambda: take(client, "delete_softly", row)


@act("config.load", "admin")
def import_configuration(s: Scene):
    client = s.root
    text = '[[presets]]\nname = "from-a-file"\nlabel = "File"\n'
    file = SimpleUploadedFile("parley.toml", text.encode())
    shown = client.post(page("admin:config"), {"file": file})
    data = {"text": text, "before": shown.context["before"], "_apply": "yes"}
    return lambda: client.post(page("admin:config"), data)


@act("config.load", "system")
def load_a_file(s: Scene):
    path = Path(s.folder) / "parley.toml"
    path.write_text('[[presets]]\nname = "loaded"\nlabel = "File"\n')
    return lambda: call_command("load_config", str(path), stdout=io.StringIO())


@act("config.add", "admin")
def announce_maintenance(s: Scene):
    client = s.root
    data = {"banner": "Back at noon", "refuses_messages": "on"}
    return lambda: client.post(page("admin:conversations_engine_maintenance"), data)


@act("log.export", "admin")
def export_the_log(s: Scene):
    client = s.root
    return lambda: client.get(page("admin:audit_auditevent_export"))


@act("account.close")
def close_the_account(s: Scene):
    """The last act of Ada: tokens, keys and content go with it."""
    client = s.ada
    return lambda: client.post(page("delete-account"), {"password": PASSWORD})


@pytest.fixture
def scene(tmp_path) -> Scene:
    a_user("bob")
    model = a_model(is_default=True, alias="fast", label="Fast one")
    boss = a_user("boss", is_staff=True, is_superuser=True)
    return Scene(a_user("ada"), boss, model, tmp_path)


def test_forty_acts_are_forty_events(scene: Scene):
    assert len(ACTS) >= 40
    wrong = []
    for name, (action, channel, prepare) in ACTS.items():
        perform = prepare(scene)
        before = AuditEvent.objects.count()
        status = getattr(perform(), "status_code", 200)
        new = list(AuditEvent.objects.order_by("id")[before:])
        found = [(event.action, event.channel) for event in new]
        if found != [(action, channel)] or status >= 400:
            wrong.append((name, status, found))
    assert wrong == []

    out = io.StringIO()
    call_command("verify_audit", stdout=out)
    assert f"{AuditEvent.objects.count()} events verified" in out.getvalue()
    texts = "".join(
        f"{row.identity}{row.details}" for row in AuditText.objects.iterator()
    )
    for secret in (SECRET, SECRET[-8:], PASSWORD, NEW_PASSWORD, "my-secret-typed"):
        assert secret not in texts
    for content in ("Paris", "Hello!", "of-a-memory"):
        assert content not in texts
