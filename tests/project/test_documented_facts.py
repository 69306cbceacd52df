"""Numbers, addresses and names of the code that documents list for their readers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings
from django.urls import URLPattern

from conversations.access import sharing
from conversations.admin.actions import conversations as conversation_actions
from conversations.admin.actions import turns as turn_actions
from conversations.admin.policy import erasing
from conversations.api import account, keyset_pages, urls
from conversations.engine.maintenance import retention
from conversations.models import folder, saved_prompt
from conversations.transfer import imports
from project.accounts import service_words_validator as service_words
from tests.serving import BASE
from tools.hosted.declared_kinds import KINDS

_WORDS = {3: "three", 4: "four"}


def text_of(name: str) -> str:
    return " ".join((BASE / "docs" / name).read_text().split())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "chat.md",
            f"at most {folder.MAX_FOLDERS} folders, {folder.MAX_TAGS} tags,"
            f" {sharing.MAX_LINKS} links to share and {saved_prompt.MAX_COUNT} saved"
            f" prompts, and {_WORDS[imports.MAX_UNFINISHED]} imports",
        ),
        ("privacy.md", f"more than {erasing.MAX_TURNS:,} turns"),
        (
            "admin.md",
            f"| conversations, {conversation_actions.MAX_CHANGED:,} at most |",
        ),
        ("admin.md", f"export {conversation_actions.MAX_EXPORTED} as ZIP"),
        ("admin.md", f"release, {turn_actions.MAX_CHANGED} at most"),
        ("rest.md", f"the first {keyset_pages.WHOLE:,} rows"),
        ("webhooks.md", f"({keyset_pages.WHOLE:,} on a page)"),
        ("accounts.md", f"at least {_WORDS[service_words.SHORTEST_LABEL]} characters"),
        ("privacy.md", f"after {retention.SIGN_IN_DAYS} days |"),
        ("privacy.md", f"| {settings.DELETED_RETENTION_DAYS} days after they were"),
        ("privacy.md", f"REST | after {retention.IDEMPOTENCY_DAYS} days |"),
    ],
)
def test_a_number_is_that_of_the_code(name: str, words: str):
    assert words in text_of(name)


def test_every_address_that_refuses_tokens_is_named():
    paths = {
        f"/api/{re.split('[<]', str(each.pattern))[0]}"
        for each in urls.urlpatterns
        if isinstance(each, URLPattern) and _is_for_browsers(each)
    }
    assert len(paths) == 5
    section = text_of("tokens.md").split("### For a browser alone")[1].split("## ")[0]
    assert all(f"`{path}`" in section for path in paths)


def _is_for_browsers(each: URLPattern) -> bool:
    view: Any = getattr(each.callback, "view_class", None)
    return isinstance(view, type) and issubclass(view, account.BrowserView)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_type_of_a_declared_tool_is_in_its_row(kind: Any):
    document = (BASE / "docs" / "hosted-tools.md").read_text()
    [row] = re.findall(rf"^\| `{kind.name}` \| (.*) \| \w+ \|$", document, re.MULTILINE)
    for each in kind.types:
        assert f"`{each}`" in row or f"`{each}_" in row


def test_every_migration_that_gives_rights_is_named():
    folder_of_steps = BASE / "conversations" / "migrations"
    given = {
        path.name[:4]
        for path in folder_of_steps.glob("0[0-9]*.py")
        if "_rights import add_" in path.read_text() and "squashed" not in path.name
    }
    named = set(
        re.findall(r"^\| (\d{4}) \|", (BASE / "docs/rights.md").read_text(), re.M)
    )
    assert given == named != set()
