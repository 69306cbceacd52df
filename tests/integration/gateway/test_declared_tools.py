"""Tools that a request declares beside functions: its user's groups must allow them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.gateway.programs import FAST, Gateway
from tests.integration.gateway.test_websocket import send_request
from tests.llm import claude
from tests.recording import Recording, recording_server

CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
RUNS = {"type": "code_execution_20250825", "name": "code_execution"}
SEARCH = {"type": "web_search"}
MCP = {"type": "mcp", "server_label": "d", "server_url": "https://mcp.example/x"}
SERVERS = [{"type": "url", "name": "d", "url": "https://mcp.example/x"}]
GREETING: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
GPT, CLAUDE = "recorded/gpt-5-mini", f"recorded-claude/{claude.OLD}"
_ROWS = """
from django.contrib.auth.models import Group, User
from conversations.models.access_token import AccessToken
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import DeclaredTool
for kind, name, model in (
    ("openai", "recorded", "gpt-5-mini"), ("anthropic", "recorded-claude", {claude!r}),
):
    host = Provider.objects.create(
        name=name, kind=kind, base_url={url!r}, allow_private_network=True
    )
    ApiKey.objects.create(provider=host, secret="sk-test")
    LanguageModel.objects.create(provider=host, name=model)
coders = Group.objects.create(name="coders")
for kind in ("code_interpreter", "mcp"):
    row = DeclaredTool.objects.get(kind=kind)
    assert row.allowed_for == "nobody"
    row.allowed_for = "groups"
    row.save()
    row.groups.add(coders)
plain, coder = (User.objects.create_user(name) for name in ("plain", "coder"))
coder.groups.add(coders)
old = dict(declares_any_tool=True)
for user, fields in ((plain, dict()), (coder, dict()), (plain, old)):
    print(AccessToken.issue(user, "declares", **fields)[1])
"""
_FORGET = """
from django.contrib.auth.models import Group, User
from llm.models import Provider
from tools.models import DeclaredTool
User.objects.filter(username__in=["plain", "coder"]).delete()
Group.objects.filter(name="coders").delete()
Provider.objects.filter(name__startswith="recorded").delete()
DeclaredTool.objects.filter(allowed_for="groups").update(allowed_for="nobody")
"""


@dataclass
class Callers:
    plain: Gateway
    coder: Gateway  # in a group that may
    old: Gateway  # with a token that is older than the rules
    host: Recording


@pytest.fixture(scope="module")
def callers(gateway: Gateway) -> Iterator[Callers]:
    def by(token: str) -> Gateway:
        caller = copy.copy(gateway)
        caller.token = token
        return caller

    with recording_server() as host:
        code = _ROWS.format(url=f"{host.url}/v1", claude=claude.OLD)
        output = gateway.server.manage("shell", "-v0", "-c", code)
        plain, coder, old = map(by, output.split()[-3:])
        yield Callers(plain, coder, old, host)
        gateway.server.manage("shell", "-v0", "-c", _FORGET)


def responses(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "/responses", {"model": GPT, "input": "Hi", **fields}


def messages(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "/messages", {"model": CLAUDE, "max_tokens": 9, **GREETING, **fields}


NAMESPACE = {"type": "namespace", "name": "n", "description": "d", "tools": [CODE]}
FOUND = {
    "type": "tool_search_output",
    "execution": "client",
    "call_id": "c",
    "tools": [MCP],
}
ADDED = {"type": "additional_tools", "role": "developer", "tools": [MCP]}
UNKNOWN = {"type": "not_yet_known", "tools": [{"type": "not_yet_known"}]}
DECLARING = [
    (*responses(tools=[SEARCH, CODE]), "code_interpreter", "tools[1]"),
    (*responses(tools=[CODE], store=False), "code_interpreter", "tools[0]"),
    (*responses(tools=[CODE], background=True), "code_interpreter", "tools[0]"),
    (*responses(tools=[MCP], stream=True), "mcp", "tools[0]"),
    (*messages(tools=[RUNS]), "code_interpreter", "tools[0]"),
    (*messages(mcp_servers=SERVERS), "mcp", "mcp_servers"),
]
ONLY_REFUSED = [
    (*responses(tools=[NAMESPACE]), "code_interpreter", "tools[0].tools[0]"),
    *(
        (*responses(input=[item, {"role": "user", "content": "Hi"}], **how), kind, at)
        for item, kind in ((ADDED, "mcp"), (UNKNOWN, "other"))
        for at in ["input[0].tools[0]"]
        for how in ({"store": False}, {"store": True}, {"background": True})
    ),
    (
        *responses(input=[FOUND, {"role": "user", "content": "Hi"}], store=False),
        "mcp",
        "input[0].tools[0]",
    ),
    (
        "/chat/completions",
        {"model": GPT, **GREETING, "tools": [CODE]},
        "code_interpreter",
        "tools[0]",
    ),
    (*messages(tools=[{"type": "bash_20250124", "name": "bash"}]), "shell", "tools[0]"),
    (*responses(tools=[{"type": "shell"}]), "shell", "tools[0]"),
    (*responses(tools=[{"type": "computer"}]), "computer_use", "tools[0]"),
    (*responses(tools=[{"type": "not_yet_known"}]), "other", "tools[0]"),
    (
        "/messages/count_tokens",
        {"model": CLAUDE, **GREETING, "tools": [RUNS]},
        "code_interpreter",
        "tools[0]",
    ),
]


@pytest.mark.parametrize(
    ("path", "body", "kind", "location"), [*DECLARING, *ONLY_REFUSED]
)
def test_a_tool_kind_that_no_group_may_declare_is_refused_by_name(
    callers: Callers, path: str, body: dict[str, Any], kind: str, location: str
):
    callers.host.received.clear()
    answer = callers.plain.post(path, body)
    assert answer.status_code == 403, answer.text
    error = answer.json()["error"]
    assert f"a tool of the kind '{kind}'" in error["message"]
    assert "'Declared tools'" in error["message"]
    if path.startswith("/messages"):
        assert error["type"] == "permission_error"
    else:
        assert (error["code"], error["param"]) == ("tool_not_allowed", location)
    assert callers.host.received == []


@pytest.mark.parametrize("who", ["coder", "old"])
@pytest.mark.parametrize(("path", "body", "kind", "location"), DECLARING)
def test_a_permitted_group_or_older_token_may_declare_the_tool(
    callers: Callers,
    who: str,
    path: str,
    body: dict[str, Any],
    kind: str,
    location: str,
):
    callers.host.received.clear()
    caller: Gateway = getattr(callers, who)
    if body.get("background"):
        response_body = caller.post(path, body).json()
        with caller.http() as http:
            http.get(
                f"/responses/{response_body['id']}?stream=true"
            )  # until it is over
    else:
        assert caller.post(path, body).status_code != 403
    declared = json.loads(callers.host.received[0].partition("\n\n")[2])
    field = location.partition("[")[0]
    assert [each["type"] for each in declared[field]] == [
        each["type"] for each in body[field]
    ]


def test_everybody_may_declare_read_only_tools(callers: Callers):
    callers.host.received.clear()
    stores = {"type": "file_search", "vector_store_ids": ["vs_1"]}
    path, body = responses(tools=[SEARCH, stores], store=False)
    assert callers.plain.post(path, body).status_code != 403
    assert callers.host.has('"file_search"')
    path, body = messages(tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}])
    assert callers.plain.post(path, body).status_code != 403
    assert callers.host.has("web_fetch_20250910")
    body = {"model": GPT, **GREETING, "web_search_options": {}}
    assert callers.plain.post("/chat/completions", body).status_code != 403


def test_a_search_of_anthropic_becomes_that_of_the_model_s_host(callers: Callers):
    callers.host.received.clear()
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    chosen = {"type": "tool", "name": "web_search"}
    only = {"allowed_domains": ["example.com"]}
    path, body = messages(tools=[{**search, **only}], tool_choice=chosen)
    callers.plain.post(path, {**body, "model": GPT})
    sent = json.loads(callers.host.received[0].partition("\n\n")[2])
    assert sent["tools"] == [{"type": "web_search", "filters": only}]
    assert sent["tool_choice"] == {"type": "web_search"}
    path, body = messages(tools=[search], tool_choice=chosen)
    refused = callers.plain.post(path, {**body, "model": FAST})
    assert refused.status_code == 400
    assert "'web_search_20250305'" in refused.json()["error"]["message"]
    path, body = messages(tools=[search])
    answer = callers.plain.post(path, {**body, "model": FAST})
    assert answer.status_code == 200, answer.text
    assert "web_search_20250305" in answer.headers["x-parley-degraded"]


def test_the_group_counts_for_its_own_kinds_only(callers: Callers):
    path, body = responses(tools=[{"type": "image_generation"}])
    refused = callers.coder.post(path, body)
    assert refused.status_code == 403
    assert "'image_generation'" in refused.json()["error"]["message"]


@pytest.mark.parametrize("store", [False, True])
async def test_a_socket_gets_the_refusal_and_stays_open(callers: Callers, store: bool):
    callers.host.received.clear()
    async with callers.plain.socket() as socket:
        fields = {"model": GPT, "tools": [CODE], "store": store}
        [refusal] = await send_request(socket, "Hi", **fields)
        assert (refusal["type"], refusal["status"]) == ("error", 403)
        assert refusal["error"]["code"] == "tool_not_allowed"
        assert callers.host.received == []
        [refusal] = await send_request(socket, "Hi", **fields)
        assert refusal["error"]["code"] == "tool_not_allowed"
