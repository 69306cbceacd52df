"""The schemas of what Open Responses answers: responses, items, events, compactions.

`openresponses.json` is an extract of the specification, unchanged; it names its source,
version and licence (Apache-2.0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

_FILE = Path(__file__).with_suffix(".json")

SCHEMAS: dict[str, Any] = orjson.loads(_FILE.read_bytes())["schemas"]
EVENTS = [name for name in SCHEMAS if name.endswith("StreamingEvent")]
