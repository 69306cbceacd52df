"""Compare what this tree costs with the committed figures: `make bench-check`.

Each figure is CPU, divided by what a raw relay spends on a chunk in the same round, so
that a slower machine changes it little. The rounds are interleaved, the medians of five
count, and a figure above `TOLERANCE` times its committed value fails. `--write` commits
new figures.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from django.conf import settings

from benchmarks.dataset import Dataset, make_dataset
from benchmarks.native.programs import (
    Programs,
    build,
    load,
    precise_cpu_seconds,
    provider,
)
from benchmarks.processes import python
from benchmarks.table import show
from tests.serving import ServerProcess, free_port

COMMITTED = Path(__file__).with_name("committed.json")
ROUNDS = 5
TOLERANCE = 1.5
STREAMS = 40
QUESTION = "Say something about the weather in Paris."
MODELS = ("mock-c5-d0", "mock-c10-d20", "mock-c200-d20")

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """An API of one process, as the load client addresses it."""

    pid: int
    port: int
    path: str
    body: Mapping[str, Any]  # without its model
    headers: Sequence[str] = ()
    options: Sequence[object] = ()

    def load(
        self, programs: Programs, model: str, *, chunks: int, streams: int, turns: int
    ) -> Mapping[str, Any]:
        """Answer `turns` requests on each of `streams` connections; see `load`."""
        return load(
            programs,
            self.port,
            self.path,
            {**self.body, "model": model},
            connections=streams,
            requests=streams * turns,
            chunks=chunks,
            headers=self.headers,
            options=self.options,
        )

    def spend(
        self, programs: Programs, model: str, *, chunks: int, streams: int, turns: int
    ) -> float:
        """CPU seconds of a stream."""
        begun = precise_cpu_seconds(self.pid)
        self.load(programs, model, chunks=chunks, streams=streams, turns=turns)
        return (precise_cpu_seconds(self.pid) - begun) / (streams * turns)

    def costs(self, programs: Programs) -> tuple[float, float]:
        """CPU seconds of a chunk, from the slope between short and long streams, and of
        a stream without its chunks."""
        spend = partial(self.spend, programs, streams=STREAMS)
        short = spend("mock-c10-d20", chunks=10, turns=2)
        long = spend("mock-c200-d20", chunks=200, turns=1)
        chunk = (long - short) / 190
        return chunk, short - 10 * chunk


def find_exceeded(committed: Figures, measured: Figures) -> list[str]:
    """What costs more than it may, or is in only one of the tables, in words."""
    found = [
        f"{name}: {measured[name]:.1f}, committed {committed[name]:.1f}"
        for name in committed
        if name in measured and measured[name] > TOLERANCE * committed[name]
    ]
    alone = sorted(committed.keys() ^ measured.keys())
    return [*found, *(f"{name}: in one table only" for name in alone)]


def main(arguments: Sequence[str] = ()) -> int:
    """The exit code: 1 if a figure exceeds its bound."""
    measured = measure()
    committed: Figures = json.loads(COMMITTED.read_text())["figures"]
    rows = [[name, committed.get(name), value] for name, value in measured.items()]
    show("CPU, in chunks of the relay", ["", "committed", "now"], rows)
    if "--write" in arguments:
        note = {"at": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[0])}
        rounded = {name: round(value, 1) for name, value in measured.items()}
        text = json.dumps({**note, "figures": rounded}, indent=2)
        COMMITTED.write_text(f"{text}\n")
        return 0
    exceeded = find_exceeded(committed, measured)
    print("\n".join(exceeded) or "Nothing costs more than 1.5 times what it did.")
    return 1 if exceeded else 0


def measure() -> Figures:
    with running_targets() as (programs, targets):
        rounds = [_measure_round(programs, targets) for _ in range(ROUNDS + 1)]
    counted = rounds[1:]  # the first one imports, connects and fills caches
    return {name: median(each[name] for each in counted) for name in counted[0]}


@contextmanager
def running_targets() -> Iterator[tuple[Programs, Mapping[str, Target]]]:
    """The built programs, and the APIs of a server, with a relay, over one provider."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        programs = build(folder)
        upstream, relay_port = free_port(), free_port()
        running.enter_context(provider(programs, upstream))
        relay = running.enter_context(
            python("benchmarks.byte_relay", relay_port, upstream)
        )
        server = ServerProcess(settings.DATA, {"ENABLE_DEMO": "false"}).start()
        running.callback(server.stop)
        served = _targets(server, make_dataset(upstream, 1, (), MODELS, ""))
        yield (
            programs,
            {"relay": Target(relay, relay_port, _CHAT, _chat_body()), **served},
        )


def _measure_round(programs: Programs, targets: Mapping[str, Target]) -> Figures:
    unit, _ = targets["relay"].costs(programs)
    figures: dict[str, float] = {}
    for name in ("gateway", "stored response"):
        chunk, stream = targets[name].costs(programs)
        figures[f"{name}: a chunk"] = chunk / unit
        figures[f"{name}: a stream without its chunks"] = stream / unit
    turn = targets["turn over WebSocket"]
    spent = turn.spend(programs, "mock-c5-d0", chunks=-1, streams=1, turns=50)
    figures["turn over WebSocket: 5 chunks"] = spent / unit
    return figures


_CHAT = "/v1/chat/completions"
_DELTAS = ("--match", "output_text.delta")  # the whole text follows once more


def _chat_body() -> Mapping[str, Any]:
    return {"stream": True, "messages": [{"role": "user", "content": QUESTION}]}


def _targets(server: ServerProcess, dataset: Dataset) -> dict[str, Target]:
    assert server.process
    pid, port = server.process.pid, server.port
    token = (f"Authorization: Bearer {dataset.token}",)
    response = {"stream": True, "input": QUESTION}
    socket = f"/ws/conversations/{dataset.conversations[0]}/"
    turn = {"type": "turn.create", "input": QUESTION}
    speaking = ("--ws", "--done", '"type":"response.completed"', *_DELTAS)
    cookie = (f"Cookie: {dataset.cookie}",)
    return {
        "gateway": Target(pid, port, _CHAT, _chat_body(), token),
        "stored response": Target(pid, port, "/v1/responses", response, token, _DELTAS),
        "turn over WebSocket": Target(pid, port, socket, turn, cookie, speaking),
    }


if __name__ == "__main__":
    sys.exit("Run it by `python -m benchmarks check`.")
