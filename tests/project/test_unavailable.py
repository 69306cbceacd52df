"""While the database is away, people get a sentence and programs an error object."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.test import RequestFactory

from project.unavailable import RETRY_AFTER, server_error

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
def test_programs_are_told_by_an_error_object(path: str, accept: str):
    told = answer(path, accept)
    assert told.status_code == 503
    assert told["Content-Type"] == "application/json"
    assert b'"code": "database_unavailable"' in told.content
    assert told["Retry-After"] == str(RETRY_AFTER)


def test_people_are_told_by_a_sentence():
    told = answer("/c/1/", PAGE)
    assert (told.status_code, told["Content-Type"]) == (503, "text/plain")
    assert told.content.startswith(b"The database cannot be reached")


@pytest.mark.parametrize(
    "exc", [OperationalError("no such table: x"), InterfaceError("x"), ValueError("x")]
)
def test_a_fault_of_ours_is_not_said_to_be_the_database_s(exc: Exception):
    assert answer("/api/models/", PAGE, exc).status_code == 500
