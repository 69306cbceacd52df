"""What the conformance tool starts: it hands the scenario to a client that runs.

The tool starts a program for each of its scenarios, and ours takes seconds to load. So
`conformance_client.py` is loaded once and forks for each; this only waits for its end.
"""

from __future__ import annotations

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    known = {k: v for k, v in os.environ.items() if k.startswith("MCP_CONFORMANCE_")}
    line.sendall(
        json.dumps({"url": sys.argv[2], "environment": known}).encode() + b"\n"
    )
    with line.makefile() as answer:
        output = answer.read()
failed, _, text = output.partition("\n")
print(text)
sys.exit(failed != "0")
