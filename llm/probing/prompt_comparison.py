"""One prompt put to several models at once, for staff to compare their answers.

A thread with an event loop and connections of its own asks the models and writes the
answers so far into the row of the user who sent the prompt, so a slow host delays only
its test. A row that asks it to stop, or that no longer names it, ends it. The next
test of the same person replaces the texts. Synchronous.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import uuid4

from django.db import DatabaseError, connections, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from llm.concurrency.job_thread import start_job
from llm.error_texts.for_staff import describe_error, describe_error_and_status
from llm.errors import LLMError
from llm.generation.result import cost_of
from llm.http import client
from llm.http.client import ProviderCall
from llm.models import LanguageModel, ModelCall, PromptTest
from llm.models.prompt_test import PromptAnswer, PromptTestQuerySet
from llm.pricing.caller import Caller
from llm.probing.jobs import route_to_test
from llm.probing.tiny_request import Reply, ask, begin_reply
from llm.provider import Route
from llm.wire.deltas import UsageDelta
from llm.wire.items import output_text, user_message

MAX_MODELS = 6
MAX_RUNNING = 4  # tests at once, in all processes
TIME_LIMIT = 240.0  # seconds of an answer
PROGRESS_INTERVAL = 1.0  # seconds between two looks at the row
MAX_TEXT = 100_000  # characters of an answer that are stored
_BYTES_A_TOKEN = 1  # at least, of rare scripts: a budget must not be exceeded
_OVERHEAD = 50  # tokens around a prompt

logger = logging.getLogger(__name__)


class ComparisonRefused(Exception):
    """Nothing was sent; the message says why."""


@dataclass(slots=True)
class _Question:
    """A model that is asked; `task` makes the reply grow."""

    model: LanguageModel
    reply: Reply
    task: asyncio.Task[Reply] | None = None
    call: int | None = None
    fault: str = ""

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()

    def answer(self) -> PromptAnswer:
        builder = self.reply.builder
        text = output_text([*builder.output, *builder.partial()]).strip()
        error = self.reply.error
        return {
            "model": self.model.pk,
            "name": self.model.full_name,
            "text": text[:MAX_TEXT].replace("\0", "\ufffd"),
            "error": self.fault or (describe_error_and_status(error) if error else ""),
            "call": self.call,
            "is_over": self.is_over,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    rows: PromptTestQuerySet  # the row, while it waits for this job
    prompt: str
    max_output_tokens: int
    user_id: int
    #: In the order of the page; those that are not asked have their answer already.
    entries: list[_Question | PromptAnswer] = field(default_factory=list)

    @property
    def questions(self) -> list[_Question]:
        return [each for each in self.entries if isinstance(each, _Question)]

    def answers(self) -> list[PromptAnswer]:
        return [
            each.answer() if isinstance(each, _Question) else each
            for each in self.entries
        ]


@transaction.atomic
def start_comparison(
    models: Sequence[LanguageModel],
    prompt: str,
    *,
    max_output_tokens: int,
    budget: Decimal | None,
    user: Any,
) -> None:
    """Ask the models in the background. Raises ComparisonRefused.

    `budget`: USD that the answers may cost together at most. A model that might
    exceed what is left of it is not asked, nor is one whose price is unknown.
    """
    now = timezone.now()
    defaults = {"created_at": now, "seen_at": now}
    PromptTest.objects.get_or_create(user=user, defaults=defaults)
    row = PromptTest.objects.select_for_update().get(user=user)
    if row.is_running:
        text = _("Your last test is still running; wait for its end or stop it.")
        raise ComparisonRefused(text)
    if PromptTest.objects.running().count() >= MAX_RUNNING:
        raise ComparisonRefused(_("Other tests are running; wait for their end."))
    row.job = uuid4().hex
    comparison = _Comparison(
        rows=PromptTest.objects.of_job(row.pk, row.job),
        prompt=prompt,
        max_output_tokens=max_output_tokens,
        user_id=user.pk,
        entries=list(_prepare(models, prompt, max_output_tokens, budget)),
    )
    row.prompt, row.answers = prompt, comparison.answers()
    row.created_at = row.seen_at = now
    row.stop_requested = False
    name = f"test-{row.job}"
    if not comparison.questions:
        row.job = ""
    row.save()
    if row.job:
        run = partial(_run_on_thread, comparison)
        transaction.on_commit(partial(start_job, run, name))


def _prepare(
    models: Sequence[LanguageModel],
    prompt: str,
    max_output_tokens: int,
    budget: Decimal | None,
) -> list[_Question | PromptAnswer]:
    found: list[_Question | PromptAnswer] = []
    left = budget
    for model in models:
        try:
            route = route_to_test(model)
        except LLMError as exc:
            found.append(_unasked(model, describe_error(exc)))
            continue
        if left is not None:
            cost = _highest_cost(route, prompt, max_output_tokens)
            if cost is None:
                text = _("Not asked: its price is unknown, so no budget can hold.")
                found.append(_unasked(model, text))
                continue
            if cost > left:
                text = _("Not asked: it might cost $%(cost)s, and $%(left)s are left.")
                figures = {"cost": f"{cost:.6f}", "left": f"{left:.6f}"}
                found.append(_unasked(model, text % figures))
                continue
            left -= cost
        found.append(_Question(model, begin_reply(route, purpose="test")))
    return found


def _unasked(model: LanguageModel, error: str) -> PromptAnswer:
    return {
        "model": model.pk,
        "name": model.full_name,
        "text": "",
        "error": error,
        "call": None,
        "is_over": True,
    }


def _highest_cost(route: Route, prompt: str, max_output_tokens: int) -> Decimal | None:
    """USD; None if the price is unknown."""
    tokens = len(prompt.encode()) // _BYTES_A_TOKEN + _OVERHEAD
    plain = UsageDelta(tokens, max_output_tokens)
    cached = UsageDelta(tokens, max_output_tokens, cache_write_tokens=tokens)
    costs = [cost_of(ProviderCall(usage=usage), route) for usage in (plain, cached)]
    return max((cost for cost in costs if cost is not None), default=None)


# In the background


def _run_on_thread(comparison: _Comparison) -> None:
    try:
        _compare(comparison)
    except DatabaseError as exc:
        # The page shows the test as interrupted.
        logger.error("a test prompt failed: %s", type(exc).__name__)
    finally:
        connections.close_all()  # the thread ends, so nobody would close its own later


def _compare(comparison: _Comparison) -> None:
    with asyncio.Runner() as runner:
        runner.run(_begin(comparison))
        try:
            while not runner.run(_wait(comparison)):
                if not _note_progress(comparison):
                    break
        finally:
            runner.run(_end(comparison))
    _store(comparison)


async def _begin(comparison: _Comparison) -> None:
    items = [user_message(comparison.prompt)]
    wanted = comparison.max_output_tokens
    for each in comparison.questions:
        route = each.reply.route
        asking = ask(
            route,
            items,
            reply=each.reply,
            time_limit=TIME_LIMIT,
            silence=TIME_LIMIT,
            max_output_tokens=wanted,
        )
        each.task = asyncio.create_task(asking)


async def _wait(comparison: _Comparison) -> bool:
    """Wait a moment. True once all answers are there."""
    tasks = [each.task for each in comparison.questions if each.task is not None]
    _done, pending = await asyncio.wait(tasks, timeout=PROGRESS_INTERVAL)
    return not pending


def _note_progress(comparison: _Comparison) -> bool:
    """False if nobody waits for the answers any more."""
    waiting = comparison.rows.filter(stop_requested=False)
    return bool(waiting.update(answers=comparison.answers(), seen_at=timezone.now()))


async def _end(comparison: _Comparison) -> None:
    """Cancel what still runs, and close the connections of this event loop."""
    for each in comparison.questions:
        task = each.task
        if task is None:
            continue
        if not task.done():
            task.cancel()
            each.reply.is_stopped = True
            each.fault = _("Stopped.")
        [result] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(result, Exception):
            logger.error("a test prompt failed: %s", type(result).__name__)
            each.fault = _("Internal error; the log has the details.")
        if isinstance(result, BaseException):
            each.reply.builder.end_call(whole=False)
    await client.aclose()


def _store(comparison: _Comparison) -> None:
    caller = Caller(user_id=comparison.user_id)
    for each in comparison.questions:
        reply = each.reply
        if not reply.call.started_at:
            continue  # no request was sent
        row = ModelCall.objects.record(
            reply.call,
            reply.route,
            start=reply.builder.start_delta,
            usage=reply.builder.call_usage,
            finish=reply.builder.finish,
            cancelled=reply.is_stopped,
            caller=caller,
        )
        each.call = row.pk
    comparison.rows.update(answers=comparison.answers(), job="", seen_at=timezone.now())
