"""Rows of which a user may have a few, begun by two requests at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.db import connection, transaction

from conversations.access import sharing
from conversations.access.sharing import create_link
from conversations.models import Conversation, ConversationImport, ShareLink
from conversations.transfer import imports
from conversations.transfer.imports import ImportRefused, accept
from tests.conversations.both_deliveries.test_restorations import is_anybody_waiting
from tests.conversations.scene import a_finished_turn, a_user

pytestmark = [
    pytest.mark.skipif(not django_settings.IS_SCALED, reason="SQLite has one writer"),
    pytest.mark.django_db(transaction=True),
]


def refused_while_another_begins(begin: Callable[[], Any]) -> list[Exception]:
    """What the second one raises, if the first is not committed when it begins."""
    errors: list[Exception] = []

    def begin_second() -> None:
        try:
            begin()
        except (ImportRefused, ValidationError) as exc:
            errors.append(exc)
        finally:
            connection.close()

    second = threading.Thread(target=begin_second)
    with transaction.atomic():
        begin()
        second.start()
        while second.is_alive() and not is_anybody_waiting():
            second.join(0.02)
    second.join()
    return errors


def test_imports(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings.MEDIA_ROOT = tmp_path
    monkeypatch.setattr(imports, "MAX_UNFINISHED", 1)
    ada = a_user("ada")

    errors = refused_while_another_begins(
        lambda: accept(ada, ContentFile(b"[]", name="a.json"))
    )

    assert [type(each) for each in errors] == [ImportRefused]
    row = ConversationImport.objects.get()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [Path(row.file.path)]


def test_links(settings: Any, monkeypatch: pytest.MonkeyPatch):
    settings.SHARE_LINKS = "public"
    monkeypatch.setattr(sharing, "MAX_LINKS", 1)
    ada = a_user("ada")
    chat = Conversation.objects.create(owner=ada)
    a_finished_turn(chat)
    fields = {"audience": "public", "kind": "snapshot"}

    errors = refused_while_another_begins(lambda: create_link(chat, ada, fields))

    assert [type(each) for each in errors] == [ValidationError]
    assert ShareLink.objects.count() == 1
