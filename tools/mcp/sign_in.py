"""OAuth sign-in of staff at an MCP server, in two requests.

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

from llm.addresses import is_public
from tools.errors import AddressRefused, ToolError
from tools.guard import checked_url, lookup, resolve_name
from tools.http.exchange import Limits
from tools.mcp.errors import SignInFailed
from tools.mcp.kept import Held, told
from tools.mcp.look import seen
from tools.mcp.rows import McpServer
from tools.mcp.sign_in_rows import McpSignIn
from tools.mcp.spec import AuthorizationCode, CameBack, Redirected, Server

MAX_TOLD = 200  # characters of an authorization server's own message


@dataclass
class _Page:
    """The page that the SDK would open, with a PKCE verifier that can be stored."""

    server: Server
    url: str = ""
    state: str = ""
    verifier: str = ""
    refused: ToolError | None = None

    async def visit(self, url: str) -> Redirected:
        from mcp.client.auth import PKCEParameters

        try:
            page = await _checked_page(url, self.server)
        except ToolError as exc:
            self.refused = exc
            raise
        # The SDK's own verifier exists only in its running flow.
        pkce = PKCEParameters.generate()
        asked = {"code_challenge": pkce.code_challenge}
        self.url, self.state = str(page.update_query(asked)), page.query["state"]
        self.verifier = pkce.code_verifier
        raise SignInFailed("somebody is on their way to sign in.")


def begin(row: McpServer, user: Any, redirect_uri: str) -> str:
    """Begins a sign-in; returns the URL where `user` signs in. Raises ToolError."""
    held = Held(_known_client(row, redirect_uri))
    spec = row.spec
    page = _Page(spec)
    try:
        seen(_signing_in(spec, redirect_uri, held, visit=page.visit))
    except ToolError as exc:
        if not page.url:
            raise page.refused or exc from exc
    else:
        raise SignInFailed("the server lists its tools without any sign-in.")
    secrets = {
        "verifier": page.verifier,
        "redirect_uri": redirect_uri,
        "held": held.state,
    }
    McpSignIn.objects.begin(row, user, page.state, secrets)
    return page.url


def finish(
    row: McpServer, user: Any, secrets: Mapping[str, Any], came: Mapping[str, str]
) -> None:
    """Exchanges the code, stores the tokens and lists the tools with them.

    `query` is that of the redirect back, `secrets` is what `begin` stored. An error of
    the listing is stored in the row. Raises SignInFailed if there are no tokens.
    """
    if error := came.get("error"):
        raise SignInFailed(_denied(error, came.get("error_description", "")))
    held = Held(secrets["held"])
    back = CameBack(
        code=came.get("code", ""),
        issuer=came.get("iss"),
        verifier=secrets["verifier"],
        token_endpoint=held.state["token_endpoint"],
    )
    spec = _signing_in(row.spec, secrets["redirect_uri"], held, came_back=back)
    try:
        found, about = seen(spec)
    except ToolError as exc:
        if "tokens" not in held.state:
            raise SignInFailed(str(exc)) from exc
        row.keep_sign_in(held.state, user)
        row.record_error(told(exc))
    else:
        row.keep_sign_in(held.state, user)
        row.record_listing(found, about)


def _signing_in(spec: Server, redirect_uri: str, held: Held, **changes: Any) -> Server:
    if not isinstance(spec.oauth, AuthorizationCode):
        raise SignInFailed("nobody signs in at this server.")
    oauth = replace(spec.oauth, redirect_uri=redirect_uri, store=held, **changes)
    return replace(spec, oauth=oauth)


def _known_client(row: McpServer, redirect_uri: str) -> dict[str, Any]:
    """The client that an earlier sign-in registered, if it has this redirect URI."""
    oauth = row.oauth()
    assert isinstance(oauth, AuthorizationCode)
    client = async_to_sync(oauth.store.load)().get("client") or {}
    return {"client": client} if redirect_uri in client.get("redirect_uris", ()) else {}


async def _checked_page(text: str, server: Server) -> URL:
    """Applies the address checks of `tools.guard` to a page for the user's browser."""
    url = checked_url(text)
    addresses = await lookup(url, server.networks, Limits(), resolve_name)
    if url.scheme != "https" and any(map(is_public, addresses)):
        raise AddressRefused("the page to sign in at is not encrypted (http).")
    return url


def _denied(error: str, description: str) -> str:
    if error == "access_denied":
        return "it was denied at the authorization server."
    words = f"{error}: {description}" if description else error
    return f"the authorization server says: {words[:MAX_TOLD]}"
