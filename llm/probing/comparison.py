"""One prompt put to several models at once, for staff to compare their answers.

Of it only the model calls are stored, without the texts. Synchronous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from threading import BoundedSemaphore

from django.utils.translation import gettext as _

from llm.concurrency.lent_thread import lend_thread
from llm.errors import LLMError
from llm.http import client
from llm.models import LanguageModel, ModelCall
from llm.pricing.caller import Caller
from llm.probing.jobs import route_to_probe
from llm.probing.tiny_request import Reply, ask
from llm.provider import Route
from llm.wire.items import user_message

MAX_MODELS = 6
MAX_RUNNING = 4  # comparisons at once in this process, each of which has a thread
TIME_LIMIT = 60.0  # seconds, because a person waits at the page

_free = BoundedSemaphore(MAX_RUNNING)


class ComparisonRefused(Exception):
    """Nothing was sent; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered, or why it did not; `call` is None if nothing was sent."""

    model: LanguageModel
    text: str = ""
    error: str = ""
    call: ModelCall | None = None


def compare_answers(
    models: Sequence[LanguageModel],
    prompt: str,
    *,
    max_output_tokens: int,
    caller: Caller,
) -> list[Answer]:
    """One answer for each model, in their order. Raises ComparisonRefused."""
    if not _free.acquire(blocking=False):
        raise ComparisonRefused(_("Other tests are running; wait for their end."))
    try:
        return _compare(models, prompt, max_output_tokens, caller)
    finally:
        _free.release()


def _compare(
    models: Sequence[LanguageModel],
    prompt: str,
    max_output_tokens: int,
    caller: Caller,
) -> list[Answer]:
    routes: dict[int, Route] = {}
    found: dict[int, Answer] = {}
    for model in models:
        try:
            routes[model.pk] = route_to_probe(model)
        except LLMError as exc:
            found[model.pk] = Answer(model, error=str(exc))
    # In a new event loop: closing its connections ends no other requests.
    with lend_thread():
        replies = asyncio.run(_ask_all([*routes.values()], prompt, max_output_tokens))
    by_pk = {model.pk: model for model in models}
    for pk, reply in zip(routes, replies, strict=True):
        found[pk] = _answer(by_pk[pk], reply, caller)
    return [found[model.pk] for model in models]


async def _ask_all(
    routes: Sequence[Route], prompt: str, max_output_tokens: int
) -> list[Reply]:
    items = [user_message(prompt)]
    try:
        asked = (
            ask(
                route,
                items,
                time_limit=TIME_LIMIT,
                max_output_tokens=min(
                    max_output_tokens, route.max_output_tokens or max_output_tokens
                ),
            )
            for route in routes
        )
        return list(await asyncio.gather(*asked))
    finally:
        await client.aclose()


def _answer(model: LanguageModel, reply: Reply, caller: Caller) -> Answer:
    error = str(reply.error) if reply.error else ""
    if not reply.call.started_at:  # no request was sent
        return Answer(model, error=error)
    reply.call.purpose = "test"
    row = ModelCall.objects.record(
        reply.call,
        reply.route,
        start=reply.builder.start_delta,
        usage=reply.builder.call_usage,
        finish=reply.builder.finish,
        cancelled=reply.is_stopped,
        caller=caller,
    )
    return Answer(model, reply.text, error, row)
