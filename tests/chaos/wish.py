"""What a message asks of the chaos provider: a scenario and how it is disturbed."""

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
    same: bool = False  # the same words each time it is asked
    words: int = 20  # of each text
    pace: float = 0.0  # seconds for a word
    work: int = (
        0  # milliseconds that a tool takes; below 0: until the wish's gate opens
    )
    size: int = 0  # characters of a word
    #: The provider holds its answer to this ask after so many percent of its frames,
    #: until the connection closes. By ask number.
    hold: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""
    fault_asks: int = 0  # the first so many asks meet the fault; 0: all of them

    def text(self) -> str:
        told = {name: value for name, value in asdict(self).items() if value}
        return f"chaos {json.dumps(told)}"


def wish_in(text: str) -> Wish | None:
    found = _WISH.search(text)
    return Wish(**json.loads(found[1])) if found else None
