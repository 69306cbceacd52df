"""The access log names no secret of an address, and one request is one line."""

from __future__ import annotations

import logging

import pytest
from django.http import HttpRequest
from django.urls import resolve

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


@pytest.mark.parametrize("cut", ["\n", "\r\n", "\x1b[2J", "\x85", "\u2028"])
def test_a_path_forges_no_line(cut: str):
    shown = hide_secrets(f"/é/{cut}2026-11-28 INFO forged")
    assert shown.startswith("/é/\\")
    assert shown.isprintable()
    assert len(shown.splitlines()) == 1
