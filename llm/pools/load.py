"""How busy each model is in this process, and how often it failed in a row.

`llm.generation.retries` counts; model pools (`llm.pools.choice`) choose by it. The keys
are primary keys of models, None for a model without a row. Event loops and threads may
both count: each change of a dictionary is one step of the interpreter, and a count that
is off by one for a moment moves a call to another host at worst.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

from llm.errors import InvalidKey, LLMError, QuotaExhausted, RateLimited, TryAgain
from llm.keys.audience import KeySource

FAILURES = 3  # in a row, after which a model cools down
MEMORY = 300.0  # seconds without a call after which failures are forgotten
_KEY_ERRORS = (InvalidKey, QuotaExhausted, RateLimited)
KEY_ERROR_CODES = tuple(kind.code for kind in _KEY_ERRORS)
PERSONAL_SOURCES: tuple[KeySource, ...] = ("own", "call")  # of keys


@dataclass(frozen=True, slots=True)
class Failures:
    count: int  # in a row
    last_at: float  # on the monotonic clock


#: Calls that are being answered.
running: defaultdict[int | None, int] = defaultdict(int)
#: Models whose last call failed.
failures: dict[int | None, Failures] = {}


def note_end(
    model_id: int | None, error: LLMError | None, key_source: KeySource = "shared"
) -> None:
    """Count the end of a call, with the error that ended it. The refusal of a key that
    one person brings says nothing about the calls of others."""
    if error is None:
        failures.pop(model_id, None)
    elif key_source in PERSONAL_SOURCES and isinstance(error, _KEY_ERRORS):
        return
    elif isinstance(error, TryAgain | InvalidKey | QuotaExhausted):
        before = failures.get(model_id)
        now = time.monotonic()
        is_recent = before is not None and now - before.last_at < MEMORY
        count = before.count + 1 if before and is_recent else 1
        failures[model_id] = Failures(count, now)


def is_cooling(model_id: int | None, cooldown: float) -> bool:
    """True for `cooldown` seconds after the last of three failures in a row."""
    found = failures.get(model_id)
    if found is None or found.count < FAILURES:
        return False
    return time.monotonic() - found.last_at < cooldown
