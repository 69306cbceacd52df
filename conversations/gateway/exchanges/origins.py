"""Cross-origin requests (CORS): which web pages may call the gateway.

A browser sends a preflight request first, without the token. It succeeds for an origin
that any live token allows; the request itself then needs a token that allows its
origin.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

from django.db.models.signals import post_delete, post_save

from conversations.access.errors import Forbidden
from conversations.engine import notifications
from conversations.engine.database.executor import Database
from conversations.gateway.http import Exchange
from conversations.gateway.lookup_cache import Cache, clear_on_change
from conversations.models.access_token import AccessToken

HEADER = b"origin"
ANY = "*"
_MAX_AGE = "600"  # seconds that a browser may remember the answer
_EXPOSED = ", ".join(
    (
        "x-request-id",
        "request-id",
        "x-parley-degraded",
        "x-parley-cache",
        "x-parley-model-replaced",
        "x-should-retry",
        "retry-after",
        "idempotent-replayed",
    )
)


class OriginNotAllowed(Forbidden):
    """This access token is not for pages of this origin."""

    code = "E_ORIGIN"
    openai_code = "origin_not_allowed"


async def add_cors_headers(exchange: Exchange, database: Database) -> None:
    """Let pages of an origin that some token allows read the answer, errors too."""
    origin = _origin_of(exchange)
    known = await _origins.get("", database)
    if ANY in known or origin in known:
        exchange.response_headers |= {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": _EXPOSED,
            "vary": "origin",
        }


def check_origin(exchange: Exchange, token: AccessToken) -> None:
    """Raises OriginNotAllowed. A token without origins is for programs: any origin is
    accepted, but the answer has no CORS headers."""
    allowed = token.origins
    if not allowed:
        for name in ("access-control-allow-origin", "access-control-expose-headers"):
            exchange.response_headers.pop(name, None)
    elif ANY not in allowed and _origin_of(exchange) not in allowed:
        raise OriginNotAllowed


def is_preflight(exchange: Exchange) -> bool:
    return (
        exchange.method == "OPTIONS"
        and b"access-control-request-method" in exchange.headers
    )


async def answer_preflight(exchange: Exchange, methods: str) -> None:
    headers = {}
    if "access-control-allow-origin" in exchange.response_headers:
        wanted = exchange.headers.get(b"access-control-request-headers", b"")
        headers = {
            "access-control-allow-methods": methods,
            "access-control-allow-headers": wanted.decode("latin-1"),
            "access-control-max-age": _MAX_AGE,
        }
    await exchange.answer(204, None, headers)


def _origin_of(exchange: Exchange) -> str:
    return exchange.headers.get(HEADER, b"").decode("latin-1").lower()


def _find_origins(_key: str) -> frozenset[str]:
    rows = AccessToken.objects.live().exclude(allowed_origins="")
    return frozenset(
        origin for row in rows.only("allowed_origins") for origin in row.origins
    )


_origins: Cache[str, frozenset[str]] = Cache(_find_origins)
_clear_origins = clear_on_change(_origins)
for _signal in (post_save, post_delete):
    _signal.connect(_clear_origins, sender=AccessToken)
notifications.on("tokens", _origins.clear)
