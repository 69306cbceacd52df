"""Ends with 0 where the process of this container lives; its health check runs this.

`healthy.py` asks the server, `healthy.py worker` the port of METRICS_PORT, where a
worker listens: any answer shows that its event loop turns. Neither asks the database,
whose failure a restart does not end.

A file, because podman tears an argument with spaces apart.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection  # which asks no HTTP_PROXY


def main(role: str) -> int:
    if role == "worker":
        port = int(os.environ.get("METRICS_PORT") or 0)
        if not port:
            print("METRICS_PORT: set it, or a worker cannot be asked.", file=sys.stderr)
            return 1
        return int(_ask(port) >= 500)
    return int(_ask(int(os.environ.get("PORT") or 8000)) != 200)


def _ask(port: int) -> int:
    """The status of the answer. Raises OSError if the process listens neither at
    127.0.0.1 nor at ::1, or does not answer."""
    try:
        return _ask_at("127.0.0.1", port)
    except ConnectionRefusedError:  # it may listen on IPv6 alone
        return _ask_at("::1", port)


def _ask_at(address: str, port: int) -> int:
    server = HTTPConnection(address, port, timeout=4)
    server.request("GET", "/healthz")
    return server.getresponse().status


if __name__ == "__main__":
    try:
        sys.exit(main(next(iter(sys.argv[1:]), "server")))
    except OSError as exc:
        sys.exit(f"no answer: {exc}")
