"""OAuth for MCP servers: the SDK's providers with Parley's settings and token store.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
Loads the SDK; import it where needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal, TypeVar

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import (
    issuers_match,
    validate_authorization_response_iss,
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

from llm.db.encrypted_field import SecretUnavailable
from tools.mcp.errors import SignInFailed
from tools.mcp.server_spec import (
    AuthorizationCode,
    AuthorizationResponse,
    ClientCredentials,
    RevealableSecret,
    ServerSpec,
)

_ISSUER_MISMATCH = "the server does not name the issuer that is set here."

CLAIM_POLL_INTERVAL = (
    0.2  # seconds between two looks whether another process has renewed a token
)

Model = TypeVar("Model", bound=BaseModel)
Flow = AsyncGenerator[httpx2.Request, httpx2.Response]


def build_auth(server: ServerSpec) -> httpx2.Auth | None:
    """The auth object for the server. Raises SignInFailed if secrets are lost."""
    match server.oauth:
        case ClientCredentials() as client:
            return _build_client_credentials_auth(server.url, client)
        case AuthorizationCode() as client:
            return _AuthorizationCodeProvider(server.url, client)
        case None:
            return None


async def build_revocations(server: ServerSpec) -> list[httpx2.Request]:
    """The requests that revoke the stored tokens; none if the authorization server has
    no revocation endpoint. Raises SignInFailed.

    Source: https://www.rfc-editor.org/rfc/rfc7009
    """
    if not isinstance(server.oauth, AuthorizationCode):
        return []
    return await _AuthorizationCodeProvider(
        server.url, server.oauth
    ).build_revocations()


# Client credentials: tokens are fetched when needed and live as long as the session


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


class _ConfiguredScopeProvider(OAuthClientProvider):
    """Requests the scope that staff have set, if any; the SDK requests the scope that
    the server names."""

    chosen_scope = ""

    async def _perform_authorization(self) -> httpx2.Request:
        if self.chosen_scope:
            self.context.client_metadata.scope = self.chosen_scope
        return await super()._perform_authorization()


class _ClientSecretProvider(_ConfiguredScopeProvider, ClientCredentialsOAuthProvider):
    pass


class _PrivateKeyProvider(_ConfiguredScopeProvider, PrivateKeyJWTOAuthProvider):
    pass


def _build_client_credentials_auth(url: str, client: ClientCredentials) -> httpx2.Auth:
    provider = _build_client_credentials_provider(url, client)
    provider.chosen_scope = client.scope
    return provider


def _build_client_credentials_provider(
    url: str, client: ClientCredentials
) -> _ConfiguredScopeProvider:
    if client.private_key is None:
        return _ClientSecretProvider(
            server_url=url,
            storage=_MemoryStorage(),
            client_id=client.client_id,
            client_secret=_reveal(client.client_secret),
            scope=client.scope or None,
            issuer=client.issuer,
        )
    signing = SignedJWTParameters(
        issuer=client.client_id,
        subject=client.client_id,
        signing_key=_reveal(client.private_key),
        signing_algorithm=client.algorithm,
    )
    return _PrivateKeyProvider(
        server_url=url,
        storage=_MemoryStorage(),
        client_id=client.client_id,
        assertion_provider=signing.create_assertion_provider(),
        scope=client.scope or None,
        issuer=client.issuer,
    )


def _reveal(secret: RevealableSecret | None) -> str:
    if secret is None:
        return ""
    try:
        return secret.reveal()
    except SecretUnavailable as exc:
        raise SignInFailed(
            "the OAuth secret of this MCP server cannot be read; the staff must enter"
            " it again."
        ) from exc


# Authorization code: tokens are stored, with what is needed to renew them


class _AuthorizationCodeProvider(_ConfiguredScopeProvider):
    def __init__(self, url: str, client: AuthorizationCode) -> None:
        self._client = client
        self._response: AuthorizationResponse | None = None
        self._is_code_used = False  # the authorization code has been exchanged
        super().__init__(
            server_url=url,
            client_metadata=OAuthClientMetadata(
                client_name=client.client_name,
                redirect_uris=[AnyUrl(client.redirect_uri)],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
                scope=client.scope or None,
            ),
            storage=(stored := _StoreAdapter(client)),
            redirect_handler=self._visit,
            callback_handler=self._take_response,
            client_metadata_url=client.metadata_url or None,
        )
        self.chosen_scope = client.scope
        self._store = stored
        stored.provider = self

    async def _auth_flow(self, request: httpx2.Request) -> Flow:
        """The SDK's flow, repeated once if the server rejects the access token: with a
        token that another process has renewed meanwhile, or after renewing it."""
        try:
            for may_renew in (True, False):
                self._initialized &= self.context.is_token_valid()
                async with aclosing(super()._auth_flow(request)) as flow:
                    sent = await anext(flow)
                    while True:
                        response = yield sent
                        if sent is request and response.status_code == 401:
                            if may_renew and self._forget_token():
                                break
                            self._require_person()
                        sent = await flow.asend(response)
        except StopAsyncIteration:
            return
        except OAuthFlowError as exc:
            raise SignInFailed(self._reason(exc)) from exc
        finally:
            await self._store.release()

    def _forget_token(self) -> bool:
        """Marks the access token as rejected; False if it cannot be renewed."""
        tokens = self.context.current_tokens
        if tokens is None or not tokens.refresh_token:
            return False
        self._store.rejected_token, self._initialized = tokens.access_token, False
        return True

    def _require_person(self) -> None:
        """Raises SignInFailed if no person can sign in now; called before the SDK
        registers a client."""
        if self._client.visit is None and self._client.came_back is None:
            raise SignInFailed("somebody of the staff must sign in at this MCP server.")

    def _select_authorization_server(self, advertised: list[str]) -> str:
        if not (issuer := self._client.issuer):
            return super()._select_authorization_server(advertised)
        for each in advertised:
            if issuers_match(each, issuer):
                return each
        raise SignInFailed(_ISSUER_MISMATCH)

    async def _perform_authorization(self) -> httpx2.Request:
        client = self.context.client_info
        if (
            self._client.client_id
            and client
            and client.client_id != self._client.client_id
        ):
            raise SignInFailed(_ISSUER_MISMATCH)
        self._set_secret_method()
        if (back := self._client.came_back) is None:
            return await super()._perform_authorization()
        if self._is_code_used:
            raise SignInFailed("the server does not take the token it was given.")
        self._is_code_used = True
        if self._get_token_endpoint() != back.token_endpoint:
            raise SignInFailed(
                "the server names another authorization server than before."
            )
        validate_authorization_response_iss(back.issuer, self.context.oauth_metadata)
        return await self._exchange_token_authorization_code(back.code, back.verifier)

    def _set_secret_method(self) -> None:
        """Sets how the client secret is sent, for a client that staff have entered:
        only the server's metadata says it."""
        if self.context.client_info and self._client.client_secret:
            method = _method(self.context.oauth_metadata)
            self.context.client_info.token_endpoint_auth_method = method

    async def build_revocations(self) -> list[httpx2.Request]:
        await self._initialize()
        metadata = self.context.oauth_metadata
        if metadata is None or metadata.revocation_endpoint is None:
            return []
        if (issuer := self._client.issuer) and not issuers_match(
            str(metadata.issuer), issuer
        ):
            raise SignInFailed(_ISSUER_MISMATCH)
        self._set_secret_method()
        url = str(metadata.revocation_endpoint)
        return [self._revocation(url, *token) for token in self._store.list_tokens()]

    def _revocation(self, url: str, hint: str, token: str) -> httpx2.Request:
        assert self.context.client_info
        parameters = {"token": token, "token_type_hint": hint}
        parameters["client_id"] = self.context.client_info.client_id or ""
        try:
            data, headers = self.context.prepare_token_auth(parameters)
        except OAuthFlowError as exc:
            raise SignInFailed(self._reason(exc)) from exc
        return httpx2.Request("POST", url, data=data, headers=headers)

    async def _visit(self, url: str) -> None:
        self._require_person()
        assert self._client.visit
        await self._store.note(token_endpoint=self._get_token_endpoint())
        self._response = await self._client.visit(url)

    async def _take_response(self) -> AuthorizationCodeResult:
        assert self._response
        back, self._response = self._response, None
        return AuthorizationCodeResult(
            code=back.code, state=back.state, iss=back.issuer
        )

    def _reason(self, exc: OAuthFlowError) -> str:
        """A message without the SDK's text, which may quote answers of the servers."""
        match exc:
            case OAuthRegistrationError() if self.context.oauth_metadata is None:
                return (
                    "the server asks for a sign-in, but neither it nor an authorization"
                    " server says how (there is no metadata)."
                )
            case OAuthRegistrationError():
                return (
                    "the authorization server registers no client for us; enter the id"
                    " of a client that it knows."
                )
            case OAuthTokenError():
                return "the authorization server gave no token."
        return "what the server and its authorization server say does not fit together."


class _StoreAdapter:
    """Adapter from the SDK's token storage to a `TokenStore`.

    The SDK renews an expired token only if it knows its expiry and the server's
    metadata, so the store keeps these too.
    """

    provider: OAuthClientProvider

    def __init__(self, client: AuthorizationCode) -> None:
        self._client = client
        self._store = client.store
        self._state: dict[str, Any] = {}
        self._is_claimed = False
        self.rejected_token = ""  # the access token that the server has rejected

    async def get_tokens(self) -> OAuthToken | None:
        tokens = await self._load()
        while tokens and self._must_renew(tokens) and not self._is_claimed:
            self._is_claimed = await self._store.claim()
            if not self._is_claimed:
                await asyncio.sleep(CLAIM_POLL_INTERVAL)
            tokens = await self._load()  # another process may have renewed it
        if tokens and self._must_renew(tokens):
            tokens.access_token = ""  # makes the SDK renew it before use
        return tokens

    async def _load(self) -> OAuthToken | None:
        self._state = dict(await self._store.load())
        self._restore_metadata()
        return _read(OAuthToken, self._state.get("tokens"))

    def _must_renew(self, tokens: OAuthToken) -> bool:
        if not tokens.refresh_token:
            return False
        expires_at = self._state.get("expires_at")
        has_run_out = expires_at is not None and time.time() > expires_at
        return has_run_out or tokens.access_token == self.rejected_token

    def list_tokens(self) -> list[tuple[str, str]]:
        """The loaded tokens by kind, the refresh token first: it can create others."""
        stored = self._state.get("tokens") or {}
        kinds = ("refresh_token", "access_token")
        return [(kind, stored[kind]) for kind in kinds if stored.get(kind)]

    async def release(self) -> None:
        if self._is_claimed:
            self._is_claimed = False
            await self._store.release()

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.provider.context
        await self._save(
            tokens=_dump(tokens),
            expires_at=context.token_expiry_time,
            metadata=_dump(context.oauth_metadata),
            resource=_dump(context.protected_resource_metadata),
            issuer=context.auth_server_url,
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if not self._client.client_id:
            return _read(OAuthClientInformationFull, self._state.get("client"))
        secret = _reveal(self._client.client_secret) or None
        return OAuthClientInformationFull(
            client_id=self._client.client_id,
            client_secret=secret,
            token_endpoint_auth_method=(
                _method(self.provider.context.oauth_metadata) if secret else "none"
            ),
            redirect_uris=[AnyUrl(self._client.redirect_uri)],
            issuer=self._client.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._save(client=_dump(client_info))

    async def note(self, **values: Any) -> None:
        """Stores values of a sign-in that is in progress."""
        await self._save(**values)

    def _restore_metadata(self) -> None:
        context = self.provider.context
        context.oauth_metadata = _read(OAuthMetadata, self._state.get("metadata"))
        context.protected_resource_metadata = _read(
            ProtectedResourceMetadata, self._state.get("resource")
        )
        context.auth_server_url = self._state.get("issuer")

    async def _save(self, **values: Any) -> None:
        self._state.update(values)
        await self._store.save(self._state)


def _method(
    metadata: OAuthMetadata | None,
) -> Literal["client_secret_basic", "client_secret_post"]:
    known = (metadata and metadata.token_endpoint_auth_methods_supported) or ()
    if "client_secret_basic" not in known and "client_secret_post" in known:
        return "client_secret_post"
    return "client_secret_basic"


def _dump(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _read(model: type[Model], value: Mapping[str, Any] | None) -> Model | None:
    """The stored value; None if there is none, or in the format of an older release."""
    try:
        return None if value is None else model.model_validate(value)
    except ValidationError:
        return None
