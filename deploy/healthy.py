"""Ends with 0 where the server of this container lives; its health check runs this.

A file, because podman tears an argument with spaces apart.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection  # which asks no HTTP_PROXY

server = HTTPConnection("127.0.0.1", int(os.environ.get("PORT") or 8000), timeout=5)
server.request("GET", "/healthz")
sys.exit(server.getresponse().status != 200)
