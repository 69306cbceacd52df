"""Sign-in at a provider that ends with an API key: OAuth with PKCE.

Source: https://openrouter.ai/docs/use-cases/oauth-pkce,
https://datatracker.ietf.org/doc/html/rfc7636
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from urllib.parse import urlencode

import orjson

from llm import router
from llm.errors import BadRequest, BadResponse, ProviderTimeout
from llm.http import client
from llm.http.connection_problems import SILENT
from llm.models import Provider
from llm.provider import KeySignIn

MAX_ANSWER = 64 * 1024  # bytes
MAX_SECONDS = 20.0  # until a person who waits for the page is told


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
    body = {"code": code, "code_verifier": verifier, "code_challenge_method": "S256"}
    try:
        async with asyncio.timeout(MAX_SECONDS):
            answer = await client.post(
                router.endpoint_of(provider, None),
                sign_in.exchange_path,
                orjson.dumps(body),
                limit=MAX_ANSWER,
            )
    except TimeoutError as exc:
        raise ProviderTimeout(detail=SILENT.format(seconds=MAX_SECONDS)) from exc
    except BadRequest as exc:
        if exc.upstream_status is None:  # the address cannot be used
            raise
        raise BadResponse(
            f"{provider.name} did not accept the sign-in; try again."
        ) from exc
    try:
        key = orjson.loads(answer)["key"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
        raise BadResponse(f"{provider.name} sent no key; try again.") from exc
    if not isinstance(key, str) or not key:
        raise BadResponse(f"{provider.name} sent no key; try again.")
    return key
