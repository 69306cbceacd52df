"""OAuth client credentials: tokens are fetched when needed and live as long as the
session. Loads the SDK; import it where needed.

Source: https://modelcontextprotocol.io/extensions/auth/oauth-client-credentials
"""

from __future__ import annotations

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from tools.mcp.oauth.token_auth import Flow, TokenAuth
from tools.mcp.oauth.token_endpoint import replace_form, token_form
from tools.mcp.oauth.token_storage import reveal_secret
from tools.mcp.server_spec import ClientCredentials


def build_client_credentials_auth(url: str, client: ClientCredentials) -> httpx2.Auth:
    provider = _build_client_credentials_provider(url, client)
    return _ClientCredentialsAuth(provider, client.scope)


class _MemoryStorage:
    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None  # the client is configured, not registered

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


class _ClientCredentialsAuth(TokenAuth):
    """The SDK's provider; requests the scope that staff have set, if any, instead of
    the scope that the server names."""

    def __init__(self, provider: OAuthClientProvider, scope: str) -> None:
        super().__init__()
        self._provider: OAuthClientProvider = provider
        self._scope = scope

    def _start_flow(self, request: httpx2.Request) -> Flow:
        return self._provider.async_auth_flow(request)

    def _adapt_request(self, request: httpx2.Request) -> httpx2.Request:
        form = token_form(request)
        if not self._scope or form.get("grant_type") != "client_credentials":
            return request
        # Of a token whose answer names no scope.
        self._provider.context.client_metadata.scope = self._scope
        return replace_form(request, {**form, "scope": self._scope})


def _build_client_credentials_provider(
    url: str, client: ClientCredentials
) -> OAuthClientProvider:
    if client.private_key is None:
        return ClientCredentialsOAuthProvider(
            server_url=url,
            storage=_MemoryStorage(),
            client_id=client.client_id,
            client_secret=reveal_secret(client.client_secret),
            scope=client.scope or None,
            issuer=client.issuer,
        )
    signing = SignedJWTParameters(
        issuer=client.client_id,
        subject=client.client_id,
        signing_key=reveal_secret(client.private_key),
        signing_algorithm=client.algorithm,
    )
    return PrivateKeyJWTOAuthProvider(
        server_url=url,
        storage=_MemoryStorage(),
        client_id=client.client_id,
        assertion_provider=signing.create_assertion_provider(),
        scope=client.scope or None,
        issuer=client.issuer,
    )
