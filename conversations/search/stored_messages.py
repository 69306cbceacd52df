"""Searchable text of stored messages, and which of them the index has outdated."""

from __future__ import annotations

import json
import logging
from typing import Any

from django.db.models import F, Q, QuerySet, TextField
from django.db.models.functions import Cast

from conversations.models import Item, SearchDocument
from conversations.models.item import CONTINUES
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

logger = logging.getLogger(__name__)
#: Tokens that no text contains: the document's owner, and a mark for too many tokens.
OWNER_TOKEN, OVERFULL_TOKEN = "\ue000{}", "\ue001"

HAS_NEW_TITLE = Q(indexed_title=None) | ~Q(title=F("indexed_title"))


def searchable_text(payload: ItemPayload | Any) -> str:
    """The text of a message by the user or the model; "" for other items."""
    if not isinstance(payload, dict) or payload.get("parley:interrupted"):
        return ""
    if payload.get("role") not in ("user", "assistant") or payload.get(CONTINUES):
        return ""
    try:
        return text_of(payload)
    except (AttributeError, KeyError, TypeError):
        return ""  # a client's message may have content of an unknown form


#: The payload as text. If the query decoded JSON, one payload that is nested too deeply
#: would fail the query for all messages.
STORED_TEXT = Cast("payload", TextField())


def text_of_row(row: Any) -> str:
    """The searchable text of a row that `with_stored` has annotated."""
    return text_of_stored(row.stored)


def text_of_stored(stored: str) -> str:
    """The searchable text of a payload's JSON; "" if it cannot be decoded."""
    try:
        return searchable_text(json.loads(stored))
    except (ValueError, RecursionError) as exc:
        logger.warning("a message was not indexed: %s", type(exc).__name__)
        return ""


def with_stored(rows: QuerySet[Item]) -> QuerySet[Item]:
    rows = rows.select_related("turn__conversation")
    return rows.defer("payload").annotate(stored=STORED_TEXT)


def find_outdated() -> QuerySet[SearchDocument]:
    """Documents with tokens of an earlier version. Turns that are not indexed are
    excluded: a search reads their messages directly, and the index takes them when
    they have ended."""
    rows = SearchDocument.objects.filter(tokens_version=None)
    return rows.filter(turn__is_indexed=True, turn__deleted_at=None)
