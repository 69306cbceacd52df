"""First token, rate, CPU and memory of each API, beside a raw relay: `make bench`.

The rounds are interleaved, and the medians of three count. The load client and the
provider cost far less than what they measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from benchmarks.native.check import Target, running_targets
from benchmarks.native.programs import Programs
from benchmarks.processes import memory
from benchmarks.table import show

ROUNDS = 3
REQUESTS = 160  # of five chunks, to measure the rate
AT_ONCE = 16
#: A WebSocket is one conversation, which answers one message after another.
ONE_AT_A_TIME = {"turn over WebSocket"}
_SHORTEST = "mock-c5-d0"  # five chunks without a pause


@dataclass(frozen=True, slots=True)
class Result:
    first_token: float  # ms, median, one stream at a time
    rate: float  # answers a second
    chunk: float | None  # CPU seconds, of many streams at once
    answer: float  # CPU seconds, of five chunks
    memory: float  # MB


def main() -> None:
    with running_targets() as (programs, targets):
        for each in targets.values():  # imports, connects and fills caches
            each.load(programs, _SHORTEST, chunks=-1, streams=1, turns=20)
        rounds = [
            {name: _measure(programs, name, each) for name, each in targets.items()}
            for _ in range(ROUNDS)
        ]
    rows: dict[str, Callable[[Result], float | None]] = {
        "first token, ms": lambda each: each.first_token,
        "answers a second": lambda each: each.rate,
        "CPU of an answer of five chunks, ms": lambda each: 1e3 * each.answer,
        "CPU of a chunk, µs": lambda each: each.chunk and 1e6 * each.chunk,
        "resident memory, MB": lambda each: each.memory,
    }
    table = [
        [label, *(_median(map(read, _of(name, rounds))) for name in targets)]
        for label, read in rows.items()
    ]
    *_, chunks, _ = table
    ratios = [each and each / chunks[1] for each in chunks[1:]]
    table.append(["CPU of a chunk, in the relay's", *ratios])
    title = f"One process each; the rate with {AT_ONCE} at once, over WebSocket with 1"
    show(title, ["", *targets], table)


def _of(name: str, rounds: list[dict[str, Result]]) -> list[Result]:
    return [each[name] for each in rounds]


def _median(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


def _measure(programs: Programs, name: str, target: Target) -> Result:
    at_once = 1 if name in ONE_AT_A_TIME else AT_ONCE
    alone = target.load(programs, _SHORTEST, chunks=-1, streams=1, turns=40)
    busy = target.load(
        programs, _SHORTEST, chunks=-1, streams=at_once, turns=REQUESTS // at_once
    )
    answer = target.spend(programs, _SHORTEST, chunks=-1, streams=1, turns=50)
    chunk = None if at_once == 1 else target.costs(programs)[0]
    return Result(
        alone["ttft"]["p50"], busy["rps"], chunk, answer, memory(target.pid) / 1e6
    )
