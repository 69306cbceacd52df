"""The conversations to which an access token is limited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db.models import Exists, OuterRef, Q


@dataclass(frozen=True, slots=True)
class ConversationLimit:
    """The listed conversations, those in the listed folders, and those that responses
    of the token itself opened, as long as nobody else has written in them."""

    token_id: int
    conversations: frozenset[str]
    folders: frozenset[int]

    def narrow(self, rows: Any) -> Any:
        """Those of `rows`, conversations, that the token may reach."""
        model = apps.get_model("conversations", "Turn")
        turns = model.objects.filter(conversation=OuterRef("pk"))
        opened_here = (
            Q(is_from_api=True)
            & Exists(turns.filter(access_token=self.token_id))
            & ~Exists(turns.exclude(access_token=self.token_id))
        )
        listed = Q(pk__in=self.conversations) | Q(folder__in=self.folders)
        return rows.filter(listed | opened_here)


def limit_of(user: Any) -> ConversationLimit | None:
    """The limit of the access token with which the user's program signed in."""
    limit: ConversationLimit | None = getattr(user, "conversation_limit", None)
    return limit


def find_foreign(user_id: Any, conversations: Any, folders: Any) -> list[str]:
    """Ids of these that are no conversations and no folders of the user."""
    theirs = apps.get_model("conversations", "Conversation").objects.filter(
        owner_id=user_id, deleted_at=None, is_temporary=False, pk__in=conversations
    )
    own_folders = apps.get_model("conversations", "Folder").objects.filter(
        owner_id=user_id, pk__in=[int(pk) for pk in folders]
    )
    known = {
        str(pk)
        for rows in (theirs, own_folders)
        for pk in rows.values_list("pk", flat=True)
    }
    return sorted({*conversations, *folders} - known)
