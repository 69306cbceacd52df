"""Authentication of requests to an MCP server by OAuth, and requests that end it.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
Loads the SDK; import it where needed.
"""

from __future__ import annotations

import httpx2

from tools.mcp.http_transport import Health
from tools.mcp.oauth.authorization_code import AuthorizationCodeAuth
from tools.mcp.oauth.client_credentials import build_client_credentials_auth
from tools.mcp.server_spec import AuthorizationCode, ClientCredentials, ServerSpec


def build_auth(server: ServerSpec, health: Health | None = None) -> httpx2.Auth | None:
    """The auth object for the server. Raises SignInFailed if secrets are lost.

    It notes in `health` that the user must sign in, because the SDK reports only that
    the session has ended.
    """
    match server.oauth:
        case ClientCredentials() as client:
            return build_client_credentials_auth(server.url, client)
        case AuthorizationCode() as client:
            return AuthorizationCodeAuth(server.url, client, health)
        case None:
            return None


async def build_revocations(server: ServerSpec) -> list[httpx2.Request]:
    """The requests that revoke the stored tokens; none if the authorization server has
    no revocation endpoint. Raises SignInFailed.

    Source: https://www.rfc-editor.org/rfc/rfc7009
    """
    if not isinstance(server.oauth, AuthorizationCode):
        return []
    return await AuthorizationCodeAuth(server.url, server.oauth).build_revocations()
