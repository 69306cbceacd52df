"""The health of an MCP server, as sessions report it and as its page shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.audit.models import AuditEvent
from tests.tools.mcp.servers import Running, running
from tools.errors import ToolError
from tools.mcp.admin_health import health_of
from tools.mcp.client import close_all, get_session
from tools.mcp.connection_check import check_connection
from tools.mcp.errors import SignInFailed, ToolNotApproved
from tools.mcp.tool_definition import ToolDefinition
from tools.models import McpEvent, McpServer, Tool
from tools.models.mcp_event import MAX_KEPT
from tools.runtime_tool import Context

pytestmark = pytest.mark.django_db
SECRET = "planted-secret-0123456789"
EVIL = "<script>alert(1)</script>"
LIST = reverse("admin:tools_mcpserver_changelist")


@pytest.fixture
async def ours() -> AsyncIterator[Running]:
    async with running(Running()) as server:
        yield server
        await close_all()


def page(row: McpServer) -> str:
    return reverse("admin:tools_mcpserver_health", args=[row.pk])


def kinds(row: McpServer) -> list[str]:
    return [each.kind for each in row.events.order_by("pk")]


def a_server(**fields: Any) -> McpServer:
    values = {"name": "shop", "url": "https://host/mcp"} | fields
    return McpServer.objects.create(**values)


@pytest.mark.server
@pytest.mark.django_db(transaction=True)
async def test_sessions_write_what_they_see_and_nothing_of_calls(ours: Running):
    row = await McpServer.objects.acreate(
        name="ours", url=ours.spec().url, networks="127.0.0.0/8"
    )
    session = get_session(row.spec)
    await session.tools()
    with pytest.raises(ToolNotApproved):
        await session.call("add", {"a": SECRET}, Context(), digest="another")
    with pytest.raises(ToolNotApproved):
        await session.call("add", {"a": SECRET}, Context(), digest="another")
    events = [each async for each in row.events.order_by("pk")]
    listed, [failed] = events[0], [each for each in events if each.is_failure]
    assert (listed.kind, failed.kind) == ("listed", "call_failed")
    assert listed.seconds is not None
    assert int(listed.text) > 1
    assert failed.tool == "add"
    assert "changed at its server" in failed.text
    assert all(SECRET not in f"{each.text}{each.tool}" for each in events)


@pytest.mark.server
@pytest.mark.django_db(transaction=True)
async def test_a_failed_tool_is_no_failure_of_its_server(ours: Running):
    row = await McpServer.objects.acreate(
        name="ours", url=ours.spec().url, networks="127.0.0.0/8"
    )
    with pytest.raises(ToolError):
        await get_session(row.spec).call("fail", {}, Context())
    assert await sync_to_async(kinds)(row) == []


@pytest.mark.server
def test_a_connection_test_is_an_event_with_the_reason(client: Client):
    row = a_server(url="http://127.0.0.1:1/mcp")
    assert check_connection(row)
    [event] = row.events.all()
    assert (event.kind, event.is_failure) == ("not_connected", True)
    assert event.text == row.error


def test_the_page_shows_success_error_latency_counts_and_log(admin_client: Client):
    row = a_server(label=EVIL)
    pay = ToolDefinition(name="pay", description="Pay.")
    for seconds in (0.1, 0.3, 0.2):
        row.record_listing([pay, ToolDefinition(name="new")], {}, seconds)
    row.approve(["pay"], None)
    row.record_listing([ToolDefinition(name="pay", description=EVIL)], {}, 0.4)
    row.record_failed_call(EVIL, "The tool's server refused the call.")
    row.record_error("The tool's server denied access (HTTP 401).")
    health = health_of(McpServer.objects.get())
    assert (health.p50, health.p95) == (0.2, 0.4)
    assert (health.approved, health.held, health.listed) == (1, 1, 1)
    assert health.failure.kind == "not_connected"
    assert health.success.kind == "changed"
    text = admin_client.get(page(row)).text
    assert EVIL not in text
    for words in ("denied access (HTTP 401)", "-new, ~pay", "refused the call"):
        assert words in text
    assert 'style="' not in text
    assert "400 ms" in admin_client.get(LIST).text


def test_a_server_that_nobody_called_has_a_page(admin_client: Client):
    text = admin_client.get(page(a_server())).text
    assert "No process has connected" in text


def test_the_log_is_bounded_and_keeps_the_last_success(admin_client: Client):
    row, other = a_server(), a_server(name="other")
    other.record_error("Away.")
    row.record_listing([], {}, 0.1)
    for number in range(MAX_KEPT + 5):
        row.record_error(f"Away {number}.")
    assert row.events.filter(is_failure=True).count() == MAX_KEPT
    health = health_of(row)
    assert health.success is not None
    assert health.failure.text == f"Away {MAX_KEPT + 4}."
    assert other.events.count() == 1
    assert admin_client.get(page(row)).status_code == 200


def test_long_and_hostile_texts_are_stored_in_part(admin_client: Client):
    row = a_server()
    row.record_failed_call("n\0" * 2_000, "t\ud800" * 2_000)
    [event] = McpEvent.objects.all()
    assert len(event.tool) == len(event.text) == 500
    assert admin_client.get(page(row)).status_code == 200


def test_the_page_needs_the_right_to_see_servers(client: Client):
    row = a_server()
    user = User.objects.create_user("vera", is_staff=True)
    client.force_login(user)
    assert client.get(page(row)).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_mcpserver"))
    assert client.get(page(row)).status_code == 200
    missing = reverse("admin:tools_mcpserver_health", args=[row.pk + 1])
    assert client.get(missing).status_code in (403, 404)


@pytest.mark.django_db(transaction=True)
def test_a_call_that_was_loaded_before_a_sign_out_is_refused():
    row = a_server(oauth_flow="person")
    row.save_sign_in({"tokens": {"access_token": SECRET}}, None)
    row.record_listing([ToolDefinition(name="pay")], {})
    [tool] = row.approve(["pay"], None)
    loaded = Tool.objects.get(pk=tool.pk).build_tool()
    row.sign_out()
    with pytest.raises(SignInFailed, match="ended the sign-in"):
        async_to_sync(loaded.call)(Context(), {})


@pytest.mark.django_db(transaction=True)
def test_a_call_that_was_loaded_before_the_server_was_switched_off_is_refused():
    row = a_server()
    row.record_listing([ToolDefinition(name="pay")], {})
    [tool] = row.approve(["pay"], None)
    loaded = Tool.objects.get(pk=tool.pk).build_tool()
    McpServer.objects.update(enabled=False, signed_in_at=timezone.now())
    with pytest.raises(ToolNotApproved, match="no longer allow"):
        async_to_sync(loaded.call)(Context(), {})


def test_what_a_program_wrote_is_not_in_the_audit_log():
    row = a_server()
    before = AuditEvent.objects.count()
    row.record_error("It does not start.", SECRET)
    assert McpServer.objects.get().startup_output == SECRET
    assert AuditEvent.objects.count() == before
