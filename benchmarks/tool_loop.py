"""CPU of a tool round: a model call, a Python tool, and back to the model.

Parley's loop beside pydantic-ai's and openai-agents', all streamed over Chat
Completions from the same local upstream, without a database, alternating in one run.
Parley does not require the peers: install them into a separate environment
(`pip install "pydantic-ai-slim[openai]" openai-agents`) and set `PEERS` to its Python.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from benchmarks import table
from benchmarks.processes import BASE, python
from tests.serving import free_port

FEW, MANY = 1, 9  # rounds a run; what they differ by is the cost of a round
RUNS, TURNS = 60, 3


def main() -> None:
    pythons = {"parley": sys.executable}
    if peers := os.environ.get("PEERS"):
        pythons |= {"pydantic_ai": peers, "openai_agents": peers}
    port = free_port()
    with python("benchmarks.upstream", port):
        base_url = f"http://127.0.0.1:{port}/v1"
        found = {loop: [] for loop in pythons}
        for _ in range(TURNS):
            for loop, executable in pythons.items():
                found[loop].append(_round(executable, loop, base_url))
    costs = {loop: statistics.median(values) for loop, values in found.items()}
    base = costs.get("pydantic_ai", 0)
    table.show(
        "CPU of a tool round, streamed, ms",
        ["loop", "ms", "of pydantic-ai's"],
        [[loop, ms, ms / base if base else None] for loop, ms in costs.items()],
    )
    if not peers:
        print("Peers were not measured: PEERS names no Python that has them.\n")


def _round(executable: str, loop: str, base_url: str) -> float:
    few, many = (_run(executable, loop, base_url, n) for n in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _run(executable: str, loop: str, base_url: str, rounds: int) -> float:
    command = [executable, "-m", "benchmarks.agent", loop, base_url]
    done = subprocess.run(
        [*command, str(rounds), str(RUNS)],
        cwd=BASE,
        check=True,
        stdout=subprocess.PIPE,
    )
    return float(json.loads(done.stdout)["ms"])
