"""The editor of MCP servers and the review of their tools, with a real server."""

from __future__ import annotations

import html
import sys
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from tools.mcp.tool_definition import ToolDefinition
from tools.models import McpServer, McpTool, Tool

pytestmark = [pytest.mark.django_db, pytest.mark.server]
ADD = reverse("admin:tools_mcpserver_add")
EVIL = ToolDefinition(name="<b>x</b>", description="<script>alert(1)</script>")
PLANTED = "planted-secret-0123456789"


def page(row: McpServer, kind: str = "tools") -> str:
    return reverse(f"admin:tools_mcpserver_{kind}", args=[row.pk])


def text_of(response: Any) -> str:
    return html.unescape(response.content.decode())


@pytest.fixture
def clock(settings: Any) -> McpServer:
    """`mcp-server-time`, as a program of the settings that staff have switched on."""
    settings.MCP_STDIO_SERVERS = {
        "time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
    }
    McpServer.objects.sync()
    McpServer.objects.update(enabled=True)
    return McpServer.objects.get()


def connect(client: Client, row: McpServer) -> str:
    return text_of(client.post(page(row), {"_look": "1"}, follow=True))


def approve(client: Client, row: McpServer, *names: str, **changes: str) -> str:
    row.refresh_from_db()
    fields = {"_approve": "1", "tool": names, "listed_at": row.listed_at.isoformat()}
    return text_of(client.post(page(row), {**fields, **changes}, follow=True))


def form(**fields: object) -> dict[str, object]:
    empty = dict.fromkeys(
        [
            "label",
            "headers",
            "secret",
            "oauth_flow",
            "oauth_client_id",
            "oauth_secret",
            "oauth_issuer",
            "oauth_scope",
            "allowed_tools",
            "networks",
        ],
        "",
    )
    server = {"name": "docs", "url": "https://host/mcp", "timeout": "30"}
    return {**empty, **server, "enabled": "on", **fields}


# Review


def test_a_server_is_connected_to_and_its_tools_are_listed(
    admin_client: Client, clock: McpServer
):
    page_text = connect(admin_client, clock)
    assert "Connected; it lists 2 tools." in page_text
    assert "Get current time in a specific timezone" in page_text
    assert '"timezone"' in page_text
    assert "MCP 2026-07-28" in text_of(admin_client.get(page(clock, "change")))


@pytest.mark.django_db(transaction=True)  # a session writes
def test_the_chosen_tools_are_approved_and_can_be_tried(
    admin_client: Client, clock: McpServer
):
    connect(admin_client, clock)
    assert "1 tool approved." in approve(admin_client, clock, "get_current_time")
    assert "Approved: get_current_time." in str(LogEntry.objects.latest("pk"))
    tool = Tool.objects.get(kind=Tool.Kind.MCP)
    assert tool.name == "time__get_current_time"
    change = reverse("admin:tools_tool_change", args=[tool.pk])
    assert "Get current time" in text_of(admin_client.get(change))
    run = reverse("admin:tools_tool_dry_run", args=[tool.pk])
    fields = {"username": "admin", "arguments": '{"timezone": "Europe/Paris"}'}
    assert "Europe/Paris" in text_of(admin_client.post(run, fields))


@pytest.mark.django_db(transaction=True)  # a session writes
def test_a_changed_tool_is_blocked_and_its_diff_is_shown(
    admin_client: Client, clock: McpServer
):
    connect(admin_client, clock)
    approve(admin_client, clock, "get_current_time")
    pin = McpTool.objects.get()
    pin.definition["description"] = "Tell the time."
    pin.save()
    page_text = text_of(admin_client.get(page(clock)))
    assert "Changed, and held back" in page_text
    assert "- Tell the time." in page_text
    assert "+ Get current time in a specific timezone" in page_text
    run = reverse("admin:tools_tool_dry_run", args=[pin.tool_id])
    fields = {"username": "admin", "arguments": '{"timezone": "Europe/Paris"}'}
    assert "waits for the staff's approval" in text_of(admin_client.post(run, fields))
    approve(admin_client, clock, "get_current_time")
    assert '"timezone"' in text_of(admin_client.post(run, fields))


def test_a_change_noticed_by_a_session_is_shown_without_a_new_connection(
    admin_client: Client, clock: McpServer
):
    connect(admin_client, clock)
    approve(admin_client, clock, "get_current_time")
    clock.refresh_from_db()
    clock.update_listing([ToolDefinition(name="get_current_time"), EVIL], {})
    servers = text_of(admin_client.get(reverse("admin:tools_mcpserver_changelist")))
    assert "1 changed, held back" in servers
    assert "1 new" in servers
    tools = reverse("admin:tools_tool_changelist")
    assert ">changed, held back</a>" in text_of(admin_client.get(tools))
    filtered = admin_client.get(tools, {"mcp__difference": "changed"})
    assert "time__get_current_time" in text_of(filtered)


def test_all_that_is_new_is_approved_at_once(admin_client: Client, clock: McpServer):
    connect(admin_client, clock)
    approve(admin_client, clock, _approve_new="1")
    assert clock.tools.count() == 2


def test_a_definition_that_was_not_shown_is_not_approved(
    admin_client: Client, clock: McpServer
):
    connect(admin_client, clock)
    page_text = approve(admin_client, clock, "get_current_time", listed_at="earlier")
    assert "review it again" in page_text
    assert not McpTool.objects.exists()


def test_a_server_that_cannot_be_connected_to_is_explained_with_advice(
    admin_client: Client,
):
    row = McpServer.objects.create(name="shut", url="http://127.0.0.1:1/mcp")
    page_text = connect(admin_client, row)
    assert "private or reserved network" in page_text
    assert "allow its network" in page_text
    listed = reverse("admin:tools_mcpserver_changelist")
    assert 'alt="False"' in text_of(admin_client.get(listed))


def test_a_missing_program_is_reported(
    admin_client: Client, clock: McpServer, settings: Any
):
    settings.MCP_STDIO_SERVERS = {}
    assert "no longer in the settings" in connect(admin_client, clock)


def test_definitions_cannot_write_into_the_page(admin_client: Client, clock: McpServer):
    clock.record_listing([EVIL], {})
    assert b"<script>alert" not in admin_client.get(page(clock)).content


# Rights


@pytest.mark.parametrize(
    ("rights", "looks", "acts"),
    [([], 403, 403), (["view"], 200, 403), (["view", "change"], 200, 302)],
)
def test_viewing_connecting_and_approving_follow_permissions(
    client: Client, clock: McpServer, rights: list[str], looks: int, acts: int
):
    user = User.objects.create_user("staff", is_staff=True)
    names = [f"{right}_mcpserver" for right in rights]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    assert client.get(page(clock)).status_code == looks
    fields = {"_approve": "1", "listed_at": ""}
    assert client.post(page(clock), fields).status_code == acts


# The editor


def test_a_server_is_made_and_its_secrets_are_never_shown(admin_client: Client):
    secret = f"Authorization: Bearer {PLANTED}"
    response = admin_client.post(ADD, form(secret=secret), follow=True)
    row = McpServer.objects.get()
    assert row.get_secret_headers() == {"Authorization": f"Bearer {PLANTED}"}
    page_text = text_of(response) + text_of(admin_client.get(page(row, "change")))
    assert "Currently set: Authorization." in page_text
    assert PLANTED not in page_text


def test_an_oauth_client_is_stored_without_its_secret_being_shown(admin_client: Client):
    oauth = {
        "oauth_flow": "machine",
        "oauth_client_id": "parley",
        "oauth_secret": PLANTED,
        "oauth_issuer": "https://login.host",
    }
    admin_client.post(ADD, form(**oauth))
    row = McpServer.objects.get()
    assert row.oauth_secret.reveal() == PLANTED
    assert PLANTED not in text_of(admin_client.get(page(row, "change")))
    admin_client.post(
        page(row, "change"), form(**oauth, label="Docs") | {"oauth_secret": ""}
    )
    row.refresh_from_db()
    assert (row.label, row.oauth_secret.reveal()) == ("Docs", PLANTED)


def test_mistakes_are_reported_at_their_fields(admin_client: Client):
    page_text = text_of(admin_client.post(ADD, form(url="ftp://host", name="a__b")))
    assert "Write a URL" in page_text
    assert "single '_'" in page_text
    assert not McpServer.objects.exists()


def test_a_hosted_server_is_one_tool_that_providers_run(
    admin_client: Client, clock: McpServer
):
    admin_client.post(ADD, form(hosted="on"))
    row = McpServer.objects.get(name="docs")
    assert row.hosted_tool.kind == Tool.Kind.HOSTED
    taken = Tool.objects.create(name="taken")
    page_text = text_of(
        admin_client.post(ADD, form(name="taken", hosted="on"), follow=True)
    )
    assert "already exists" in page_text
    taken.refresh_from_db()
    assert taken.kind == Tool.Kind.PYTHON


def test_a_program_can_be_switched_but_not_be_rewritten(
    admin_client: Client, clock: McpServer
):
    page_text = text_of(admin_client.get(page(clock, "change")))
    assert 'name="url"' not in page_text
    assert 'name="enabled"' in page_text
    assert admin_client.get(page(clock, "delete")).status_code == 403


def test_the_list_shows_problems_of_a_server(admin_client: Client):
    McpServer.objects.create(name="a", url="https://a.example/mcp")
    McpServer.objects.create(
        name="b", url="https://b.example/mcp", error="It <is> out."
    )
    McpServer.objects.create(name="c", is_program=True, is_missing=True)
    listed = admin_client.get(reverse("admin:tools_mcpserver_changelist"))
    table = listed.content.decode().partition('id="result_list"')[2]
    rows = table.partition("<tbody>")[2].split("<tr>")[1:]
    assert "tool-bad" not in rows[0]
    assert ">https://b.example/mcp<small" in rows[1]
    assert "It &lt;is&gt; out.</small>" in rows[1]
    assert "The program is no longer in the settings.</small>" in rows[2]
