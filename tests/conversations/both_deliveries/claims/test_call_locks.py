"""Locks of calls and turns: none delays a lease, and none waits for another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from django.conf import settings
from django.db import connection, transaction

from conversations.engine import background_store, claim_store, turn_store
from conversations.engine.background_store import CallClaim
from conversations.engine.progress_store import TurnProgress
from conversations.models import Conversation, ToolCall, Turn
from conversations.turns import waiting_messages
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
    conclude = closing_connection(background_store.conclude)
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


def test_two_branches_that_absorb_messages_at_once_wait_in_one_order(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    absorb, both = waiting_messages.absorb, threading.Barrier(2, timeout=1)

    def absorb_together(turn_ids: Sequence[str], into: str) -> None:
        with suppress(threading.BrokenBarrierError):  # the other waits for a lock
            both.wait()
        absorb(turn_ids, into)

    monkeypatch.setattr(waiting_messages, "absorb", absorb_together)
    root = conversation.open_turn([user_message("Hi")]).turn
    Turn.objects.update(status=Turn.Status.COMPLETED)
    branches = [
        Turn.objects.create(
            conversation=conversation, parent=root, status=Turn.Status.QUEUED
        )
        for _ in range(2)
    ]
    claims = [claim_store.claim(turn.pk) for turn in branches]
    messages = [
        Turn.objects.create(
            conversation=conversation,
            parent=turn,
            status=Turn.Status.QUEUED,
            steering=Turn.Steering.TAKEN,
        )
        for turn in branches
    ]
    runs = [
        threading.Thread(
            target=closing_connection(turn_store.advance),
            args=(claim, TurnProgress(absorbed=[message.pk])),
        )
        for claim, message in zip(claims, messages, strict=True)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert not Turn.objects.filter(pk__in=[each.pk for each in messages]).exists()


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


def closing_connection(write: Callable[..., object]) -> Callable[..., None]:
    def run(*values: object) -> None:
        try:
            write(*values)
        finally:
            connection.close()

    return run


def is_anybody_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(WAITING)
        return bool(cursor.fetchone()[0])
