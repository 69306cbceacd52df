"""Run Parley's benchmarks on this machine: `python -m benchmarks [name]`.

Compare figures only within one table, which comes from one run. docs/performance.md
has the results.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from importlib import import_module

#: By name: the module, its function, and what it measures.
BENCHMARKS = {
    "summary": ("native.summary", "main", "each API beside a raw relay, in short"),
    "decode": ("decode", "main", "decoding of synthetic and recorded streams"),
    "tool_loop": ("tool_loop", "main", "the tool loop beside other libraries'"),
    "gateway": ("gateway", "main", "the gateway beside a raw relay"),
    "turns": ("turns", "main", "a server over SSE and WebSocket"),
    "scaled": (
        "scaled.turn_costs",
        "main",
        "several processes over PostgreSQL and Redis",
    ),
    "search": ("search", "main", "searches of a million messages"),
    "failing": ("failing", "main", "errors that a failing provider's clients see"),
    "hostile": (
        "hostile_input.stalls",
        "main",
        "how long hostile input stalls the event loop",
    ),
    "memory": ("memory", "main", "memory of large answers"),
    "pages": ("pages.long_conversations", "main", "long conversations in a browser"),
    "admin_lists": ("admin.admin_lists", "main", "every list of the admin"),
    "usage": ("usage", "main", "reports of a million model calls"),
    "rotation": ("rotation", "main", "two hundred long conversations in turn"),
    "overload": ("overload", "main", "three times what a server can do"),
    "open_streams": (
        "scaled.open_streams",
        "main",
        "thousands of open streams over several processes",
    ),
    "gateway_processes": (
        "native.gateway_processes",
        "main",
        "the gateway over one process, and with `serve --workers`",
    ),
    "exchanges": (
        "scaled.turn_costs",
        "compare_exchanges",
        "Redis beside PostgreSQL alone",
    ),
}
NOT_IN_ALL = {"exchanges", "open_streams"}
CHECK = "check"
ALL = "all"


def main() -> int:
    arguments = _parse()
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as data:
        _set_up_django(data)
        if arguments.what == CHECK:
            from benchmarks.native import check

            return check.main(["--write"] if arguments.write else [])
        names = BENCHMARKS.keys() - NOT_IN_ALL
        names = names if arguments.what == ALL else {arguments.what}
        for run in _load(name for name in BENCHMARKS if name in names):
            run()
    return 0


def _parse() -> Namespace:
    lines = [f"  {name:12} {what}" for name, (_, _, what) in BENCHMARKS.items()]
    lines.append(f"  {CHECK:12} this tree's costs beside the committed figures")
    parser = ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(lines),
        formatter_class=RawDescriptionHelpFormatter,
    )
    choices = [*BENCHMARKS, CHECK, ALL]
    parser.add_argument("what", nargs="?", default=ALL, choices=choices)
    parser.add_argument("--write", action="store_true", help="commit figures (check)")
    return parser.parse_args()


def _set_up_django(data: str) -> None:
    """Before the benchmarks are imported: they import models."""
    os.environ |= {"PARLEY_DATA": data, "PARLEY_READ_DOTENV": "false"}
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    import django

    django.setup()


def _load(names: Iterable[str]) -> list[Callable[[], None]]:
    found = [BENCHMARKS[name] for name in names]
    return [
        getattr(import_module(f"benchmarks.{module}"), function)
        for module, function, _ in found
    ]


if __name__ == "__main__":
    sys.exit(main())
