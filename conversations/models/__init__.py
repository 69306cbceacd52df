"""The models of this app. Migrations refer to the functions as field defaults."""

from __future__ import annotations

from conversations.access.budget import Balance, LedgerEntry
from conversations.access.sessions import SignedInSession
from conversations.models.access_token import AccessToken
from conversations.models.attachment import Attachment, attachment_id
from conversations.models.conversation import (
    Conversation,
    ConversationQuerySet,
    conversation_id,
)
from conversations.models.idempotency_key import IdempotencyKey, KeyReused
from conversations.models.item import Item
from conversations.models.memory import Memory
from conversations.models.preset import (
    ContextSource,
    GatheredContext,
    Preset,
    PresetSource,
)
from conversations.models.question import (
    AlreadyDecided,
    Question,
    QuestionQuerySet,
    question_id,
)
from conversations.models.search_document import SearchDocument
from conversations.models.tool_call import ToolCall
from conversations.models.turn import Turn, turn_id

__all__ = [
    "AccessToken",
    "AlreadyDecided",
    "Attachment",
    "Balance",
    "ContextSource",
    "Conversation",
    "ConversationQuerySet",
    "GatheredContext",
    "IdempotencyKey",
    "Item",
    "KeyReused",
    "LedgerEntry",
    "Memory",
    "Preset",
    "PresetSource",
    "Question",
    "QuestionQuerySet",
    "SearchDocument",
    "SignedInSession",
    "ToolCall",
    "Turn",
    "attachment_id",
    "conversation_id",
    "question_id",
    "turn_id",
]
