from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from conversations.engine.database.executor import Database
from llm.telemetry import log_context
from project.startup.json_log import JsonFormatter

PROMPT = "a planted prompt"


def written(message: str, *args: object, error: Exception | None = None) -> Any:
    exc_info = (type(error), error, None) if error else None
    record = logging.LogRecord(
        "llm.test", logging.WARNING, "f.py", 1, message, args, exc_info
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert line.isascii()
    return json.loads(line)


@pytest.mark.parametrize(
    "text", ['quotes " and \\', "two\nlines\u2028", "\x00\x1b[31m", "\ud800", "模型"]
)
def test_any_message_is_one_line(text: str):
    line = written("said %s", text)
    assert line["message"] == f"said {text}"
    assert (line["level"], line["logger"]) == ("WARNING", "llm.test")
    assert line["time"].endswith("+00:00")
    assert not line.keys() & {"request", "turn", "trace", "exception"}


def test_an_exception_is_shown_without_its_message():
    try:
        raise ValueError(PROMPT)
    except ValueError:
        error = sys.exc_info()[1]
    assert isinstance(error, ValueError)
    line = written("it failed", error=error)
    assert line["exception"].startswith("ValueError\n")
    assert "test_json_log.py" in line["exception"]
    assert PROMPT not in json.dumps(line)


async def test_lines_of_the_databases_threads_have_the_ids_of_their_turn():
    log_context.request_id.set("req_1")
    log_context.turn_id.set("resp_1")
    database = Database()
    for call in (database.read, database.write, database.beat):
        line = await call(written, "it took long")
        assert (line["request"], line["turn"]) == ("req_1", "resp_1")
    await database.close()
