"""The access log names no secret of an address, and one request is one line."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
from django.http import HttpRequest
from django.test import Client
from django.urls import resolve
from django.utils.module_loading import import_string

from project.environment.log_settings import log_settings
from project.server.access_log import hide_secrets
from project.startup.log_filter import AddressTokenFilter

SECRET = "a-Secret:of_42"


@pytest.mark.parametrize(
    "path",
    [
        f"/shared/{SECRET}/",
        f"/shared/{SECRET}/files/file_1/",
        f"/api/callbacks/{SECRET}/",
        f"/account/password-reset/key/1f-{SECRET}/",
        f"/account/email/confirm/{SECRET}/",
        f"/keys/7/sign-in/{SECRET}/",
    ],
)
def test_addresses_that_are_secrets_are_in_no_line(path: str):
    assert SECRET not in hide_secrets(path)
    assert path.startswith(hide_secrets(path).partition("…")[0])
    request = HttpRequest()
    request.resolver_match = resolve(path)
    record = logging.LogRecord(
        "django.request", logging.WARNING, "", 1, "Not Found: %s", (path,), None
    )
    record.request = request
    AddressTokenFilter().filter(record)
    assert SECRET not in record.getMessage()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/account/email/confirm/{SECRET}/", 403),  # without the cookie for forms
        (f"/shared/{SECRET}/", 403),
        (f"/shared/{SECRET}/x/y/", 404),  # no address of ours
    ],
)
def test_requests_that_are_refused_leave_no_secret_in_the_log(path: str, status: int):
    written = StringIO()
    logging_settings = log_settings(level="INFO", format="line", audit_address=None)
    handler = logging.StreamHandler(written)
    for name in logging_settings["handlers"]["stderr"]["filters"]:
        kind = logging_settings["filters"][name]["()"]
        handler.addFilter(import_string(kind)())
    logger = logging.getLogger("django")
    logger.addHandler(handler)
    try:
        answer = Client(
            enforce_csrf_checks=True, headers={"referer": f"https://a.example{path}"}
        ).post(path, secure=True)
    finally:
        logger.removeHandler(handler)
    assert answer.status_code == status
    assert path.partition(SECRET)[0] in written.getvalue()
    assert SECRET not in written.getvalue()


@pytest.mark.parametrize("cut", ["\n", "\r\n", "\x1b[2J", "\x85", "\u2028"])
def test_a_path_forges_no_line(cut: str):
    shown = hide_secrets(f"/é/{cut}2026-11-28 INFO forged")
    assert shown.startswith("/é/\\")
    assert shown.isprintable()
    assert len(shown.splitlines()) == 1
