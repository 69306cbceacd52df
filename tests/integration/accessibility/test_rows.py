"""Each page that a person opens is one of those that axe-core looks at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import Resolver404, URLPattern, URLResolver, resolve, reverse
from django.urls.converters import IntConverter

from conversations.urls import urlpatterns
from tests.integration.accessibility.rows import stored_pages

pytestmark = pytest.mark.django_db

#: What is no page of its own: parts of pages, files, and steps that lead elsewhere.
PARTS = {"background", "context-gauge", "conversation-list", "limits-left"}
PARTS |= {"queue", "text", "turn", "mermaid-frame"}
FILES = {"artifact-content", "artifact-download", "export-all", "export-download"}
FILES |= {"manifest", "script-texts", "service-worker", "shared-file", "usage-csv"}
STEPS = {"end-key-sign-in", "question-sign-in", "sign-in-at-server"}
STEPS |= {"signed-in-at-server", "password-changed"}
#: Plain lists of facts, which show what a program has sent.
OTHERS = {"request-log", "logged-request"}


def _addresses(
    patterns: Sequence[URLPattern | URLResolver], converters: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Names and addresses, of rows that do not exist."""
    for each in patterns:
        found = {**converters, **each.pattern.converters}
        if isinstance(each, URLResolver):
            yield from _addresses(each.url_patterns, found)
        elif each.name:
            arguments = {
                key: 0 if isinstance(converter, IntConverter) else "none"
                for key, converter in found.items()
            }
            yield each.name, reverse(each.name, kwargs=arguments)


def test_no_page_is_without_a_row(client: Client, settings: Any):
    settings.SHARE_LINKS = "public"
    user = User.objects.create_superuser("admin", password="x")
    shown = set()
    for path in stored_pages().values():
        try:
            shown.add(resolve(re.split(r"[?#]", path)[0]).url_name)
        except Resolver404:
            continue  # the page that says so
    client.force_login(user)
    parts = PARTS | FILES | STEPS | OTHERS
    pages = {
        name
        for name, address in _addresses(urlpatterns, {})
        if name not in parts and client.get(address).status_code != 405
    }
    assert pages - shown == set()
