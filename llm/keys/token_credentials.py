"""Access tokens for hosts that do not accept an API key.

Azure accepts tokens that Entra ID issues for a client secret; Google Cloud issues one
for an assertion signed with the private key of a service account. Both last about an
hour. A token is cached in memory for each event loop and renewed before it expires: one
caller renews it, the others wait for the result, or continue with a token that is still
valid. Nothing here does IO: the caller passes a function that posts a form.

Source: https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow,
https://developers.google.com/identity/protocols/oauth2/service-account
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from llm.errors import (
    BadResponse,
    InvalidKey,
    LLMError,
    ProviderDown,
    RateLimited,
    TryAgain,
)
from llm.provider import Endpoint, Post

RENEWAL_MARGIN = (
    300  # seconds before expiry that a token is renewed, at most half its life
)
_RETRY_DELAY = 30  # seconds until the next attempt, while the old token is valid
_DEFAULT_LIFETIME = 300  # seconds, if the issuer does not return a lifetime
_ASSERTION_LIFETIME = 3600  # seconds, the maximum at Google
_DETAIL_LIMIT = 500  # characters

ENTRA = "https://login.microsoftonline.com"
AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

logger = logging.getLogger(__name__)


class TokenCredentials(ABC):
    """Base class: caches and renews tokens; a subclass builds the token request.

    Instances are compared by value: equal ones share a token.
    """

    __slots__ = ()
    issuer: ClassVar[str]  # name of the issuer, for messages
    refusal_message: ClassVar[str]  # the message if the issuer rejects the secret

    @abstractmethod
    def token_request(self) -> tuple[str, dict[str, str]]:
        """The URL and form of the token request. Raises InvalidKey for a malformed
        secret."""

    @property
    def address(self) -> str:
        """The address for token requests, if the provider's row sets it."""
        return ""

    async def token(self, post: Post) -> str:
        """Return a valid token, renewing it if needed. Raises LLMError."""
        return await _get_cached_token(self).get(self, post)

    def forget(self, token: str) -> None:
        """Drop a token that the host refused; the next call renews it."""
        _get_cached_token(self).discard(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntraCredentials(TokenCredentials):
    """An application registered with Microsoft Entra ID."""

    issuer = "Entra ID"
    refusal_message = (
        "Entra ID refused the client; ask the staff to check the tenant, client id and"
        " secret."
    )
    tenant: str
    client_id: str
    secret: str = field(repr=False)
    authority: str = ENTRA
    scope: str = AZURE_SCOPE

    @property
    def address(self) -> str:
        return self.authority

    def token_request(self) -> tuple[str, dict[str, str]]:
        authority, tenant = self.authority.rstrip("/"), quote(self.tenant, safe="")
        return f"{authority}/{tenant}/oauth2/v2.0/token", {
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "client_secret": self.secret,
            "scope": self.scope,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountCredentials(TokenCredentials):
    """A service account of Google Cloud, given by the JSON file of its key."""

    issuer = "Google"
    refusal_message = (
        "Google refused the service account; ask the staff to check its key."
    )
    key: str = field(repr=False)
    scope: str = GOOGLE_SCOPE

    def token_request(self) -> tuple[str, dict[str, str]]:
        try:
            key = json.loads(self.key)
            url = str(key["token_uri"])
            assertion = _sign_assertion(key, self.scope)
        except (ValueError, TypeError, KeyError, UnsupportedAlgorithm) as exc:
            raise InvalidKey(
                "The key is not the JSON file of a service account; ask the staff to"
                " enter it again."
            ) from exc
        return url, {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": assertion,
        }


def with_service_account(endpoint: Endpoint) -> Endpoint:
    """Add the credentials for a host at Google Cloud; a key that is not JSON is used as
    a token."""
    if not endpoint.api_key.startswith("{"):
        return endpoint
    return replace(
        endpoint, credentials=ServiceAccountCredentials(key=endpoint.api_key)
    )


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """Credentials of a token that the caller got from its issuer."""

    value: str = field(repr=False)
    address = ""

    async def token(self, post: Post) -> str:
        return self.value

    def forget(self, token: str) -> None:
        """The caller gets the next one."""


def with_issued_token(endpoint: Endpoint) -> Endpoint:
    """Use the key as a token if the host would have one issued for it, unless it is a
    service account's."""
    if endpoint.credentials is None or endpoint.api_key.startswith("{"):
        return endpoint
    return replace(endpoint, credentials=IssuedToken(endpoint.api_key))


def compact_key(text: str) -> str:
    """Write a key that is a JSON object without spaces; return any other key unchanged.

    So every stored or sent key can be required to be a single word.
    """
    try:
        key = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(key, dict):
        return text
    # After compact separators only strings contain spaces, which may be escaped there.
    return json.dumps(key, separators=(",", ":")).replace(" ", "\\u0020")


# Google's assertion: a JSON Web Token


def _sign_assertion(key: Mapping[str, str], scope: str) -> str:
    """Raises ValueError, TypeError, KeyError or UnsupportedAlgorithm."""
    now = int(time.time())
    head = {"alg": "RS256", "typ": "JWT", "kid": key.get("private_key_id")}
    claims = {
        "iss": key["client_email"],
        "scope": scope,
        "aud": key["token_uri"],
        "iat": now,
        "exp": now + _ASSERTION_LIFETIME,
    }
    private_key = load_pem_private_key(str(key["private_key"]).encode(), None)
    if not isinstance(private_key, RSAPrivateKey):
        raise ValueError("not an RSA key")
    text = b".".join(_base64(orjson.dumps(part)) for part in (head, claims))
    signature = private_key.sign(text, PKCS1v15(), SHA256())
    return b".".join([text, _base64(signature)]).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


# Cached tokens


class _CachedToken:
    """The cached token of one account in one event loop."""

    def __init__(self) -> None:
        self._token = ""
        self._expires_at = self._renew_at = 0.0  # on the monotonic clock
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._error: LLMError | None = None  # of the last attempt

    @property
    def is_idle(self) -> bool:
        return not self._is_good() and not self._lock.locked()

    async def get(self, credentials: TokenCredentials, post: Post) -> str:
        being_renewed = self._lock.locked() and self._is_good()
        if time.monotonic() < self._renew_at or being_renewed:
            return self._token
        attempts = self._attempts
        async with self._lock:
            # Otherwise another caller renewed it during the wait.
            if self._attempts == attempts:
                await self._renew(credentials, post)
            if self._error and not self._is_good():
                # Each caller sets attributes of its own copy.
                raise copy.copy(self._error)
            return self._token

    def discard(self, token: str) -> None:
        if token == self._token:
            self._expires_at = self._renew_at = 0.0

    def _is_good(self) -> bool:
        return time.monotonic() < self._expires_at

    async def _renew(self, credentials: TokenCredentials, post: Post) -> None:
        requested_at = time.monotonic()
        try:
            # Parsing a private key takes a quarter of a second.
            url, form = await asyncio.to_thread(credentials.token_request)
            status, body = await post(url, form)
            token, lifetime = _parse_token(credentials, status, body)
        except LLMError as exc:
            self._fail(credentials, exc)
        else:
            self._token, self._error = token, None
            self._expires_at = requested_at + lifetime
            self._renew_at = self._expires_at - min(RENEWAL_MARGIN, lifetime / 2)
        self._attempts += 1

    def _fail(self, credentials: TokenCredentials, error: LLMError) -> None:
        self._error = error
        if isinstance(error, TryAgain) and self._is_good():
            self._renew_at = min(self._expires_at, time.monotonic() + _RETRY_DELAY)
            logger.warning(
                "the token of %s could not be renewed: %s", credentials.issuer, error
            )
        else:
            self._expires_at = self._renew_at = 0.0


_cached_tokens: WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[TokenCredentials, _CachedToken]
] = WeakKeyDictionary()


def _get_cached_token(credentials: TokenCredentials) -> _CachedToken:
    cached = _cached_tokens.setdefault(asyncio.get_running_loop(), {})
    if credentials not in cached:
        for old in [each for each, each_token in cached.items() if each_token.is_idle]:
            del cached[old]  # keys change over the life of a server
        cached[credentials] = _CachedToken()
    return cached[credentials]


# Responses of token issuers


def _parse_token(
    credentials: TokenCredentials, status: int, body: bytes
) -> tuple[str, float]:
    """The token and its lifetime in seconds. Raises LLMError."""
    payload = _parse_object(body)
    if not 200 <= status < 300:
        raise _refusal(credentials, status, payload)
    token = payload.get("access_token")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise BadResponse(detail=f"{credentials.issuer} issued no token.")
    try:
        lifetime = float(payload.get("expires_in") or _DEFAULT_LIFETIME)
    except (TypeError, ValueError):
        lifetime = _DEFAULT_LIFETIME
    return token, lifetime


def _refusal(
    credentials: TokenCredentials, status: int, payload: Mapping[str, Any]
) -> LLMError:
    code = str(payload.get("error") or "")
    # The lines after the first are ids and times for Microsoft's support.
    description = str(payload.get("error_description") or "").partition("\n")[0].strip()
    error_class: type[LLMError] = InvalidKey
    message = credentials.refusal_message
    if status == 429:
        error_class, message = RateLimited, ""
    elif status >= 500 or code in ("temporarily_unavailable", "server_error"):
        error_class, message = ProviderDown, ""
    elif not code:  # without an error code this is not a token issuer
        error_class = BadResponse
        message = (
            "The token endpoint returned no token; ask the staff to correct its"
            " address."
        )
    return error_class(
        message,
        detail=f"{credentials.issuer}: {status} {code} {description}".strip()[
            :_DETAIL_LIMIT
        ],
        # The key is disabled by it. Otherwise no host has answered the request, so its
        # sender gets nothing of the issuer's answer.
        upstream_status=status if error_class is InvalidKey else None,
        upstream_code=code or None,
    )


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}
