"""Retry policies: when a call is repeated and when a fallback model is used. No IO.

Staff set the policy in a model's options:

    {"retry": {"attempts": 5, "on": ["E_LLM_RATE_LIMIT", "E_LLM_PROVIDER_DOWN"]}}

Without it a model is called up to three times. A tool call that the model wrote wrongly
is asked for once more, without a wait, if `attempts` allow it. The fallback models are
the model's own list; without a list there is no fallback.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from llm import errors
from llm.errors import LLMError

MAX_ATTEMPTS = 10
MAX_WAIT = 600  # seconds
#: Transient errors.
TRANSIENT_CODES = frozenset(
    {
        errors.RateLimited.code,
        errors.ProviderDown.code,
        errors.ProviderTimeout.code,
    }
)
#: Errors that are retried by default. A request that timed out may still run at the
#: provider, and cost money.
RETRIED_CODES = TRANSIENT_CODES - {errors.ProviderTimeout.code}
#: Errors that another model or account may not have.
FALLBACK_CODES = TRANSIENT_CODES | {
    errors.BadResponse.code,
    errors.InvalidKey.code,
    errors.ModelNotAvailable.code,
    errors.QuotaExhausted.code,
}
#: All codes that staff may name.
CODES = FALLBACK_CODES | {
    errors.BadRequest.code,
    errors.ContentPolicy.code,
    errors.ContextTooLarge.code,
}


#: Codes of Gemini and Groq for tool calls that the model wrote wrongly.
_GENERATION_FAULTS = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
        "tool_use_failed",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The defaults fall back only if the model has fallbacks."""

    attempts: int = 3  # calls of one model, the first included; 1: no retries
    on: frozenset[str] = RETRIED_CODES  # codes of the errors that are retried
    fall_back_on: frozenset[str] = FALLBACK_CODES
    delay: float = 0.5  # seconds, doubled with each attempt
    max_delay: float = 20.0  # seconds
    # Seconds; a call that must wait longer is not retried.
    max_retry_after: float = 30.0

    @classmethod
    def read(cls, value: Any) -> Self:
        """The policy in `options["retry"]`; the default policy for None.

        Raises ValueError with a sentence for staff.
        """
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            raise ValueError('"retry" must be an object, such as {"attempts": 3}.')
        known = [field.name for field in fields(cls)]
        for name in value:
            if name not in known:
                raise ValueError(
                    f'"retry" has no {name!r}; there are {", ".join(known)}.'
                )
        return cls(**{name: _READERS[name](name, value[name]) for name in value})

    def wait(
        self,
        attempt: int,
        error: LLMError,
        *,
        chance: Callable[[], float] = random.random,
    ) -> float | None:
        """Seconds to wait after `attempt` before the next one; None to stop.

        Full jitter: a random part of the delay, so that calls that failed together do
        not come back together. The time in `Retry-After` is added.
        """
        if attempt >= self.attempts or error.code not in self.on:
            return None
        retry_after = error.retry_after or 0.0
        if retry_after > self.max_retry_after:
            return None
        longest = min(self.delay * 2.0 ** (attempt - 1), self.max_delay)
        return retry_after + chance() * longest


def is_generation_fault(error: LLMError) -> bool:
    """Whether the model wrote a tool call that cannot be read: it may do better the
    next time."""
    return (
        isinstance(error, errors.BadResponse)
        and error.upstream_code in _GENERATION_FAULTS
    )


def _attempts(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_ATTEMPTS:
        raise ValueError(f'"{name}" must be a whole number from 1 to {MAX_ATTEMPTS}.')
    return value


def _codes(name: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
        raise ValueError(f'"{name}" must be a list of error codes.')
    if unknown := sorted(set(value) - CODES):
        raise ValueError(
            f'"{name}" has no {unknown[0]!r}; there are {", ".join(sorted(CODES))}.'
        )
    return frozenset(value)


def _seconds(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= MAX_WAIT:
        raise ValueError(f'"{name}" must be seconds, from 0 to {MAX_WAIT}.')
    return float(value)


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "attempts": _attempts,
    "on": _codes,
    "fall_back_on": _codes,
    "delay": _seconds,
    "max_delay": _seconds,
    "max_retry_after": _seconds,
}


DEFAULT_POLICY = Policy()  # shared by all calls of models without a policy
