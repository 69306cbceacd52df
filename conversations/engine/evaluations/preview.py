"""Answers of preview chats in the background, for staff; synchronous.

Each answer is made on a thread with an event loop and a connection of its own, so a
slow model holds up nothing but its chat. The chat's row has the answer so far, and
names the thread's job: a job that its row no longer names ends, so cancelling an answer
is a change of the row, from any process.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connections, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from conversations.engine.evaluations.trial import (
    Trial,
    TrialResult,
    load_trial,
    new_record,
    run_trial,
)
from conversations.engine.replays.replay_record import ReplayRecord
from conversations.models.preset import Preset
from conversations.models.staff.evaluation import PreviewChat
from conversations.models.staff.preset_content import Content
from llm.concurrency.job_thread import start_job
from llm.concurrency.sync_variant import make_sync
from llm.error_texts.for_staff import describe_error_and_status, describe_reason
from llm.errors import LLMError
from llm.models import ModelCall
from llm.wire.items import Item, output_text, user_message
from tools.execute import format_trace

logger = logging.getLogger(__name__)

PATIENCE = 240.0  # seconds
PROGRESS_INTERVAL = 1.0  # seconds between two looks at the row
MAX_RUNNING = 8  # answers at once, in all processes
MAX_CHAT = 1_000_000  # characters of a preview chat, as JSON
MAX_PARTIAL = 100_000  # characters shown of an answer that is being made
#: Items that the chat keeps; proofs of reasoning would not outlive a change of model.
_KEPT = ("message", "function_call", "function_call_output")


class PreviewRefused(Exception):
    """No answer can be begun; the message says why."""


@transaction.atomic
def start_preview(preset: Preset, content: Content, user: Any, text: str) -> None:
    """Begin the answer to `text`. Raises PreviewRefused, and LLMError where the content
    cannot run at all."""
    PreviewChat.objects.get_or_create(preset=preset, user=user)
    rows = PreviewChat.objects.select_for_update()
    chat = rows.get(preset=preset, user=user)
    if chat.is_running:
        raise PreviewRefused(_("An answer is being made; wait for its end or stop it."))
    if PreviewChat.objects.running().count() >= MAX_RUNNING:
        raise PreviewRefused(_("Other previews are running; wait for their end."))
    items = [*chat.items, user_message(text)]
    if len(json.dumps(items)) > MAX_CHAT:
        raise PreviewRefused(_("This chat is too long; begin a new one."))
    trial = load_trial(preset, content, user, items)
    chat.begin(job := uuid4().hex, text)
    run = partial(_run_on_thread, chat.pk, job, trial, items)
    transaction.on_commit(partial(start_job, run, f"preview-{job}"))


def _run_on_thread(pk: int, job: str, trial: Trial, items: Sequence[Item]) -> None:
    try:
        _answer(PreviewChat.objects.of_job(pk, job), trial, items)
    except DatabaseError as exc:
        # The page shows the answer as interrupted.
        logger.error("preview %s failed: %s", pk, type(exc).__name__)
    finally:
        connections.close_all()  # the thread ends, so nobody would close its own later


def _answer(rows: Any, trial: Trial, items: Sequence[Item]) -> None:
    """`rows` has the chat while it waits for this answer."""
    record = new_record(trial.route, trial.user_id, None)
    try:
        result = make_sync(_run)(trial, record, partial(_note_progress, rows, record))
    except LLMError as exc:
        result = TrialResult([], describe_error_and_status(exc)[:500])
    except Exception as exc:
        logger.error("a preview failed: %s", format_trace(exc))
        result = TrialResult([], _("Internal error; the log has the details."))
    finally:
        ModelCall.objects.record_all(record.rows)
    if result.error:
        rows.update(job="", error=describe_reason(result.error)[:500])
        return
    kept = [item for item in result.output if item["type"] in _KEPT]
    figures = {"model": trial.route.name, "tokens": record.tokens}
    cost = record.known_cost
    figures["cost"] = "" if cost is None else f"{cost:.6f}"
    ended = {"job": "", "question": "", "partial": "", "figures": figures}
    rows.update(items=[*items, *kept], **ended)


async def _run(
    trial: Trial, record: ReplayRecord, note_progress: Callable[[], bool]
) -> TrialResult:
    """Ends early when nobody waits for the answer. Raises LLMError."""
    note = sync_to_async(note_progress)
    answering = asyncio.create_task(run_trial(trial, record))
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await asyncio.wait([answering], timeout=PROGRESS_INTERVAL))[0]:
                if not await note():
                    return TrialResult([], _("Stopped."))
        return await answering
    except TimeoutError:
        return TrialResult([], _("It took too long."))
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


def _note_progress(rows: Any, record: ReplayRecord) -> bool:
    """False if the row no longer waits for this answer."""
    builder = record.builder
    text = output_text([*builder.output, *builder.partial()])
    text = text[:MAX_PARTIAL].replace("\0", "\ufffd")
    return bool(rows.update(partial=text, seen_at=timezone.now()))
