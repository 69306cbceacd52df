"""What staff of few rights get of the secrets of tools and MCP servers: nothing."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from tests.recording import Recording
from tests.tools.http import test_http_admin as tools
from tests.tools.mcp import test_admin as servers
from tools.models import HttpTool, Tool
from tools.models.mcp_server import McpServer

pytestmark = pytest.mark.django_db
PLANTED = "planted-0123456789"


@pytest.fixture
def few(client: Client) -> Client:
    user = User.objects.create_user("few", is_staff=True)
    rights = ["change_tool", "view_tool", "dry_run_tool"]
    rights += ["change_mcpserver", "view_mcpserver"]
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client.force_login(user)
    return client


# HTTP tools


@pytest.fixture
def tool() -> Tool:
    tool = Tool.objects.create(name="things", kind="http", description="Look up.")
    http = HttpTool(tool=tool, url="https://api.test/things")
    http.set_secret_headers({"Authorization": f"Bearer {PLANTED}"})
    http.save()
    return tool


def tool_form(row: Tool, url: str, secret: str = "") -> dict[str, Any]:
    parameters = '{"type": "object"}'
    networks = "127.0.0.0/8"
    http = {"url": url, "networks": networks, "secret": secret}
    http["parameters"] = parameters
    return tools.form(row, http=http)


def dry_run(client: Client, row: Tool) -> str:
    page = reverse("admin:tools_tool_dry_run", args=[row.pk])
    return client.post(page, {"username": "few", "arguments": "{}"}).text


def test_a_tool_that_is_pointed_elsewhere_sends_no_secret(
    few: Client, tool: Tool, thief: Recording
):
    moved = tool_form(tool, f"{thief.url}/things")
    response = few.post(tools.page(tool), moved, follow=True)
    assert HttpTool.objects.get().url == f"{thief.url}/things"
    text = " ".join(map(str, response.context["messages"]))
    assert "entered for https://api.test:443" in text
    assert "to enter them again" in dry_run(few, tool)
    assert thief.received == []
    assert "Not sent" in html.unescape(few.get(tools.page(tool)).text)


def test_a_header_that_is_entered_beside_brings_none_of_the_others_along(
    few: Client, tool: Tool, thief: Recording
):
    moved = tool_form(tool, f"{thief.url}/things", "X-Bait: 1")
    assert few.post(tools.page(tool), moved).status_code == 302
    dry_run(few, tool)
    assert thief.has("X-Bait: 1")
    assert not thief.has(PLANTED)
    few.post(tools.page(tool), tool_form(tool, "https://api.test/things"))
    few.post(tools.page(tool), tool_form(tool, f"{thief.url}/t", "Authorization: mine"))
    dry_run(few, tool)
    assert thief.has("Authorization: mine")
    assert not thief.has(PLANTED)


def test_an_older_version_that_is_restored_sends_no_secret_elsewhere(
    admin_client: Client, few: Client, tool: Tool, thief: Recording
):
    few.post(tools.page(tool), tool_form(tool, f"{thief.url}/things"))
    few.post(tools.page(tool), tool_form(tool, "https://api.test/things"))
    assert HttpTool.objects.get().get_secret_headers()
    restore = reverse("admin:tools_tool_restore", args=[tool.pk, 2])
    few.post(restore)
    assert HttpTool.objects.get().url == f"{thief.url}/things"
    dry_run(few, tool)
    assert thief.received == []


def test_a_secret_that_is_entered_again_is_sent_to_the_new_address(
    few: Client, tool: Tool, thief: Recording
):
    few.post(tools.page(tool), tool_form(tool, f"{thief.url}/things"))
    few.post(
        tools.page(tool), tool_form(tool, f"{thief.url}/things", "Authorization: new")
    )
    dry_run(few, tool)
    assert thief.has("Authorization: new")
    assert "Not sent" not in html.unescape(few.get(tools.page(tool)).text)


# MCP servers


@pytest.fixture
def server() -> McpServer:
    row = McpServer(
        name="docs",
        url="https://mcp.test/mcp",
        oauth_client_id="us",
        oauth_flow="machine",
        oauth_issuer="https://login.test",
        oauth_secret=PLANTED,
    )
    row.set_secret_headers({"X-Key": PLANTED})
    row.save()
    return row


def mcp_form(url: str, **fields: str) -> dict[str, object]:
    oauth = {"oauth_client_id": "us", "oauth_flow": "machine"}
    networks = {"networks": "127.0.0.0/8", "oauth_issuer": "https://login.test"}
    return servers.form(url=url, **{**oauth, **networks, **fields})


@pytest.mark.parametrize(
    ("path", "issuer"), [("/mcp", "https://login.test"), ("/mcp", "")]
)
def test_a_server_that_is_pointed_elsewhere_sends_no_secret(
    few: Client, server: McpServer, thief: Recording, path: str, issuer: str
):
    page = reverse("admin:tools_mcpserver_change", args=[server.pk])
    moved = mcp_form(f"{thief.url}{path}", oauth_issuer=issuer or thief.url)
    response = few.post(page, moved, follow=True)
    server.refresh_from_db()
    assert server.url == f"{thief.url}{path}"
    text = " ".join(map(str, response.context["messages"]))
    assert "entered for https://mcp.test:443" in text
    assert "Client secret" in text
    assert "to enter" in servers.connect(few, server)
    assert not thief.has(PLANTED)
    listed = html.unescape(few.get(reverse("admin:tools_mcpserver_changelist")).text)
    assert "Not sent" in listed
    assert "Not sent" in html.unescape(few.get(page).text)


def test_tokens_of_a_sign_in_stay_with_the_address(server: McpServer):
    McpServer.objects.update(oauth_flow="person", oauth_secret="")
    server = McpServer.objects.get()
    server.save_sign_in({"tokens": {"access_token": PLANTED}}, None)
    assert PLANTED in McpServer.objects.get().sign_in.reveal()
    for changed in ({"url": "https://thief.test/mcp"}, {"oauth_issuer": "https://x"}):
        row = McpServer.objects.get()
        for name, value in changed.items():
            setattr(row, name, value)
        assert any("Sign-in" in why for why in row.secrets_not_sent)
