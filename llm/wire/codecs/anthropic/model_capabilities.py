"""Capabilities of Claude models that the API does not report.

`GET /v1/models` reports capabilities and limits, but not which models refuse a forced
tool, sampling or a system message between the turns, and a request must be valid
without a lookup. A model is recognised by its name in any host's spelling
("anthropic/claude-haiku-4.5", "us.anthropic.claude-opus-5-5-v1:0"). An unknown Claude
model gets the strictest rules; a model that is no Claude gets those of the early
format.

Source: https://platform.claude.com/docs/en/about-claude/models/overview
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The parameters that one model takes."""

    thinking: frozenset[str] = frozenset()  # the legal values of `thinking.type`
    thinks: bool = False  # by default
    efforts: tuple[str, ...] = ()  # of `output_config.effort`, weakest first
    forced_tools: Literal["always", "unless_thinking", "never"] = "always"
    samples: bool = False  # takes temperature or top_p while it does not think
    system_messages: bool = False  # between the turns
    structured: bool = True  # can hold its answer to a JSON Schema
    max_output: int = 8192  # tokens

    def effort(self, wanted: str) -> str:
        """The valid effort nearest to `wanted`; "" if the model has no efforts."""
        if not self.efforts or wanted in self.efforts:
            return wanted if self.efforts else ""
        return self.efforts[0 if wanted in ("none", "minimal") else -1]


_ADAPTIVE = frozenset({"adaptive"})
_OPTIONAL = frozenset({"adaptive", "disabled"})
_BUDGET = frozenset({"enabled", "disabled"})

#: The fifth generation thinks by default.
_ALWAYS = Traits(
    thinking=_ADAPTIVE,
    thinks=True,
    efforts=("low", "medium", "high", "xhigh", "max"),
    system_messages=True,
    max_output=128_000,
)
_UNFORCED = replace(_ALWAYS, forced_tools="never")
_BY_DEFAULT = replace(_ALWAYS, thinking=_OPTIONAL)
_ON_REQUEST = replace(_BY_DEFAULT, thinks=False)
#: Earlier generations have a budget of tokens for thinking.
_BUDGETED = Traits(
    thinking=_BUDGET, forced_tools="unless_thinking", samples=True, max_output=64_000
)
_EARLY = Traits(samples=True, structured=False)
_UNKNOWN = replace(_UNFORCED, max_output=64_000)
_NO_CLAUDE = replace(_EARLY, thinking=_BUDGET)

_EXACTLY = r"(?!-?\d(?!\d))"  # "opus-5", possibly with a date, but not "opus-5-5"

#: By the name after "claude-"; the first match counts.
_MODELS: tuple[tuple[str, Traits], ...] = (
    (r"(fable|mythos)-5-[12]", _UNFORCED),
    (rf"(fable|mythos)-5{_EXACTLY}", _ALWAYS),
    (r"opus-5-5", _UNFORCED),
    (rf"opus-5{_EXACTLY}", _BY_DEFAULT),
    (r"sonnet-5-5", replace(_UNFORCED, thinking=_ADAPTIVE | {"between_tools"})),
    # It accepts a system message between the turns but ignores it.
    (rf"sonnet-5{_EXACTLY}", replace(_BY_DEFAULT, system_messages=False)),
    (r"haiku-5-5", _BY_DEFAULT),
    (r"opus-4-8", _ON_REQUEST),
    (r"opus-4-7", replace(_ON_REQUEST, system_messages=False)),
    (
        r"(opus|sonnet)-4-6",
        replace(
            _ON_REQUEST,
            efforts=("low", "medium", "high", "max"),
            samples=True,
            system_messages=False,
        ),
    ),
    (r"opus-4-5", replace(_BUDGETED, efforts=("low", "medium", "high"))),
    (r"(sonnet|haiku)-4-5", _BUDGETED),
    (r"opus-4-1", replace(_BUDGETED, max_output=32_000)),
    (
        rf"(opus|sonnet)-4(-0)?{_EXACTLY}|3-7",
        replace(_BUDGETED, structured=False, max_output=32_000),
    ),
    (r"3-5", _EARLY),
    (r"3|2|instant", replace(_EARLY, max_output=4096)),
)
_PATTERNS = tuple(
    (re.compile(rf"claude-(?:{pattern})(?!\d)"), traits) for pattern, traits in _MODELS
)


@lru_cache(maxsize=256)
def traits_of(model: str) -> Traits:
    name = model.lower().replace(".", "-")
    for pattern, traits in _PATTERNS:
        if pattern.search(name):
            return traits
    return _UNKNOWN if "claude" in name else _NO_CLAUDE
