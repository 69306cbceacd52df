"""Registration of the admin of conversations, turns, presets, tokens and files."""

from __future__ import annotations

from conversations.admin.access_token import AccessTokenAdmin
from conversations.admin.attachment import AttachmentAdmin
from conversations.admin.conversation import ConversationAdmin
from conversations.admin.idempotency_key import IdempotencyKeyAdmin
from conversations.admin.item import ItemAdmin
from conversations.admin.last_seen import LastSeenAdmin
from conversations.admin.library import (
    ConversationImportAdmin,
    FolderAdmin,
    TagAdmin,
)
from conversations.admin.memory import MemoryAdmin
from conversations.admin.people import SavedPromptAdmin, UserSettingsAdmin
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

__all__ = [
    "AccessTokenAdmin",
    "AttachmentAdmin",
    "ContextSourceAdmin",
    "ConversationAdmin",
    "ConversationImportAdmin",
    "FolderAdmin",
    "IdempotencyKeyAdmin",
    "ItemAdmin",
    "LastSeenAdmin",
    "MemoryAdmin",
    "ParticipantAdmin",
    "PresetAdmin",
    "QuestionAdmin",
    "RatingAdmin",
    "ReplayAdmin",
    "ReplaySetAdmin",
    "SavedPromptAdmin",
    "ShareLinkAdmin",
    "ShareRuleAdmin",
    "SignInFailuresAdmin",
    "SignInLogAdmin",
    "TagAdmin",
    "ToolCallAdmin",
    "TurnAdmin",
    "UserSettingsAdmin",
]
