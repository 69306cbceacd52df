"""The client that `@modelcontextprotocol/conformance` drives: ours, as turns use it.

`python conformance_client.py SOCKET` waits for scenarios and forks for each, as
`conformance_relay.py` hands them over: the scenario's name is in
MCP_CONFORMANCE_SCENARIO and what it needs to know in MCP_CONFORMANCE_CONTEXT.

Source: https://github.com/modelcontextprotocol/conformance
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import socketserver
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.errors import ToolError
from tools.http.exchange import OutgoingRequest
from tools.http.guarded_client import fetch
from tools.json_schema.arguments import compile_schema
from tools.json_schema.form_schema import add_defaults
from tools.mcp.client import build_tool, close_all, get_session
from tools.mcp.errors import SignInFailed
from tools.mcp.server_spec import (
    AuthorizationCode,
    AuthorizationResponse,
    ClientCredentials,
    ServerSpec,
)
from tools.registry import Context, FormAnswer, RuntimeTool

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
REDIRECT_URI = "http://localhost:3000/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"


@dataclass(frozen=True)
class Plain:
    text: str

    def reveal(self) -> str:
        return self.text


@dataclass
class Memory:
    state: Mapping[str, Any] = field(default_factory=dict)

    async def load(self) -> Mapping[str, Any]:
        return self.state

    async def save(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)

    async def claim(self) -> bool:
        return True

    async def release(self) -> None:
        pass


async def main(url: str) -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    try:
        await run(scenario, known, await server_of(scenario, known, url))
    finally:
        await close_all()


async def run(scenario: str, known: dict[str, Any], server: ServerSpec) -> None:
    session = get_session(server)
    tools = {each.name: build_tool(server, each) for each in await session.tools()}
    match scenario:
        case "json-schema-ref-no-deref":
            for tool in tools.values():
                use_schema(tool)
        case "json-schema-2020-12-preservation":
            schema = tools["json_schema_2020_12_tool"].definition["parameters"]
            await call(tools["json_schema_echo"], {"schema": schema})
        case "tools_call":
            await call(tools["add_numbers"], {"a": 5, "b": 3})
        case "http-custom-headers":
            for each in known["toolCalls"]:
                await call(tools[each["name"]], each["arguments"])
        case _:
            for tool in tools.values():
                await call(tool, required_of(tool))


async def call(tool: RuntimeTool, arguments: dict[str, Any]) -> None:
    try:
        print(tool.name, await tool.call(Context(ask=agree), arguments))
    except SignInFailed:
        raise
    except ToolError as exc:
        print(tool.name, repr(exc))


async def agree(
    context: Context, message: str, schema: Mapping[str, Any]
) -> FormAnswer:
    """As a person who sends the form as it is shown."""
    return FormAnswer("accept", add_defaults(schema, {}))


def use_schema(tool: RuntimeTool) -> None:
    """As each call does, before it runs."""
    try:
        compile_schema(tool.parameters)
    except ValueError as exc:
        print(tool.name, exc)


def required_of(tool: RuntimeTool) -> dict[str, Any]:
    return dict.fromkeys(tool.parameters.get("required", ()), "x")


async def server_of(scenario: str, known: dict[str, Any], url: str) -> ServerSpec:
    oauth: Any = None
    if scenario.startswith("auth/client-credentials"):
        oauth = await machine(known, url)
    elif scenario.startswith("auth/"):
        oauth = person(known)
    return ServerSpec(name="conformance", url=url, oauth=oauth, networks=LOOPBACK)


async def machine(known: dict[str, Any], url: str) -> ClientCredentials:
    key = known.get("private_key_pem")
    return ClientCredentials(
        client_id=known["client_id"],
        client_secret=None if key else Plain(known["client_secret"]),
        private_key=Plain(key) if key else None,
        algorithm=known.get("signing_algorithm", "RS256"),
        issuer=await issuer_of(url),
    )


async def issuer_of(url: str) -> str:
    """The values that staff would enter; here the scenario's server has them."""
    parts = urlsplit(url)
    for path in (f"/.well-known/oauth-protected-resource{parts.path}",):
        found = await fetch(
            OutgoingRequest(url=f"{parts.scheme}://{parts.netloc}{path}"),
            allow=LOOPBACK,
        )
        if found.status == 200:
            return str(json.loads(found.body)["authorization_servers"][0])
    raise LookupError("the scenario's server names no authorization server")


def person(known: dict[str, Any]) -> AuthorizationCode:
    secret = known.get("client_secret")
    return AuthorizationCode(
        redirect_uri=REDIRECT_URI,
        store=Memory(),
        client_id=known.get("client_id", ""),
        client_secret=Plain(secret) if secret else None,
        metadata_url=METADATA_URL,
        visit=visit,
    )


async def visit(url: str) -> AuthorizationResponse:
    """As a browser whose owner agrees at once: the redirect is not followed."""
    import httpx

    async with httpx.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(url)
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    return AuthorizationResponse(
        code=query["code"][0],
        state=query.get("state", [None])[0],
        issuer=query.get("iss", [None])[0],
    )


class Scenario(socketserver.StreamRequestHandler):
    """One scenario, in a process of its own."""

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        os.environ.update(request["environment"])
        printed, failed = io.StringIO(), 0
        try:
            with redirect_stdout(printed):
                asyncio.run(main(request["url"]))
        except ToolError as exc:
            failed = 1
            printed.write(repr(exc))
        self.wfile.write(f"{failed}\n{printed.getvalue()}".encode())


class Scenarios(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    request_queue_size = 100
    max_children = 100


if __name__ == "__main__":
    import tools.mcp.connection  # noqa: F401  (loaded once, before it forks)

    with Scenarios(sys.argv[1], Scenario) as server:
        print("ready", flush=True)
        server.serve_forever()
