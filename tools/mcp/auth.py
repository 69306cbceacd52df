"""How we sign in at a server: the SDK's OAuth, with our values and our stores.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
Loads the SDK; import it where needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from llm.encrypted import SecretUnavailable
from tools.mcp.errors import SignInFailed
from tools.mcp.spec import (
    AuthorizationCode,
    ClientCredentials,
    Redirected,
    Sealed,
    Server,
)

Model = TypeVar("Model", bound=BaseModel)


def auth_of(server: Server) -> httpx2.Auth | None:
    """Raises SignInFailed where secrets are lost."""
    match server.oauth:
        case ClientCredentials() as client:
            return _for_machines(server.url, client)
        case AuthorizationCode() as client:
            return _ForPeople(server.url, client)
        case None:
            return None


# Machines: tokens are fetched when needed and kept as long as the session


class _Memory:
    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None  # it is known beforehand

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


def _for_machines(url: str, client: ClientCredentials) -> httpx2.Auth:
    if client.private_key is None:
        return ClientCredentialsOAuthProvider(
            server_url=url,
            storage=_Memory(),
            client_id=client.client_id,
            client_secret=_opened(client.client_secret),
            scope=client.scope or None,
            issuer=client.issuer,
        )
    signing = SignedJWTParameters(
        issuer=client.client_id,
        subject=client.client_id,
        signing_key=_opened(client.private_key),
        signing_algorithm=client.algorithm,
    )
    return PrivateKeyJWTOAuthProvider(
        server_url=url,
        storage=_Memory(),
        client_id=client.client_id,
        assertion_provider=signing.create_assertion_provider(),
        scope=client.scope or None,
        issuer=client.issuer,
    )


def _opened(secret: Sealed | None) -> str:
    if secret is None:
        return ""
    try:
        return secret.reveal()
    except SecretUnavailable as exc:
        raise SignInFailed(
            "the OAuth secret of this MCP server cannot be read; the staff must enter"
            " it again."
        ) from exc


# People: tokens are kept in a store, with what is needed to renew them


class _ForPeople(OAuthClientProvider):
    def __init__(self, url: str, client: AuthorizationCode) -> None:
        self._client = client
        self._came_back: Redirected | None = None
        super().__init__(
            server_url=url,
            client_metadata=OAuthClientMetadata(
                client_name=client.client_name,
                redirect_uris=[AnyUrl(client.redirect_uri)],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                scope=client.scope or None,
            ),
            storage=(stored := _Stored(client)),
            redirect_handler=self._visit,
            callback_handler=self._result,
            client_metadata_url=client.metadata_url or None,
        )
        stored.provider = self

    async def _visit(self, url: str) -> None:
        if self._client.visit is None:
            raise SignInFailed("somebody of the staff must sign in at this MCP server.")
        self._came_back = await self._client.visit(url)

    async def _result(self) -> AuthorizationCodeResult:
        assert self._came_back
        back, self._came_back = self._came_back, None
        return AuthorizationCodeResult(
            code=back.code, state=back.state, iss=back.issuer
        )


class _Stored:
    """The SDK's storage over ours.

    The SDK asks a token that has run out to be renewed only where it knows when that
    was, and where: so we keep that too and give it back.
    """

    provider: OAuthClientProvider

    def __init__(self, client: AuthorizationCode) -> None:
        self._client = client
        self._store = client.store
        self._state: dict[str, Any] = {}

    async def get_tokens(self) -> OAuthToken | None:
        self._state = dict(await self._store.load())
        self._remember_servers()
        if (tokens := _read(OAuthToken, self._state.get("tokens"))) is None:
            return None
        expires_at = self._state.get("expires_at")
        if expires_at is not None and time.time() > expires_at:
            tokens.access_token = ""  # to the SDK: renew it before it is used
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.provider.context
        await self._save(
            tokens=_dumped(tokens),
            expires_at=context.token_expiry_time,
            metadata=_dumped(context.oauth_metadata),
            resource=_dumped(context.protected_resource_metadata),
            issuer=context.auth_server_url,
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if not self._client.client_id:
            return _read(OAuthClientInformationFull, self._state.get("client"))
        secret = _opened(self._client.client_secret) or None
        return OAuthClientInformationFull(
            client_id=self._client.client_id,
            client_secret=secret,
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            redirect_uris=[AnyUrl(self._client.redirect_uri)],
            issuer=self._client.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._save(client=_dumped(client_info))

    def _remember_servers(self) -> None:
        context = self.provider.context
        context.oauth_metadata = _read(OAuthMetadata, self._state.get("metadata"))
        context.protected_resource_metadata = _read(
            ProtectedResourceMetadata, self._state.get("resource")
        )
        context.auth_server_url = self._state.get("issuer")

    async def _save(self, **news: Any) -> None:
        self._state.update(news)
        await self._store.save(self._state)


def _dumped(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _read(model: type[Model], value: Mapping[str, Any] | None) -> Model | None:
    """None where nothing is stored, or what an older release stored otherwise."""
    try:
        return None if value is None else model.model_validate(value)
    except ValidationError:
        return None
