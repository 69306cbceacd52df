"""Contexts: messages added before the input when a request is made.

A context is text, messages, or a function that returns them: the current time, the
user, search results. A function may be async; a synchronous one runs in a thread, where
Django's ORM is available.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from llm.concurrency.calling_thread import run_with_orm
from llm.generation.input_items import InputValue, Role, as_items
from llm.wire.items import Item

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """The request about to be made, as the argument of context functions."""

    model: str
    items: Sequence[Item]


Source = InputValue | Callable[[Question], InputValue | Awaitable[InputValue]]


@dataclass(frozen=True, slots=True)
class Context:
    """A source with its settings; a bare source has the defaults."""

    source: Source
    role: Role = "system"  # of text; messages have their own role
    optional: bool = False  # if its function fails, it is left out and logged


async def load_contexts(
    contexts: Iterable[Context | Source], question: Question
) -> list[Item]:
    """Load the messages of all contexts, in order.

    Raises any exception of a function whose context is not optional.
    """
    items: list[Item] = []
    for index, entry in enumerate(contexts):
        context = entry if isinstance(entry, Context) else Context(entry)
        try:
            value = await _load_source(context.source, question)
        except Exception as exc:  # an application function may raise anything
            if not context.optional:
                raise
            name = getattr(context.source, "__qualname__", "a context")
            logger.warning("left out %s: %s", name, type(exc).__name__)
            continue
        items += as_items(value, context.role, f"contexts[{index}]")
    return items


async def _load_source(source: Source, question: Question) -> InputValue:
    if not callable(source):
        return source
    if inspect.iscoroutinefunction(source):
        value: InputValue = await source(question)
        return value
    result = await run_with_orm(source, question)
    return await result if inspect.isawaitable(result) else result
