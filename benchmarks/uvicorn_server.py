"""Serve the project with uvicorn for a benchmark: one process, no log.

python -m benchmarks.uvicorn_server PORT
"""

from __future__ import annotations

import sys

import uvicorn

if __name__ == "__main__":
    uvicorn.run(
        "project.asgi:application",
        port=int(sys.argv[1]),
        ws="project.server.direct_write:DirectWriteProtocol",
        ws_per_message_deflate=False,
        log_level="warning",
        proxy_headers=False,
    )
