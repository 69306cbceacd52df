"""Run Parley's benchmarks on this machine: `python -m benchmarks [name]`.

`decode` decodes synthetic streams; `tool_loop` compares the tool loop with those of
other libraries; `turns` measures a server over SSE and WebSocket; `gateway` measures
the gateway beside a raw relay; `scaled` measures several processes over PostgreSQL and
Redis, `exchanges` compares that with PostgreSQL alone; `search` searches a million
messages; `failing` counts the errors that clients
of a failing provider see; `hostile` measures how long hostile input stalls the event
loop; `memory` measures the memory of large answers; `pages` measures long conversations
in a browser; `admin_lists` measures every list of the admin; `usage` reports of a
million model calls; `rotation` continues two hundred long conversations in turn;
`overload` offers three times what a server can do; `check` compares what this tree
costs with committed figures.
Compare figures only within one table, which comes from one run.
docs/performance.md has the results.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        default="all",
        choices=[
            "decode",
            "tool_loop",
            "gateway",
            "turns",
            "scaled",
            "exchanges",
            "search",
            "failing",
            "hostile",
            "memory",
            "pages",
            "admin_lists",
            "usage",
            "rotation",
            "overload",
            "check",
            "all",
        ],
    )
    parser.add_argument("--write", action="store_true", help="commit figures (check)")
    parsed = parser.parse_args()
    what = parsed.what
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as data:
        os.environ |= {"PARLEY_DATA": data, "PARLEY_READ_DOTENV": "false"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        django.setup()
        from benchmarks import (
            admin_lists,
            decode,
            failing,
            gateway,
            hostile,
            memory,
            overload,
            pages,
            rotation,
            scaled,
            search,
            tool_loop,
            turns,
            usage,
        )
        from benchmarks.native import check

        if what == "check":
            return check.main(["--write"] if parsed.write else [])
        if what in ("decode", "all"):
            decode.main()
        if what in ("tool_loop", "all"):
            tool_loop.main()
        if what in ("gateway", "all"):
            gateway.main()
        if what in ("turns", "all"):
            turns.main()
        if what in ("scaled", "all"):
            scaled.main()
        if what == "exchanges":
            scaled.compare_exchanges()
        if what in ("search", "all"):
            search.main()
        if what in ("failing", "all"):
            failing.main()
        if what in ("hostile", "all"):
            hostile.main()
        if what in ("memory", "all"):
            memory.main()
        if what in ("pages", "all"):
            pages.main()
        if what in ("admin_lists", "all"):
            admin_lists.main()
        if what in ("usage", "all"):
            usage.main()
        if what in ("rotation", "all"):
            rotation.main()
        if what in ("overload", "all"):
            overload.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
