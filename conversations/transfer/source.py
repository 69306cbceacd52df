"""Conversations of other programs in one shape: a tree of messages. Pure.

A reader of one format (`conversations.transfer.sources`) makes a `SourceConversation`
of a parsed object; `to_turns` makes turns of its messages. A turn is a message of the
user and the answers to it, up to the next message of the user. Where answers branch,
the turn is repeated for each branch, as Parley does it for regenerated answers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from llm.wire.sanitize import sanitize_text

MAX_MESSAGES = 50_000  # of one conversation, repeated ones included
MAX_TEXT = 8_000_000  # characters of one message
TITLE_LENGTH = 200  # characters
_LATER = timedelta(microseconds=1)
_CLOCK_ERROR = timedelta(days=1)  # that another program's times may be ahead


class Unreadable(Exception):
    """The object is no conversation of its format; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMessage:
    id: str
    parent: str | None  # id
    role: str  # "user" or "assistant"
    text: str
    at: datetime | None = None
    model: str = ""


@dataclass(slots=True, kw_only=True)
class SourceConversation:
    program: str
    id: str
    title: str
    messages: list[SourceMessage]
    current: str = ""  # id of the message at which the user was last
    at: datetime | None = None
    changed_at: datetime | None = None
    model: str = ""
    is_archived: bool = False
    is_pinned: bool = False
    tags: list[str] = field(default_factory=list)
    #: Numbers of parts that were left out, by reason.
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class SourceTurn:
    parent: int | None  # its number in the list of turns
    messages: list[SourceMessage]
    at: datetime
    model: str


def to_turns(conversation: SourceConversation) -> list[SourceTurn]:
    """The turns by time, each after its parent; the last one ends at `current`.

    Raises Unreadable.
    """
    children = _children(conversation)
    drafts: list[_Draft] = []
    pending: list[tuple[SourceMessage, _Draft | None]] = [
        (root, None) for root in reversed(children[None])
    ]
    reached = repeated = 0
    while pending:
        message, before = pending.pop()
        reached += 1
        draft = _continue(message, before, len(children[message.parent]) == 1)
        repeated += len(draft.messages) if draft is not before else 1
        if max(reached, repeated) > MAX_MESSAGES:
            words = _("It has more than %(count)s messages.")
            raise Unreadable(
                words % {"count": number_format(MAX_MESSAGES, force_grouping=True)}
            )
        rest = children[message.id]
        if not rest or any(each.role == "user" for each in rest):
            drafts.append(draft)
        pending += [(each, draft) for each in reversed(rest)]
    if lost := len(conversation.messages) - reached:
        conversation.left_out["messages without a beginning"] += lost
    if not drafts:
        raise Unreadable(_("It has no messages with text."))
    return _in_order(drafts, conversation)


@dataclass(slots=True, eq=False)
class _Draft:
    messages: list[SourceMessage]
    parent: _Draft | None

    def time(self) -> datetime | None:
        return next((each.at for each in self.messages if each.at), None)


def _children(
    conversation: SourceConversation,
) -> defaultdict[str | None, list[SourceMessage]]:
    known = {message.id for message in conversation.messages}
    if len(known) < len(conversation.messages):
        raise Unreadable(_("Two of its messages have the same id."))
    children: defaultdict[str | None, list[SourceMessage]] = defaultdict(list)
    for message in conversation.messages:
        parent = message.parent if message.parent in known else None
        children[parent].append(message)
    return children


def _continue(message: SourceMessage, before: _Draft | None, is_only: bool) -> _Draft:
    """The turn up to this message: a new one for a message of the user, and a copy
    where other messages answer the same one."""
    if before is None or message.role == "user":
        return _Draft([message], before)
    if is_only:
        before.messages.append(message)
        return before
    return _Draft([*before.messages, message], before.parent)


def _in_order(
    drafts: Sequence[_Draft], conversation: SourceConversation
) -> list[SourceTurn]:
    now = conversation.changed_at or conversation.at or datetime.now(UTC)
    first = conversation.at or now
    times: dict[_Draft, datetime] = {}
    for draft in drafts:  # each parent stands before its children
        parent = times.get(draft.parent) if draft.parent else None
        at = draft.time() or parent or first
        times[draft] = max(at, parent + _LATER) if parent else at
    if last := _last(drafts, conversation):
        later = max(times.values())
        times[last] = later if times[last] == later else later + _LATER
    ordered = sorted(drafts, key=times.__getitem__)
    numbers = {draft: number for number, draft in enumerate(ordered)}
    turns: list[SourceTurn] = []
    before: datetime | None = None
    for draft in ordered:
        at = max(times[draft], before + _LATER) if before else times[draft]
        models = [each.model for each in draft.messages if each.model]
        turns.append(
            SourceTurn(
                parent=numbers.get(draft.parent) if draft.parent else None,
                messages=draft.messages,
                at=at,
                model=models[-1] if models else conversation.model,
            )
        )
        before = at
    return turns


def _last(drafts: Sequence[_Draft], conversation: SourceConversation) -> _Draft | None:
    """The turn that ends at the message where the user was last, if none follows it."""
    parents = {draft.parent for draft in drafts}
    ends = [
        draft
        for draft in drafts
        if draft.messages[-1].id == conversation.current and draft not in parents
    ]
    return ends[0] if ends else None


# Read values of unknown types


def text(value: Any, limit: int = MAX_TEXT) -> str:
    return sanitize_text(value[:limit]) if isinstance(value, str) else ""


def name(value: Any) -> str | None:
    """An id, or None."""
    if isinstance(value, str) and 0 < len(value) <= 150:
        return sanitize_text(value)
    return None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; no others."""
    if not isinstance(value, list):
        return []
    return [each for each in value if isinstance(each, dict)]


def join_texts(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part.strip())


def nearest(start: str, parents: dict[str, str | None], kept: Container[str]) -> str:
    """The nearest of `start` and its ancestors that is in `kept`; "" for none.

    Stores the result in `parents`, so that no path is followed twice.
    """
    seen: set[str] = set()
    current: str | None = start
    while current and current not in kept and current not in seen:
        seen.add(current)
        current = parents.get(current)
    found = current if current and current in kept else ""
    for each in seen:
        parents[each] = found or None
    return found


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def title(value: Any) -> str:
    visible = "".join(c if c.isprintable() else " " for c in text(value, 2000))
    return " ".join(visible.split())[:TITLE_LENGTH]


def time(value: Any) -> datetime | None:
    """Of seconds or milliseconds since 1970, or ISO 8601; None for anything else, and
    for a time to come, which would stay above all that is written later."""
    at = _time(value)
    return at if at and at < datetime.now(UTC) + _CLOCK_ERROR else None


def _time(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            return at.astimezone(UTC) if 1971 < at.year < 2200 else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        seconds = value / 1000 if value > 1e11 else value
        if not math.isfinite(seconds) or not 0 < seconds < 7e9:
            return None
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
