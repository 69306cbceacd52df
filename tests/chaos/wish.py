"""A message's instructions to the chaos provider: a scenario and its faults."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_WISH = re.compile(r"chaos (\{.*\})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """`id` is unique in a run and names the message in the ledger."""

    id: str
    scenario: str
    same: bool = False  # the same words for each request
    words: int = 20  # of each text
    pace: float = 0.0  # seconds for a word
    work: int = (
        0  # milliseconds that a tool takes; below 0: until the wish's gate opens
    )
    size: int = 0  # characters of a word
    #: After how many percent of its frames the provider holds its answer until the
    #: connection closes, by the number of the request.
    hold: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""
    fault_requests: int = 0  # so many of the first requests have the fault; 0: all

    def text(self) -> str:
        settings = {name: value for name, value in asdict(self).items() if value}
        return f"chaos {json.dumps(settings)}"


def wish_in(text: str) -> Wish | None:
    found = _WISH.search(text)
    return Wish(**json.loads(found[1])) if found else None
