from __future__ import annotations

from conversations.admin.access_token import AccessTokenAdmin
from conversations.admin.attachment import AttachmentAdmin
from conversations.admin.conversation import ConversationAdmin
from conversations.admin.idempotency_key import IdempotencyKeyAdmin
from conversations.admin.item import ItemAdmin
from conversations.admin.memory import MemoryAdmin
from conversations.admin.preset import ContextSourceAdmin, PresetAdmin
from conversations.admin.sign_in_attempts import SignInFailuresAdmin, SignInLogAdmin
from conversations.admin.tool_call import QuestionAdmin, ToolCallAdmin
from conversations.admin.turn import TurnAdmin

__all__ = [
    "AccessTokenAdmin",
    "AttachmentAdmin",
    "ContextSourceAdmin",
    "ConversationAdmin",
    "IdempotencyKeyAdmin",
    "ItemAdmin",
    "MemoryAdmin",
    "PresetAdmin",
    "QuestionAdmin",
    "SignInFailuresAdmin",
    "SignInLogAdmin",
    "ToolCallAdmin",
    "TurnAdmin",
]
