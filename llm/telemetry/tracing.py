"""Whether this process makes traces. It loads no library of OpenTelemetry.

Code that a trace passes through asks `tracing.spans is not None` first: without traces
that is all it costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llm.telemetry.spans import Spans

spans: Spans | None = None
