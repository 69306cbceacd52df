"""What Parley costs, measured on this machine: `python -m benchmarks [what]`.

`decode` reads synthetic streams in this process; `tool_loop` runs the tool loop beside
those of others; `turns` starts a server and talks to it over HTTP and WebSocket;
`gateway` asks one as programs do, beside a relay; `scaled` starts several, over
PostgreSQL and Redis; `search` looks for words in a million messages; `failing` counts
what clients notice of a provider that fails; `hostile` measures how long readers of
hostile input hold up the event loop; `memory` has twenty answers of 20 MB that
nobody reads. Times are compared only with their
neighbours in the table: both come from one run.
docs/performance.md tells what was found.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser


def main() -> None:
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
            "search",
            "failing",
            "hostile",
            "memory",
            "all",
        ],
    )
    what = parser.parse_args().what
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as data:
        os.environ |= {"PARLEY_DATA": data, "PARLEY_READ_DOTENV": "false"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        django.setup()
        from benchmarks import (
            decode,
            failing,
            gateway,
            hostile,
            memory,
            scaled,
            search,
            tool_loop,
            turns,
        )

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
        if what in ("search", "all"):
            search.main()
        if what in ("failing", "all"):
            failing.main()
        if what in ("hostile", "all"):
            hostile.main()
        if what in ("memory", "all"):
            memory.main()


if __name__ == "__main__":
    sys.exit(main())
