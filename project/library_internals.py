"""Undocumented names of libraries that this project uses, each with its reason.

`tests/project/test_library_internals.py` fails when an upgrade removes one of them, and
when the project uses a private name (with a leading underscore) that is not listed.
"""

from __future__ import annotations

from typing import NamedTuple


class Internal(NamedTuple):
    owner: str  # the class or module that defines the names
    names: tuple[str, ...]
    used_in: str  # path in this project
    reason: str


_SANSIO = "uvicorn.protocols.websockets.websockets_sansio_impl"

INTERNALS = (
    Internal(
        f"{_SANSIO}.WebSocketsSansIOProtocol",
        ("conn", "run_asgi", "scope", "transport"),
        "project/server/direct_write.py",
        "One encoding of an event for all subscribers (decision 17), and a response to"
        " a handshake that cannot be parsed.",
    ),
    Internal(
        "uvicorn.Server",
        ("handle_exit", "server_state", "servers", "shutdown", "startup"),
        "project/server/uvicorn_server.py",
        "uvicorn documents no hook between the signal and the close of WebSockets, when"
        " the engine drains; and it ends with the signal instead of exit code 0.",
    ),
    Internal(
        "daphne.server.Server",
        ("connections", "kill_all_applications", "listen_success"),
        "project/server/daphne_server.py",
        "Daphne documents no drain.",
    ),
    Internal(
        "daphne.ws_protocol.WebSocketProtocol",
        ("sendCloseFrame",),
        "project/server/daphne_server.py",
        "Autobahn's documented sendClose() refuses 1012.",
    ),
    Internal(
        "twisted.web.http.Request",
        ("channel",),
        "llm/demo/disconnect.py",
        "The demo provider breaks off a response, for which ASGI has no message.",
    ),
    Internal(
        "aiohttp.streams.StreamReader",
        ("_buffer",),
        "llm/http/connections.py",
        "readany() raises before the bytes that arrived ahead of a cut.",
    ),
    Internal(
        "httpx.AsyncClient",
        ("_transport_for_url",),
        "llm/http/connections.py",
        "Sends without cookie jar, redirects and hooks; respx replaces it in tests.",
    ),
    Internal(
        "redis.asyncio.connection.AbstractConnection",
        ("_close", "_writer"),
        "conversations/engine/redis/connection.py",
        "redis-py connects, our protocol pipelines on its transport (decision 11).",
    ),
    Internal(
        "channels_redis.pubsub.RedisPubSubChannelLayer",
        ("_get_layer",),
        "conversations/engine/redis/channel_layer.py",
        "A page must not wait while Redis is unreachable.",
    ),
    Internal(
        "channels.layers.InMemoryChannelLayer",
        ("_clean_expired",),
        "conversations/engine/local_channel_layer.py",
        "It scans all channels at every message; ours does so once a minute.",
    ),
    Internal(
        "django.contrib.sessions.backends.db.SessionStore",
        ("_get_session_from_db",),
        "conversations/access/session_user.py",
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
        "get_fields() makes deep copies of the arguments of every field.",
    ),
    Internal(
        "rest_framework.request.Request",
        ("_request",),
        "conversations/api/views.py",
        "Django's request, on which middleware and ASGI handlers set attributes.",
    ),
    Internal(
        "mcp.client.auth.OAuthClientProvider",
        (
            "_exchange_token_authorization_code",
            "_get_token_endpoint",
            "_initialize",
            "_perform_authorization",
        ),
        "tools/mcp/oauth.py",
        "The SDK runs the sign-in in one call; ours spans two requests of staff.",
    ),
    # For compiled queries, until issue 15 replaces them by plain SQL.
    Internal(
        "django.db.models.sql.compiler.SQLCompiler",
        ("get_converters", "klass_info", "select"),
        "llm/db/compiled_queries.py",
        "The columns of a compiled query and how to convert them.",
    ),
    Internal(
        "django.db.models.query",
        ("get_related_populators",),
        "llm/db/compiled_queries.py",
        "Converts rows of select_related() to instances.",
    ),
    Internal(
        "django.db.models.query.RelatedPopulator",
        ("init_list", "model_cls", "related_populators"),
        "llm/db/model_instances.py",
        "Converts rows of select_related() to instances.",
    ),
    Internal(
        "django.db.models.base",
        ("ModelState",),
        "llm/db/model_instances.py",
        "Instances without Model.__init__.",
    ),
    Internal(
        "django.db.backends.sqlite3.base",
        ("FORMAT_QMARK_REGEX",),
        "llm/db/raw_sql.py",
        "Django's translation of placeholders.",
    ),
)
