"""Adapter from the MCP SDK's token storage to the token stores of servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from llm.db.encrypted_field import SecretUnavailable
from llm.db.revealable_secret import RevealableSecret
from tools.mcp.errors import SignInFailed
from tools.mcp.server_spec import AuthorizationCode

CLAIM_POLL_INTERVAL = 0.2  # seconds until it looks again for a renewed token

Model = TypeVar("Model", bound=BaseModel)


class TokenStorage:
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
        secret = reveal_secret(self._client.client_secret) or None
        return OAuthClientInformationFull(
            client_id=self._client.client_id,
            client_secret=secret,
            token_endpoint_auth_method=(
                secret_method(self.provider.context.oauth_metadata)
                if secret
                else "none"
            ),
            redirect_uris=[AnyUrl(self._client.redirect_uri)],
            issuer=self._client.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._save(client=_dump(client_info))

    async def forget_client(self) -> None:
        """Forget the client and its tokens, unless a newer sign-in stored others; and
        the client for further sign-ins."""
        refused = self._state.get("client")
        self._state = dict(await self._store.load())
        if self._state and self._state.get("client") == refused:
            await self._save(client=None, tokens=None, expires_at=None)
        # Last: the registration may be the same row, whose client is compared above.
        if refused and self._client.registration is not None:
            await self._client.registration.forget(refused["client_id"])

    async def note(self, **values: Any) -> None:
        """Store values of a sign-in that is in progress."""
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


def secret_method(
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


def reveal_secret(secret: RevealableSecret | None) -> str:
    if secret is None:
        return ""
    try:
        return secret.reveal()
    except SecretUnavailable as exc:
        raise SignInFailed(
            "the OAuth secret of this MCP server cannot be decrypted; ask the staff to"
            " enter it again."
        ) from exc
