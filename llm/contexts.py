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


Given = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]] | None
Source = Given | Callable[[Question], Given | Awaitable[Given]]


@dataclass(frozen=True, slots=True)
class Context:
    """A source with its settings; a bare source has the defaults."""

    source: Source
    role: Role = "system"  # of text; messages have their own role
    optional: bool = False  # if its function fails, it is left out and logged


async def gathered(
    contexts: Iterable[Context | Source], question: Question
) -> list[Item]:
    """Load the messages of all contexts, in order.

    Raises any exception of a function whose context is not optional.
    """
    items: list[Item] = []
    for given in contexts:
        context = given if isinstance(given, Context) else Context(given)
        try:
            found = await _found(context.source, question)
        except Exception as exc:  # an application function may raise anything
            if not context.optional:
                raise
            name = getattr(context.source, "__qualname__", "a context")
            logger.warning("left out %s: %s", name, type(exc).__name__)
            continue
        items += as_items(found, context.role)
    return items


def as_items(given: Given, role: Role = "user") -> list[Item]:
    """Convert text and messages, short forms included, to canonical items."""
    if given is None or given == "":
        return []
    if isinstance(given, str | Mapping):
        given = [given]
    return [_item(each, role) for each in given]


def _item(given: str | Mapping[str, Any], role: Role) -> Item:
    if isinstance(given, str):
        return message(role, given)
    item = dict(given)
    if item.setdefault("type", "message") == "message":
        content = item.get("content")
        if isinstance(content, str):
            return {**message(item["role"], content), **_without_content(item)}
    return item


def _without_content(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "content"}


async def _found(source: Source, question: Question) -> Given:
    if not callable(source):
        return source
    if inspect.iscoroutinefunction(source):
        given: Given = await source(question)
        return given
    found = await sync_to_async(source)(question)
    return await found if inspect.isawaitable(found) else found
