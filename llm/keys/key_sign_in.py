"""Sign-in at a provider that ends with an API key: OAuth with PKCE.

Source: https://openrouter.ai/docs/use-cases/oauth-pkce,
https://datatracker.ietf.org/doc/html/rfc7636
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import urlencode

import httpx
import orjson

from llm import router
from llm.errors import BadResponse, ProviderDown
from llm.http.client import public_web_client
from llm.http.request import url_of_path
from llm.models import Provider
from llm.provider import KeySignIn

MAX_ANSWER = 64 * 1024  # bytes


def sign_in_of(provider: Provider) -> KeySignIn | None:
    """None if the provider's key can only be entered."""
    return provider.host.key_sign_in if provider.host else None


def make_verifier() -> str:
    return secrets.token_urlsafe(48)


def authorize_url(sign_in: KeySignIn, callback_url: str, verifier: str) -> str:
    """Where the person agrees; the provider then redirects to `callback_url` with the
    parameter `code`."""
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "callback_url": callback_url,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    return f"{sign_in.authorize_url}?{urlencode(query)}"


async def exchange_code(
    provider: Provider, sign_in: KeySignIn, code: str, verifier: str
) -> str:
    """The API key for the code. Raises LLMError."""
    url = url_of_path(router.endpoint_of(provider, None), sign_in.exchange_path)
    body = {"code": code, "code_verifier": verifier, "code_challenge_method": "S256"}
    try:
        async with public_web_client().stream("POST", url, json=body) as response:
            answer = await _read(response) if response.is_success else None
    except httpx.HTTPError as exc:
        raise ProviderDown(detail=type(exc).__name__) from exc
    if answer is None:
        raise BadResponse(f"{provider.name} did not accept the sign-in; try again.")
    try:
        key = orjson.loads(answer)["key"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
        raise BadResponse(f"{provider.name} sent no key; try again.") from exc
    if not isinstance(key, str) or not key:
        raise BadResponse(f"{provider.name} sent no key; try again.")
    return key


async def _read(response: httpx.Response) -> bytes | None:
    """The body, or None if it is too long."""
    body = bytearray()
    chunks = response.aiter_bytes()
    assert isinstance(chunks, AsyncGenerator)  # httpx promises only an iterator
    async with aclosing(chunks):
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_ANSWER:
                return None
    return bytes(body)
