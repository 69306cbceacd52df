"""What people have granted, on one page; who may revoke it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.admin import user_grants
from conversations.models import Conversation, Question, ToolCall
from tests.conversations.scene import a_finished_turn, a_user, signed_in, staff
from tools.models import McpServer, Tool

pytestmark = pytest.mark.django_db
GRANTS = reverse("admin:conversations_question_grants")
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def conversation() -> Conversation:
    Tool.objects.filter(name="calculator").update(approval="first")
    return Conversation.objects.create(owner=a_user(EVIL), title="Secret plans")


@pytest.fixture
def approval(conversation: Conversation) -> Question:
    return approve(conversation, "calculator")


@pytest.fixture
def server() -> McpServer:
    row = McpServer.objects.create(
        name="mail", label=EVIL, url="https://host/mcp", oauth_flow="person"
    )
    row.save_sign_in({"tokens": {"access_token": "planted-0123456789"}}, a_user("ann"))
    return row


def approve(conversation: Conversation, tool: str) -> Question:
    turn = a_finished_turn(conversation)
    call = ToolCall.objects.create(turn=turn, call_id=f"c-{turn.pk}", name=tool)
    now = timezone.now()
    return Question.objects.create(
        tool_call=call,
        kind="approval",
        state="accepted",
        decided_by=conversation.owner,
        decided_at=now,
        expires_at=now + timedelta(hours=1),
    )


def key(question: Question) -> str:
    call = question.tool_call
    return f"{call.turn.conversation_id} {call.name}"


def revoke(client: Client, **fields: Any) -> Any:
    return client.post(GRANTS, fields, follow=True)


def stands(question: Question) -> bool:
    return Question.objects.standing_approvals().filter(pk=question.pk).exists()


def test_the_page_lists_sign_ins_and_standing_approvals(
    admin_client: Client, approval: Question, server: McpServer
):
    unrelated = approve(approval.tool_call.turn.conversation, "current_time")
    page = admin_client.get(GRANTS)
    text = page.text
    assert EVIL not in text
    assert "planted" not in text
    assert "Secret plans" not in text  # reading chats has a page of its own
    assert [each.key for each in page.context["approvals"]] == [key(approval)]
    assert [row.pk for row in page.context["sign_ins"]] == [server.pk]
    assert key(unrelated) not in text
    of_ann = admin_client.get(GRANTS, {"user": "ann"})
    assert (len(of_ann.context["sign_ins"]), of_ann.context["approvals"]) == (1, [])
    of_evil = admin_client.get(GRANTS, {"user": EVIL})
    assert (len(of_evil.context["sign_ins"]), len(of_evil.context["approvals"])) == (
        0,
        1,
    )
    assert admin_client.get(GRANTS, {"user": "a\0b" * 900}).status_code == 200


def test_all_approvals_of_a_tool_in_a_conversation_are_one_grant(
    admin_client: Client, approval: Question
):
    second = approve(approval.tool_call.turn.conversation, "calculator")
    elsewhere = approve(Conversation.objects.create(owner=a_user("bob")), "calculator")
    revoke(admin_client, approval=[key(approval)])
    assert not stands(approval)
    assert not stands(second)
    assert stands(elsewhere)
    assert "Revoked the approval of calculator." in str(LogEntry.objects.latest("pk"))


def test_the_page_says_when_there_are_more_approvals_than_it_reads(
    admin_client: Client, approval: Question, monkeypatch: Any
):
    monkeypatch.setattr(user_grants, "MAX_READ", 1)
    assert "Only the newest" not in admin_client.get(GRANTS).text
    approve(approval.tool_call.turn.conversation, "calculator")
    assert "Only the newest 1 approvals were read" in admin_client.get(GRANTS).text


def test_a_sign_in_is_revoked_once(admin_client: Client, server: McpServer):
    page = revoke(admin_client, server=server.pk, user="ann")
    assert page.redirect_chain[0][0].endswith("?user=ann")
    server.refresh_from_db()
    assert not server.is_signed_in
    assert "revoked already" in revoke(admin_client, server=server.pk).text


@pytest.mark.parametrize(
    "fields",
    [{}, {"approval": ["", "x", "a\0b c"]}, {"server": "x"}, {"server": "9" * 90}],
)
def test_any_selection_is_answered(
    admin_client: Client, approval: Question, server: McpServer, fields: Any
):
    assert revoke(admin_client, **fields).status_code == 200
    assert stands(approval)
    assert McpServer.objects.get().is_signed_in


def test_staff_see_and_revoke_only_what_their_rights_allow(
    approval: Question, server: McpServer
):
    assert signed_in(staff("nobody")).get(GRANTS).status_code == 403
    of_servers = signed_in(staff("sam", "view_mcpserver"))
    page = of_servers.get(GRANTS)
    assert page.context["approvals"] == []
    assert "Revoke" not in page.text.replace("Revoked", "")
    for fields in ({"server": server.pk}, {"approval": key(approval)}):
        assert of_servers.post(GRANTS, fields).status_code == 403
    reader = signed_in(staff("rita", "inspect_turn"))
    page = reader.get(GRANTS)
    assert (len(page.context["approvals"]), page.context["sign_ins"]) == (1, [])
    assert reader.post(GRANTS, {"approval": key(approval)}).status_code == 403
    assert stands(approval)


def test_staff_without_the_right_to_inspect_revoke_their_own_only(approval: Question):
    sam = staff("sam", "view_question", "change_question")
    own = approve(Conversation.objects.create(owner=sam), "calculator")
    client = signed_in(sam)
    assert [each.key for each in client.get(GRANTS).context["approvals"]] == [key(own)]
    revoke(client, approval=[key(approval), key(own)])
    assert stands(approval)
    assert not stands(own)
