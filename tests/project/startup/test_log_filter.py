"""What requests leave in the log."""

from __future__ import annotations

import logging
import sys

import httpx
import pytest
from django.db import InterfaceError, OperationalError

from project.startup.line_log import LineFormatter
from project.startup.log_filter import TracebackFilter
from tests.serving import ServerProcess


@pytest.mark.server
def test_a_request_that_makes_no_sense_is_a_line_and_no_traceback(
    server: ServerProcess,
):
    for host in ("elsewhere.example", "["):
        refused = httpx.get(server.url, headers={"Host": host})
        assert refused.status_code == 400
    form = b"--B\r\nX: " + b"x" * 2000 + b"\r\n\r\n\r\n--B--\r\n"
    headers = {
        "Content-Type": "multipart/form-data; boundary=B",
        "Cookie": f"csrftoken={32 * 'x'}",
    }
    refused = httpx.post(f"{server.url}/login/", content=form, headers=headers)
    assert refused.status_code == 400
    server.stop()
    assert [line.split()[3] for line in server.faults()] == [
        "django.security.DisallowedHost",
        "django.security.DisallowedHost",
        "django.request",
    ]


@pytest.mark.parametrize("kind", [InterfaceError, OperationalError])
def test_that_the_database_is_away_is_a_line_a_request(kind: type[Exception]):
    try:
        raise kind("a row that nobody should read") from TimeoutError()
    except kind:
        raised = sys.exc_info()
    record = logging.LogRecord(
        "django.request", logging.ERROR, "", 1, "%s: %s", ("Away", "/a/"), raised
    )
    record.status_code = 503
    assert TracebackFilter().filter(record)
    assert logging.Formatter().format(record) == "Away: /a/: TimeoutError"


PROMPT = "Key (text)=(a planted prompt) already exists"


def test_a_traceback_has_no_message_of_an_exception():
    try:
        raise ValueError(PROMPT)
    except ValueError:
        raised = sys.exc_info()
    record = logging.LogRecord("llm", logging.ERROR, "", 1, "A %s", ("fault",), raised)
    line = LineFormatter().format(record)
    assert "ERROR llm A fault\nTraceback" in line
    assert "ValueError" in line
    assert "test_log_filter.py" in line
    assert PROMPT not in line


@pytest.mark.parametrize(
    ("name", "status_code"),
    [("django.request", 503), ("django.request", 500), ("conversations", 400)],
)
def test_an_error_is_logged_with_its_traceback(name: str, status_code: int):
    try:
        raise RuntimeError
    except RuntimeError:
        raised = sys.exc_info()
    record = logging.LogRecord(name, logging.ERROR, "", 1, "A fault", (), raised)
    record.status_code = status_code
    assert TracebackFilter().filter(record)
    assert record.exc_info == raised
