"""A reviewed MCP server at which each user signs in, and a person who agrees there."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import httpx
from django.contrib.auth.models import User
from django.urls import reverse

from tools.mcp.sign_in import begin, finish
from tools.models import McpServer, McpSignIn


def agree(url: str, person: str = "Ada", kind: str = "Agree") -> str:
    """What the authorization server answers, as a path of ours with its query."""
    with httpx.Client(trust_env=False) as browser:
        page = urljoin(url, browser.get(url).headers["location"])
        back = browser.get(f"{page}&kind={kind}&person={person}").headers["location"]
    parts = urlsplit(back)
    return f"{parts.path}?{parts.query}"


def store_server(url: str, staff: User) -> McpServer:
    """Its row; this member of staff has signed in and approved its tool."""
    row = McpServer(
        name="notes",
        label="Team notes",
        url=url,
        networks="127.0.0.0/8",
        oauth_flow="user",
    )
    row.full_clean()
    row.save()
    back = f"http://testserver{reverse('admin:tools_mcpserver_signed_in')}"
    query = urlsplit(agree(begin(row, staff, back), "Root")).query
    fields = dict(httpx.QueryParams(query))
    _server, secrets = McpSignIn.objects.take(fields["state"], staff)
    finish(row, staff, secrets, fields)
    row.approve(["whoami"], staff)
    return row
