"""A real MCP server that wants a sign-in, and its authorization server, both the SDK's.

Runs in a thread of its own, on loopback, so that synchronous tests can use it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import (
    AuthSettings,
    ClientRegistrationOptions,
    RevocationOptions,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tests.serving import free_port


@dataclass
class Accounts:
    """What the authorization server knows. Tests look, and change its mind."""

    lifetime: int = 3600  # seconds of an access token
    gives_refresh_tokens: bool = True
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    authorizations: list[AuthorizationParams] = field(default_factory=list)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    renewals: int = 0
    people: dict[str, str] = field(default_factory=dict)  # by code and token

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """To a page on which the person agrees."""
        assert client.client_id
        self.authorizations.append(params)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        self.codes[code.code] = code
        back = {"back": str(params.redirect_uri), "state": params.state or ""}
        return f"/agree?{urlencode({**back, 'code': code.code})}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(
            authorization_code.client_id,
            authorization_code.scopes,
            authorization_code.resource,
            self.people.get(authorization_code.code, "Ada"),
        )

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,
        refresh_token: RefreshToken,
        scopes: list[str],
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]  # each can be used once
        self.renewals += 1
        return self._tokens(
            refresh_token.client_id,
            scopes,
            refresh_token.resource,
            self.people[refresh_token.token],
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _tokens(
        self, client_id: str, scopes: list[str], resource: str | None, person: str
    ) -> OAuthToken:
        known: dict[str, Any] = {
            "client_id": client_id,
            "scopes": scopes,
            "resource": resource,
        }
        access = AccessToken(
            token=secrets.token_urlsafe(),
            expires_at=int(time.time()) + self.lifetime,
            **known,
        )
        self.access[access.token] = access
        self.people[access.token] = person
        if self.gives_refresh_tokens:
            refresh = RefreshToken(token=secrets.token_urlsafe(), **known)
            self.refresh[refresh.token] = refresh
            self.people[refresh.token] = person
        return OAuthToken(
            access_token=access.token,
            expires_in=self.lifetime,
            scope=" ".join(scopes),
            refresh_token=refresh.token if self.gives_refresh_tokens else None,
        )


@dataclass
class SignInServer:
    registers: bool = True
    revokes: bool = False
    port: int = field(default_factory=free_port)
    accounts: Accounts = field(default_factory=Accounts)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def app(self) -> Any:
        server = MCPServer(
            "signed",
            auth_server_provider=self.accounts,
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(self.origin),
                resource_server_url=AnyHttpUrl(self.url),
                validate_token_resource=True,
                required_scopes=["read"],
                client_registration_options=ClientRegistrationOptions(
                    enabled=self.registers,
                    valid_scopes=["read", "write"],
                    default_scopes=["read"],
                ),
                revocation_options=RevocationOptions(enabled=self.revokes),
            ),
        )

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        def whoami() -> str:
            """Say who is signed in."""
            token = get_access_token()
            return self.accounts.people[token.token] if token else "nobody"

        @server.custom_route("/agree", methods=["GET"])
        async def agree(request: Request) -> Response:
            query = request.query_params
            links = [
                f'<a href="{answer_of(query, kind)}">{kind}</a>'
                for kind in ("Agree", "Refuse")
            ]
            self.accounts.people[query["code"]] = query.get("person", "Ada")
            if kind := query.get("kind"):
                return RedirectResponse(answer_of(query, kind))
            return HTMLResponse(f"<h1>May Parley read?</h1>{' '.join(links)}")

        return server.streamable_http_app()


def answer_of(query: Any, kind: str) -> str:
    fields = {"code": query["code"]} if kind == "Agree" else {"error": "access_denied"}
    return construct_redirect_uri(query["back"], state=query["state"], **fields)


@contextmanager
def sign_in_server(**options: Any) -> Iterator[SignInServer]:
    """Ready when it is given."""
    ours = SignInServer(**options)
    config = uvicorn.Config(
        ours.app(),
        port=ours.port,
        log_config=None,
        timeout_graceful_shutdown=0,
        ws="none",
    )
    server = uvicorn.Server(config)
    ready = threading.Event()
    thread = threading.Thread(target=_serve, args=(server, ready), daemon=True)
    thread.start()
    assert ready.wait(60)
    yield ours
    server.should_exit = True
    thread.join()


def _serve(server: uvicorn.Server, ready: threading.Event) -> None:
    import asyncio

    async def serve() -> None:
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0)
        ready.set()
        await serving

    asyncio.run(serve())
