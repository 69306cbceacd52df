"""Faults that may pass, and readings of an import by several processes."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from conversations.models import Conversation, ConversationImport
from conversations.transfer import (
    import_run,
    import_threads,
    imports,
)
from conversations.transfer.import_threads import BoundedThreads
from conversations.transfer.imports import accept, run_import
from tests.conversations.page_scene import ada, model

from .import_scene import age, imported, sample

__all__ = ["ada", "model"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("fault", [OperationalError, InterfaceError, OSError])
def test_a_fault_that_may_pass_lets_the_import_go_on_later(
    ada: Any, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    with monkeypatch.context() as patched:
        broken = Mock(side_effect=fault("database is locked"))
        patched.setattr(import_run, "write_source", broken)
        assert run_import(row.pk)
    row.refresh_from_db()
    assert (row.state, bool(row.file)) == ("running", True)
    age(row)
    assert imports.resume_imports() == 1
    row.refresh_from_db()
    assert (row.state, row.imported, row.skipped) == ("completed", 2, 1)


def test_an_import_that_never_gets_further_is_given_up(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    broken = Mock(side_effect=OperationalError("database is locked"))
    monkeypatch.setattr(import_run, "write_source", broken)
    for _ in range(imports.MAX_FRUITLESS + 1):
        assert run_import(row.pk)
        age(row)
    row.refresh_from_db()
    assert row.state == "failed"
    assert "Internal error" in row.error
    assert broken.call_count == imports.MAX_FRUITLESS
    assert not run_import(row.pk)


def test_a_reading_that_another_process_has_taken_over_writes_nothing_more(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    real = import_run.write_source

    def take_over(*args: Any) -> None:
        monkeypatch.setattr(import_run, "write_source", real)
        age(row)
        assert run_import(row.pk)  # the other process, to the end
        real(*args)

    monkeypatch.setattr(import_run, "write_source", take_over)
    assert run_import(row.pk)
    row.refresh_from_db()
    found = row.state, row.imported, row.repeated, row.skipped
    assert found == ("completed", 2, 0, 1)
    assert Conversation.objects.count() == 2


def test_an_import_is_not_taken_over_while_a_slow_storage_opens_its_file(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    renewed = threading.Event()
    others: list[bool] = []
    real = default_storage.open

    def open_slowly(*args: Any) -> Any:
        assert renewed.wait(30)
        return real(*args)

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if sql.startswith("UPDATE") and '"seen_at"' in sql and not others:
            others.append(True)
            age(row)
        elif sql.startswith("UPDATE") and '"seen_at"' in sql:
            renewed.set()
        return result

    monkeypatch.setattr(default_storage, "open", open_slowly)
    monkeypatch.setattr(import_run, "are_local", lambda: False)
    monkeypatch.setattr(import_run, "RENEWAL", 0.001)
    with connection.execute_wrapper(count):
        assert run_import(row.pk)
    row.refresh_from_db()
    assert (row.state, row.imported) == ("completed", 2)


def test_a_collision_takes_no_reason_out_of_the_report(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    """What was saved with the conversation is rolled back with it."""
    imported(ada, sample("claude"))
    strange = {"title": "Strange", "mapping": {}, "id": 7}
    data = json.dumps([strange, *json.loads(sample("claude"))])
    answers = iter([False])  # not yet
    monkeypatch.setattr(import_run, "is_present", lambda *key: next(answers, True))
    real = import_run.write_source

    def collide(names: Any, source: Any, key: str, note_written: Any) -> None:
        with transaction.atomic():
            note_written()
            real(names, source, key)

    monkeypatch.setattr(import_run, "write_source", collide)
    row = imported(ada, data)
    assert (row.imported, row.skipped) == (0, 1)
    assert [each["title"] for each in row.reasons] == ["Strange"]


def test_a_process_reads_few_imports_at_once():
    begun, gate, ended = (threading.Semaphore(0) for _ in range(3))
    busy, most = set[int](), list[int]()

    def work(key: int) -> None:
        busy.add(key)
        most.append(len(busy))
        begun.release()
        assert gate.acquire(timeout=30)
        busy.discard(key)
        ended.release()
        if key == 0:
            raise LookupError  # the others go on

    threads = BoundedThreads(3, work, "import")
    for key in range(10):
        threads.add(key)
    for _ in range(10):
        assert begun.acquire(timeout=30)
        gate.release()
    for _ in range(10):
        assert ended.acquire(timeout=30)
    assert max(most) <= 3
    assert len(most) == 10


def test_an_import_for_which_there_is_no_thread_is_accepted_and_resumed(
    ada: Any, monkeypatch: pytest.MonkeyPatch
):
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    with monkeypatch.context() as patched:
        patched.setattr(import_threads, "Thread", Mock(side_effect=RuntimeError))
        imports.start(row)
    long_ago = timezone.now() - timedelta(minutes=5)
    ConversationImport.objects.update(created_at=long_ago)
    assert imports.resume_imports() == 1


def test_a_thread_that_could_not_start_does_not_count(monkeypatch: pytest.MonkeyPatch):
    done: list[int] = []
    threads = BoundedThreads(1, done.append, "import")
    with monkeypatch.context() as patched:
        patched.setattr(import_threads, "Thread", Mock(side_effect=RuntimeError))
        with pytest.raises(RuntimeError):
            threads.add(1)
    ended = threading.Event()
    threads = BoundedThreads(1, lambda key: ended.set(), "import")
    threads.add(2)
    assert ended.wait(30)


@pytest.mark.parametrize("ahead", [timedelta(minutes=2), timedelta(days=1)])
def test_a_machine_whose_clock_is_ahead_takes_over_nothing(
    ada: Any, ahead: timedelta, monkeypatch: pytest.MonkeyPatch
):
    if connection.vendor != "postgresql":
        pytest.skip("with SQLite there is one process")
    row = accept(ada, ContentFile(sample("chatgpt"), name="a.json"))
    ConversationImport.objects.update(state="running", seen_at=timezone.now())
    now = timezone.now() + ahead
    monkeypatch.setattr(timezone, "now", lambda: now)
    assert imports.resume_imports() == 0
    assert not run_import(row.pk)
