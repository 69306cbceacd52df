"""Connection parameters for psycopg, for connections beside Django's."""

from __future__ import annotations

from typing import Any

from django.db import connections

#: Seconds of silence before the operating system probes a connection, seconds between
#: probes, and unanswered probes that end it.
_KEEP_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
#: These writes need not survive a crash of PostgreSQL, and callers try a statement that
#: took too long again.
_SHORT = "-c synchronous_commit=off -c statement_timeout=5s"
_SEND_TIMEOUT = 5000  # milliseconds without an acknowledgement that end a connection


def connection_parameters() -> dict[str, Any]:
    """Django's parameters, without those that only fit its own cursors."""
    found: dict[str, Any] = connections["default"].get_connection_params()
    left_out = ("context", "cursor_factory", "prepare_threshold")
    return _KEEP_ALIVE | {k: v for k, v in found.items() if k not in left_out}


def short_parameters(name: str, **changes: Any) -> dict[str, Any]:
    """For short statements whose writes may be lost. `name` is shown in
    pg_stat_activity."""
    parameters = connection_parameters()
    options = f"{parameters.get('options', '')} {_SHORT}".strip()
    fixed = {"application_name": f"parley {name}", "tcp_user_timeout": _SEND_TIMEOUT}
    return parameters | fixed | {"options": options} | changes
