"""What the long conversations of the benchmark say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice

PROSE = """### How it works

The **queue** holds what waits, and `claim()` takes the oldest of it; see
[the guide](https://example.com/guide) for the details of each state.

1. It reads the row and increments its epoch.
2. It runs, and renews its lease each second.
   - Where the lease expires, another process takes over.

| State | Meaning | Next |
|---|---|---|
| queued | waits for a process | running |
| running | has a lease | done |

> A cost of $O(n \\log n)$ is what the index takes.

"""
CODE = """def fetch(address, *, seconds=5.0):
    '''Return what the address has, as text.'''
    answer = client.get(address, timeout=seconds)  # raises on failure
    if answer.status_code == 404:
        raise NotFound(f"nothing at {address!r}")
    return [line.strip() for line in answer.text.splitlines() if line]


"""


def prose(lines: int) -> str:
    return _lines(PROSE, lines)


def block(lines: int) -> str:
    return f"```python\n{_lines(CODE, lines)}```\n"


def blocks(lines: int) -> str:
    return _lines(f"{PROSE}```python\n{CODE * 5}```\n\n", lines)


def formulas(count: int) -> str:
    one = r"Thus $\sum_{i=1}^{n} \frac{x_i^2}{2\pi} \le \int_0^1 f(t)\,dt$ holds."
    return "\n\n".join([one] * count)


def _lines(text: str, count: int) -> str:
    return "".join(islice(cycle(text.splitlines(keepends=True)), count))


STREAMS: dict[str, Callable[[int], str]] = {
    "prose": prose,
    "one block of code": block,
    "prose and code": blocks,
}
