"""Undocumented names of libraries that this project uses, each with its reason.

A name is documented if the library's manual or API reference has it, or if it is a hook
without underscore of a class that the manual says to subclass (Django's models,
fields, forms, admin and database backends, views of DRF).
`tests/project/test_library_internals.py` fails when an upgrade removes a name, when the
project uses a private name (with a leading underscore) that is not listed, and when
more than 15 names are.
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
        _SANSIO,
        ("WebSocketsSansIOProtocol", "app_state", "conn"),
        "project/server/direct_write.py",
        "One encoding of an event for all subscribers (decision 17), and a response to"
        " a handshake that cannot be parsed.",
    ),
    Internal(
        "uvicorn.Server",
        ("handle_exit", "servers", "should_exit"),
        "project/server/uvicorn_server.py",
        "uvicorn documents no hook between the signal and the close of WebSockets, when"
        " the engine drains; and it ends with the signal instead of exit code 0.",
    ),
    Internal(
        "daphne.management.commands.runserver.Command",
        ("inner_run",),
        "project/management/commands/runserver.py",
        "`handle` runs in the process of the autoreloader too.",
    ),
    Internal(
        "aiohttp.streams.StreamReader",
        ("_buffer",),
        "llm/http/connections.py",
        "readany() raises before the bytes that arrived ahead of a cut.",
    ),
    Internal(
        "redis.asyncio.connection.AbstractConnection",
        ("_writer",),
        "conversations/engine/redis/connection.py",
        "redis-py connects, our protocol pipelines on its transport (decision 11).",
    ),
    Internal(
        "mcp.client.auth.OAuthClientProvider",
        ("context",),
        "tools/mcp/oauth/authorization_code.py",
        "A later session renews a token only with the expiry and the metadata, which"
        " the SDK does not store.",
    ),
    Internal(
        "django.db.utils",
        ("DatabaseErrorWrapper",),
        "project/postgresql/base.py",
        "PostgreSQL's idle timeout in a transaction is an outage, not a bug.",
    ),
    Internal(
        "django.db.backends.postgresql.operations.DatabaseOperations",
        ("adapt_json_value",),
        "project/postgresql/base.py",
        "PostgreSQL stores no NUL in JSON, and psycopg would encode a large value"
        " within the transaction.",
    ),
    Internal(
        "django.contrib.admin.utils",
        ("unquote",),
        "project/admin_pages/reading_reasons.py",
        "The admin quotes the ids in its addresses, and a reason for reading a row is"
        " needed before the admin's own view runs.",
    ),
    Internal(
        "django.contrib.admin.utils",
        ("quote",),
        "conversations/admin/tool_call.py",
        "A link to a row whose id has an underscore.",
    ),
    Internal(
        "django.db.models.fields.reverse_related.OneToOneRel",
        ("set_cached_value",),
        "llm/db/statements.py",
        "That a related row is missing is known, and must not be queried again.",
    ),
)
