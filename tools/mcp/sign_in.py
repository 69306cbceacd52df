"""OAuth sign-in of a person at an MCP server, in two requests.

The SDK's flow waits in memory for the redirect back. Here the redirect may reach
another process: `begin` stores the flow's state, `finish` repeats the discovery and
exchanges the code at the same authorization server.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from asgiref.sync import async_to_sync
from yarl import URL

from llm.http.addresses import is_public
from tools.errors import AddressRefused, ToolError
from tools.http.exchange import Limits
from tools.http.guarded_client import check_url, lookup, resolve_name
from tools.mcp.connection_check import ServerListing, list_server
from tools.mcp.errors import SignInFailed
from tools.mcp.row_access import MemoryTokenStore, describe_failure
from tools.mcp.server_spec import (
    AuthorizationCode,
    AuthorizationResponse,
    EarlierAuthorizationResponse,
    ServerSpec,
)
from tools.models.mcp_pending_sign_in import McpSignIn
from tools.models.mcp_server import McpServer
from tools.models.mcp_user_sign_in import McpUserSignIn

_FLOW_CHANGED = (
    "the staff have changed meanwhile who signs in at this MCP server. Start the"
    " sign-in again."
)

MAX_SERVER_TEXT = 200  # characters of an authorization server's own message


@dataclass
class _SignInPage:
    """Receives from the SDK the URL of the page where the person signs in, instead of a
    browser, and gives it a PKCE verifier that can be stored until the redirect back."""

    server: ServerSpec
    url: str = ""
    state: str = ""
    verifier: str = ""
    error: ToolError | None = None

    async def visit(self, url: str) -> AuthorizationResponse:
        from mcp.client.auth import PKCEParameters

        try:
            page = await _check_page(url, self.server)
        except ToolError as exc:
            self.error = exc
            raise
        # The SDK's own verifier exists only in its running flow.
        pkce = PKCEParameters.generate()
        challenge = {"code_challenge": pkce.code_challenge}
        self.url, self.state = str(page.update_query(challenge)), page.query["state"]
        self.verifier = pkce.code_verifier
        raise SignInFailed("a person is signing in.")


def begin(row: McpServer, user: Any, redirect_uri: str, **about: Any) -> str:
    """Begin a sign-in; return the URL where `user` signs in. Raises ToolError.

    `about` is JSON that `McpSignIn.objects.take` returns among the secrets.
    """
    store = MemoryTokenStore(_find_registered_client(row, redirect_uri))
    spec = row.spec
    page = _SignInPage(spec)
    try:
        list_server(_with_sign_in(spec, redirect_uri, store, visit=page.visit))
    except ToolError as exc:
        if not page.url:
            raise page.error or exc from exc
    else:
        raise SignInFailed("the server lists its tools without a sign-in.")
    if row.is_for_users and (client := store.state.get("client")):
        row.store_shared_client(client)
    secrets = {
        **about,
        "verifier": page.verifier,
        "redirect_uri": redirect_uri,
        "held": store.state,
        "flow": row.oauth_flow,
    }
    McpSignIn.objects.begin(row, user, page.state, secrets)
    return page.url


def finish(
    row: McpServer, user: Any, secrets: Mapping[str, Any], query: Mapping[str, str]
) -> None:
    """Exchange the code, store the tokens and list the tools with them.

    `query` is that of the redirect back, `secrets` is what `begin` stored. An error of
    the listing is stored in the row. Raises SignInFailed if there are no tokens.
    """
    failure, listing = finish_for_user(row, user, secrets, query)
    if listing is None:
        row.record_error(describe_failure(failure or SignInFailed()))
    else:
        row.record_listing(*listing)


def finish_for_user(
    row: McpServer, user: Any, secrets: Mapping[str, Any], query: Mapping[str, str]
) -> tuple[ToolError | None, ServerListing | None]:
    """As `finish`; the server's row does not change, because the tools that one user
    sees are not what staff review. Returns why listing failed, or the listing."""
    if secrets.get("flow") != row.oauth_flow:
        # The user agreed to use the account for himself, or for everybody.
        raise SignInFailed(_FLOW_CHANGED)
    if error := query.get("error"):
        raise SignInFailed(_describe_denial(error, query.get("error_description", "")))
    store = MemoryTokenStore(secrets["held"])
    response = EarlierAuthorizationResponse(
        code=query.get("code", ""),
        issuer=query.get("iss"),
        verifier=secrets["verifier"],
        token_endpoint=store.state["token_endpoint"],
    )
    spec = _with_sign_in(row.spec, secrets["redirect_uri"], store, came_back=response)
    failure: ToolError | None = None
    listing: ServerListing | None = None
    try:
        listing = list_server(spec)
    except ToolError as exc:
        if not store.state.get("tokens"):
            raise SignInFailed(str(exc)) from exc
        failure = exc
    _store_tokens(row, user, store.state)
    return failure, listing


def _store_tokens(row: McpServer, user: Any, state: Mapping[str, Any]) -> None:
    if row.is_for_users:
        McpUserSignIn.objects.store(row, user, state)
    else:
        row.save_sign_in(state, user)


def _with_sign_in(
    spec: ServerSpec, redirect_uri: str, store: MemoryTokenStore, **changes: Any
) -> ServerSpec:
    if not isinstance(spec.oauth, AuthorizationCode):
        raise SignInFailed("this server is not set up for a sign-in.")
    oauth = replace(spec.oauth, redirect_uri=redirect_uri, store=store, **changes)
    return replace(spec, oauth=oauth)


def _find_registered_client(row: McpServer, redirect_uri: str) -> dict[str, Any]:
    """The client that an earlier sign-in registered, if it has this redirect URI."""
    oauth = row.oauth()
    assert isinstance(oauth, AuthorizationCode)
    if row.is_for_users:
        client = row.load_shared_client()
    else:
        client = async_to_sync(oauth.store.load)().get("client") or {}
    return {"client": client} if redirect_uri in client.get("redirect_uris", ()) else {}


async def _check_page(text: str, server: ServerSpec) -> URL:
    """Apply the checks of `guarded_client` to a page for the user's browser."""
    url = check_url(text)
    addresses = await lookup(url, server.networks, Limits(), resolve_name)
    if url.scheme != "https" and any(map(is_public, addresses)):
        raise AddressRefused("the sign-in page is not encrypted (http).")
    return url


def _describe_denial(error: str, description: str) -> str:
    if error == "access_denied":
        return "access was denied at the authorization server."
    words = f"{error}: {description}" if description else error
    return f"the authorization server says: {words[:MAX_SERVER_TEXT]}"
