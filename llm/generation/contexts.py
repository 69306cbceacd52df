"""Contexts: messages added before the input when a request is made.

A context is text, messages, or a function that returns them: the current time, the
user, search results. A function may be async; a synchronous one runs in a thread, where
Django's ORM is available.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from asgiref.sync import sync_to_async

from llm.wire.items import Item, message

logger = logging.getLogger(__name__)

Role = Literal["system", "developer", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Question:
    """The request about to be made, as the argument of context functions."""

    model: str
    items: Sequence[Item]


ContextValue = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]] | None
Source = ContextValue | Callable[[Question], ContextValue | Awaitable[ContextValue]]


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
    for entry in contexts:
        context = entry if isinstance(entry, Context) else Context(entry)
        try:
            value = await _load_source(context.source, question)
        except Exception as exc:  # an application function may raise anything
            if not context.optional:
                raise
            name = getattr(context.source, "__qualname__", "a context")
            logger.warning("left out %s: %s", name, type(exc).__name__)
            continue
        items += as_items(value, context.role)
    return items


def as_items(value: ContextValue, role: Role = "user") -> list[Item]:
    """Convert text and messages, short forms included, to canonical items."""
    if value is None or value == "":
        return []
    if isinstance(value, str | Mapping):
        value = [value]
    return [_item(each, role) for each in value]


def _item(value: str | Mapping[str, Any], role: Role) -> Item:
    if isinstance(value, str):
        return message(role, value)
    item = dict(value)
    if item.setdefault("type", "message") == "message":
        content = item.get("content")
        if isinstance(content, str):
            return {**message(item["role"], content), **_without_content(item)}
    return item


def _without_content(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "content"}


async def _load_source(source: Source, question: Question) -> ContextValue:
    if not callable(source):
        return source
    if inspect.iscoroutinefunction(source):
        value: ContextValue = await source(question)
        return value
    result = await sync_to_async(source)(question)
    return await result if inspect.isawaitable(result) else result
