"""Parameters of psycopg connections beside Django's."""

from __future__ import annotations

from typing import Any

from django.db import connections

#: After how many seconds of silence the operating system asks whether the other end of
#: a connection is still there, and how often it asks until it gives up.
_KEEP_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
#: What is written must not survive a crash of PostgreSQL, and a statement that waits is
#: tried again.
_SHORT = "-c synchronous_commit=off -c statement_timeout=5s"
_UNANSWERED = 5000  # milliseconds after which what was sent counts as lost


def connection_parameters() -> dict[str, Any]:
    """Django's, without those of its own cursors."""
    found: dict[str, Any] = connections["default"].get_connection_params()
    of_django = ("context", "cursor_factory", "prepare_threshold")
    return _KEEP_ALIVE | {k: v for k, v in found.items() if k not in of_django}


def short_parameters(name: str, **changes: Any) -> dict[str, Any]:
    """For connections whose statements are short and may be lost. `name` is shown in
    pg_stat_activity."""
    parameters = connection_parameters()
    options = f"{parameters.get('options', '')} {_SHORT}".strip()
    fixed = {"application_name": f"parley {name}", "tcp_user_timeout": _UNANSWERED}
    return parameters | fixed | {"options": options} | changes
