"""While the database is away, people get a page and programs an error object."""

from __future__ import annotations

import errno
import html
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.test import RequestFactory

from conversations.turns.file_storage import FilesUnavailable
from project.exception_handler import RETRY_AFTER, server_error

PAGE, PROGRAM = "text/html,*/*;q=0.8", "application/json"
LOCKED = OperationalError("database is locked")


def answer(path: str, accept: str, exc: Exception = LOCKED) -> Any:
    try:
        raise exc
    except type(exc):
        return server_error(RequestFactory().get(path, headers={"accept": accept}))


@pytest.mark.parametrize(
    ("path", "accept"),
    [("/api/models/", PAGE), ("/api/models/", PROGRAM), ("/c/1/", "")],
)
def test_programs_receive_an_error_object(path: str, accept: str):
    response = answer(path, accept)
    assert response.status_code == 503
    assert response["Content-Type"] == "application/json"
    assert b'"code": "database_unavailable"' in response.content
    assert response["Retry-After"] == str(RETRY_AFTER)


@pytest.mark.parametrize(
    ("exc", "status", "text"),
    [
        (LOCKED, 503, "The database cannot be reached; nothing was lost."),
        (FilesUnavailable(), 503, "Stored files cannot be reached; nothing was lost."),
        (OSError(errno.EDQUOT, "x"), 507, "storage is full; nothing was saved."),
    ],
)
def test_people_receive_a_page(exc: Exception, status: int, text: str):
    """It asks no database: this test may not."""
    response = answer("/c/1/", PAGE, exc)
    assert response.status_code == status
    assert response["Content-Type"].startswith("text/html")
    assert "Retry-After" in response
    assert text in html.unescape(response.content.decode())


@pytest.mark.parametrize(
    "exc", [OperationalError("no such table: x"), InterfaceError("x"), ValueError("x")]
)
def test_a_bug_is_not_reported_as_a_database_error(exc: Exception):
    assert answer("/api/models/", PAGE, exc).status_code == 500
