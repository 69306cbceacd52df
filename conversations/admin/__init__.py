"""Registration of the admin of conversations, turns, presets, tokens and files."""

from __future__ import annotations

from conversations.admin.access_token import AccessTokenAdmin
from conversations.admin.attachment import AttachmentAdmin
from conversations.admin.audit.events import AuditEventAdmin
from conversations.admin.conversation import ConversationAdmin
from conversations.admin.idempotency_key import IdempotencyKeyAdmin
from conversations.admin.item import ItemAdmin
from conversations.admin.last_seen import LastSeenAdmin
from conversations.admin.library import (
    ConversationImportAdmin,
    FolderAdmin,
    TagAdmin,
)
from conversations.admin.limits.usage_limit import (
    LimitRaiseAdmin,
    UsageLimitAdmin,
)
from conversations.admin.logged_request import LoggedRequestAdmin
from conversations.admin.memory import MemoryAdmin
from conversations.admin.people import SavedPromptAdmin, UserSettingsAdmin
from conversations.admin.policy.announcement import AnnouncementAdmin
from conversations.admin.policy.legal_hold import LegalHoldAdmin
from conversations.admin.policy.retention_rule import RetentionRuleAdmin
from conversations.admin.policy.terms import TermsVersionAdmin
from conversations.admin.presets.preset import ContextSourceAdmin, PresetAdmin
from conversations.admin.rating import RatingAdmin
from conversations.admin.replay import ReplayAdmin
from conversations.admin.replay_set import ReplaySetAdmin
from conversations.admin.share_link import (
    ParticipantAdmin,
    ShareLinkAdmin,
    ShareRuleAdmin,
)
from conversations.admin.sign_in_attempts import SignInFailuresAdmin, SignInLogAdmin
from conversations.admin.tool_call import QuestionAdmin, ToolCallAdmin
from conversations.admin.turn import TurnAdmin
from conversations.admin.webhooks.delivery import DeliveryAdmin
from conversations.admin.webhooks.endpoint import WebhookEndpointAdmin

__all__ = [
    "AccessTokenAdmin",
    "AnnouncementAdmin",
    "AttachmentAdmin",
    "AuditEventAdmin",
    "ContextSourceAdmin",
    "ConversationAdmin",
    "ConversationImportAdmin",
    "DeliveryAdmin",
    "FolderAdmin",
    "IdempotencyKeyAdmin",
    "ItemAdmin",
    "LastSeenAdmin",
    "LegalHoldAdmin",
    "LimitRaiseAdmin",
    "LoggedRequestAdmin",
    "MemoryAdmin",
    "ParticipantAdmin",
    "PresetAdmin",
    "QuestionAdmin",
    "RatingAdmin",
    "ReplayAdmin",
    "ReplaySetAdmin",
    "RetentionRuleAdmin",
    "SavedPromptAdmin",
    "ShareLinkAdmin",
    "ShareRuleAdmin",
    "SignInFailuresAdmin",
    "SignInLogAdmin",
    "TagAdmin",
    "TermsVersionAdmin",
    "ToolCallAdmin",
    "TurnAdmin",
    "UsageLimitAdmin",
    "UserSettingsAdmin",
    "WebhookEndpointAdmin",
]
