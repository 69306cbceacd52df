"""Undocumented names of libraries that this project uses, each with its reason.

`tests/project/test_library_internals.py` fails when an upgrade removes one of them, and
when the project uses a private name (with a leading underscore) that is not listed.
"""

from __future__ import annotations

from typing import NamedTuple


class Internal(NamedTuple):
    owner: str  # the class, or the module, that has the name
    names: tuple[str, ...]
    used_in: str  # our file
    reason: str


_SANSIO = "uvicorn.protocols.websockets.websockets_sansio_impl"

INTERNALS = (
    Internal(
        f"{_SANSIO}.WebSocketsSansIOProtocol",
        ("conn", "run_asgi", "scope", "transport"),
        "project/direct_write.py",
        "One encoding of an event for all subscribers (decision 17), and an answer to a"
        " handshake that cannot be read.",
    ),
    Internal(
        "uvicorn.Server",
        ("handle_exit", "server_state", "servers", "shutdown", "startup"),
        "project/server.py",
        "uvicorn documents no hook between the signal and the close of WebSockets, in"
        " which the engine drains; and it ends with the signal instead of exit code 0.",
    ),
    Internal(
        "daphne.server.Server",
        ("connections", "kill_all_applications", "listen_success"),
        "project/daphne_server.py",
        "Daphne documents no drain.",
    ),
    Internal(
        "daphne.ws_protocol.WebSocketProtocol",
        ("sendCloseFrame",),
        "project/daphne_server.py",
        "Autobahn's documented sendClose() refuses 1012.",
    ),
    Internal(
        "twisted.web.http.Request",
        ("channel",),
        "llm/demo/cut.py",
        "The demo provider cuts an answer off, for which ASGI has no message.",
    ),
    Internal(
        "aiohttp.streams.StreamReader",
        ("_buffer",),
        "llm/connections.py",
        "readany() raises before the bytes that arrived ahead of a cut.",
    ),
    Internal(
        "httpx.AsyncClient",
        ("_transport_for_url",),
        "llm/connections.py",
        "Sends without cookie jar, redirects and hooks; respx replaces it in tests.",
    ),
    Internal(
        "redis.asyncio.connection.AbstractConnection",
        ("_close", "_writer"),
        "conversations/engine/pipe.py",
        "redis-py connects, our protocol pipelines on its transport (decision 11).",
    ),
    Internal(
        "channels_redis.pubsub.RedisPubSubChannelLayer",
        ("_get_layer",),
        "conversations/engine/layer.py",
        "A page must not wait for a Redis that is away.",
    ),
    Internal(
        "channels.layers.InMemoryChannelLayer",
        ("_clean_expired",),
        "conversations/engine/local_layer.py",
        "It goes through all channels at every message; here once a minute.",
    ),
    Internal(
        "django.contrib.sessions.backends.db.SessionStore",
        ("_get_session_from_db",),
        "conversations/sign_in.py",
        "A compiled query for the session of every request.",
    ),
    Internal(
        "django.db.models.query",
        ("_prefetched_objects_cache",),
        "conversations/api/views.py",
        "Items and calls of a turn by compiled queries.",
    ),
    Internal(
        "rest_framework.serializers.Serializer",
        ("_declared_fields",),
        "conversations/api/serializers.py",
        "get_fields() copies deeply all that a field was made with.",
    ),
    Internal(
        "rest_framework.request.Request",
        ("_request",),
        "conversations/api/views.py",
        "Django's request, on which middleware and ASGI leave their notes.",
    ),
    Internal(
        "mcp.client.auth.OAuthClientProvider",
        (
            "_exchange_token_authorization_code",
            "_get_token_endpoint",
            "_initialize",
            "_perform_authorization",
        ),
        "tools/mcp/auth.py",
        "The SDK runs sign-in in one piece; staff come back in another request.",
    ),
    # For compiled queries, until issue 15 replaces them by plain SQL.
    Internal(
        "django.db.models.sql.compiler.SQLCompiler",
        ("get_converters", "klass_info", "select"),
        "llm/prepared.py",
        "The columns of a compiled query and how to convert them.",
    ),
    Internal(
        "django.db.models.query",
        ("get_related_populators",),
        "llm/prepared.py",
        "Rows of select_related() to instances.",
    ),
    Internal(
        "django.db.models.query.RelatedPopulator",
        ("init_list", "model_cls", "related_populators"),
        "llm/instances.py",
        "The same.",
    ),
    Internal(
        "django.db.models.base",
        ("ModelState",),
        "llm/instances.py",
        "Instances without Model.__init__.",
    ),
    Internal(
        "django.db.backends.sqlite3.base",
        ("FORMAT_QMARK_REGEX",),
        "llm/statements.py",
        "Django's translation of placeholders.",
    ),
)
