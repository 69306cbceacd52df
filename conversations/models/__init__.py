"""The models of this app. Migrations refer to the functions as field defaults."""

from __future__ import annotations

from conversations.models.access_token import AccessToken
from conversations.models.attachment import Attachment, attachment_id
from conversations.models.branch_choice import BranchChoice, Tree
from conversations.models.conversation import (
    Conversation,
    ConversationQuerySet,
    TitleSource,
    conversation_id,
)
from conversations.models.conversation_import import ConversationImport
from conversations.models.folder import Folder, FolderFile, Tag
from conversations.models.gateway.answered_request import AnsweredRequest
from conversations.models.gateway.request_log import LoggedRequest
from conversations.models.idempotency_key import (
    IdempotencyKey,
    KeyReused,
    MessageRemoved,
)
from conversations.models.item import Item
from conversations.models.last_seen import LastSeen
from conversations.models.ledger import Balance, LedgerEntry
from conversations.models.limits.cache_entry import CacheEntry
from conversations.models.limits.limit_balance import (
    LimitBalance,
    LimitLease,
    LimitWarning,
)
from conversations.models.limits.usage_limit import LimitRaise, UsageLimit
from conversations.models.memory import Memory
from conversations.models.opened_turn import OpenedTurn
from conversations.models.participant import Participant
from conversations.models.policy.announcement import (
    Announcement,
    AnnouncementDismissal,
)
from conversations.models.policy.legal_hold import LegalHold, UnderLegalHold
from conversations.models.policy.retention_rule import RetentionRule
from conversations.models.policy.terms import TermsAcceptance, TermsVersion
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
from conversations.models.rating import Rating
from conversations.models.saved_prompt import SavedPrompt
from conversations.models.search_document import SearchDocument
from conversations.models.share_link import ShareLink, ShareRule, share_id
from conversations.models.signed_in_session import SignedInSession
from conversations.models.staff.backup import Backup
from conversations.models.staff.evaluation import (
    EvaluationAnswer,
    EvaluationCase,
    EvaluationRun,
    EvaluationSet,
    PresetDraft,
    PreviewChat,
)
from conversations.models.staff.file_deletion import FileDeletion
from conversations.models.staff.process_status import Maintenance, ProcessStatus
from conversations.models.staff.replay import Replay, ReplayedTurn, ReplaySet
from conversations.models.staff.saved_filter import SavedFilter
from conversations.models.staff.versions import PresetVersion, PromptVersion
from conversations.models.tool_call import ToolCall
from conversations.models.turn import AuthorGone, Turn, turn_id
from conversations.models.user_settings import UserSettings
from conversations.models.webhooks.delivery import Delivery, event_id
from conversations.models.webhooks.endpoint import EventType, WebhookEndpoint

__all__ = [
    "AccessToken",
    "AlreadyDecided",
    "Announcement",
    "AnnouncementDismissal",
    "AnsweredRequest",
    "Attachment",
    "AuthorGone",
    "Backup",
    "Balance",
    "BranchChoice",
    "CacheEntry",
    "ContextSource",
    "Conversation",
    "ConversationImport",
    "ConversationQuerySet",
    "Delivery",
    "EvaluationAnswer",
    "EvaluationCase",
    "EvaluationRun",
    "EvaluationSet",
    "EventType",
    "FileDeletion",
    "Folder",
    "FolderFile",
    "GatheredContext",
    "IdempotencyKey",
    "Item",
    "KeyReused",
    "LastSeen",
    "LedgerEntry",
    "LegalHold",
    "LimitBalance",
    "LimitLease",
    "LimitRaise",
    "LimitWarning",
    "LoggedRequest",
    "Maintenance",
    "Memory",
    "MessageRemoved",
    "OpenedTurn",
    "Participant",
    "Preset",
    "PresetDraft",
    "PresetSource",
    "PresetVersion",
    "PreviewChat",
    "ProcessStatus",
    "PromptVersion",
    "Question",
    "QuestionQuerySet",
    "Rating",
    "Replay",
    "ReplaySet",
    "ReplayedTurn",
    "RetentionRule",
    "SavedFilter",
    "SavedPrompt",
    "SearchDocument",
    "ShareLink",
    "ShareRule",
    "SignedInSession",
    "Tag",
    "TermsAcceptance",
    "TermsVersion",
    "TitleSource",
    "ToolCall",
    "Tree",
    "Turn",
    "UnderLegalHold",
    "UsageLimit",
    "UserSettings",
    "WebhookEndpoint",
    "attachment_id",
    "conversation_id",
    "event_id",
    "question_id",
    "share_id",
    "turn_id",
]
