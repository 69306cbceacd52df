"""A background call whose row is locked delays no lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.db import connection, transaction

from conversations.engine import background_store
from conversations.engine.background_store import CallClaim
from conversations.models import Conversation, ToolCall, Turn
from llm.wire.items import user_message
from tools.execute import CallOutcome

pytestmark = [
    pytest.mark.skipif(not settings.IS_SCALED, reason="SQLite has one writer"),
    pytest.mark.django_db(transaction=True),
]
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '3s'"  # after which a wait is an error
WAITING = """
SELECT EXISTS (SELECT FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


def a_running_call(conversation: Conversation) -> CallClaim:
    call = ToolCall.objects.create(
        turn=conversation.open_turn([user_message("Hi")]).turn,
        call_id="c1",
        name="dig",
        state="executing",
        blocking=False,
    )
    claim = background_store.claim(call.pk)
    assert claim is not None
    return claim


def test_a_locked_call_is_renewed_later_and_is_not_lost(conversation: Conversation):
    claim = a_running_call(conversation)
    with elsewhere(lambda: ToolCall.objects.update(claims=1)):
        assert renew_at_once(claim, "half done") == ([], [])
    assert renew_at_once(claim, "done") == ([], [])
    assert ToolCall.objects.get().progress == "done"


def test_a_result_that_waits_for_a_turn_locks_no_call(conversation: Conversation):
    claim = a_running_call(conversation)
    outcome = CallOutcome("c1", "completed", "gold", "", 0.0)
    ended = threading.Thread(target=conclude, args=(claim, outcome))
    with transaction.atomic():
        Turn.objects.update(claims=1)
        ended.start()
        while ended.is_alive() and not is_anybody_waiting():
            ended.join(0.02)
        assert renew_at_once(claim, "half done") == ([], [])
        assert ToolCall.objects.get().progress == "half done"
    ended.join()
    assert ToolCall.objects.get().state == "completed"


def renew_at_once(
    claim: CallClaim, progress: str
) -> tuple[list[CallClaim], list[CallClaim]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LOCK_TIMEOUT)
        return background_store.renew({claim: progress})


@contextmanager
def elsewhere(write: Callable[[], object]) -> Iterator[None]:
    """Until the end of the block, a transaction has written this."""
    is_written, is_over = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with transaction.atomic():
                write()
                is_written.set()
                is_over.wait()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    is_written.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def conclude(claim: CallClaim, outcome: CallOutcome) -> None:
    try:
        background_store.conclude(claim, outcome)
    finally:
        connection.close()


def is_anybody_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(WAITING)
        return bool(cursor.fetchone()[0])
