"""Formatter of log lines as JSON, with the ids of request, turn and trace.

A traceback has the types of the exceptions and the places in the code, without their
messages: these may quote a prompt or an answer.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from llm.telemetry import log_context, tracing
from tools.execute import format_trace


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := log_context.request_id.get():
            line["request"] = request_id
        if turn_id := log_context.turn_id.get():
            line["turn"] = turn_id
        if tracing.spans is not None:
            trace_id, span_id = tracing.spans.current_ids()
            if trace_id:
                line |= {"trace": trace_id, "span": span_id}
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = format_trace(record.exc_info[1])
        return json.dumps(line)
