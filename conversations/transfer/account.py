"""What an account has stored besides its conversations, for the export of all data.

Keys, access tokens and sessions are not in it: a stolen file must not open the account.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from django.db.models import Prefetch

from conversations.models import (
    AnnouncementDismissal,
    Folder,
    FolderFile,
    Memory,
    Rating,
    SavedPrompt,
    ShareLink,
    TermsAcceptance,
    WebhookEndpoint,
)
from conversations.models.user_settings import UserSettings
from conversations.transfer.export import path_of

FORMAT = "parley.account.v1"
_SETTINGS = (
    "theme",
    "language",
    "font_size",
    "favourite_models",
    "notify_title",
    "notify_browser",
    "email_after_minutes",
    "shortcuts_enabled",
    "shortcuts",
    "memory_enabled",
    "custom_instructions",
)


def write_account(user: Any) -> bytes:
    """JSON with the account's own texts, choices, ratings and links."""
    return orjson.dumps(
        {
            "format": FORMAT,
            "user": _columns(
                user, "username", "first_name", "last_name", "email", "date_joined"
            ),
            "settings": _settings(UserSettings.objects.for_user(user.pk)),
            "memories": [
                _columns(row, "text", "created_at", "updated_at")
                for row in Memory.objects.filter(user=user, deleted_at=None)
            ],
            "prompts": [
                _columns(row, "name", "title", "text")
                for row in SavedPrompt.objects.filter(owner=user)
            ],
            "folders": _list_folders(user),
            "webhooks": [
                _columns(row, "name", "url", "events", "is_enabled", "created_at")
                for row in WebhookEndpoint.objects.of(user)
            ],
            "ratings": [
                {
                    "turn": row.turn_id,
                    **_columns(row, "value", "comment", "created_at"),
                }
                for row in Rating.objects.filter(user=user)
            ],
            "links": _list_links(user),
            "accepted_terms": [
                {"version": row.terms.number, "accepted_at": row.accepted_at}
                for row in TermsAcceptance.objects.filter(user=user).select_related(
                    "terms"
                )
            ],
            "dismissed_announcements": [
                {
                    "text": row.announcement.text,
                    "dismissed_at": row.dismissed_at,
                }
                for row in AnnouncementDismissal.objects.filter(
                    user=user
                ).select_related("announcement")
            ],
        },
        option=orjson.OPT_INDENT_2,
    )


def load_folder_files(user: Any) -> Iterator[FolderFile]:
    """The files of all folders, one after the other; the text of each is loaded where
    it is read."""
    rows = FolderFile.objects.filter(folder__owner=user)
    return rows.defer("text").iterator(chunk_size=100)


def _list_folders(user: Any) -> list[dict[str, Any]]:
    files = Prefetch("files", FolderFile.objects.defer("text"))
    return [
        {
            **_columns(row, "name", "instructions", "created_at"),
            "files": [
                {"path": path_of(file), **_columns(file, "name", "created_at")}
                for file in row.files.all()
            ],
        }
        for row in Folder.objects.filter(owner=user).prefetch_related(files)
    ]


def _list_links(user: Any) -> list[dict[str, Any]]:
    columns = ("title", "audience", "kind", "views")
    times = ("created_at", "expires_at", "revoked_at")
    return [
        {"conversation": row.conversation_id, **_columns(row, *columns, *times)}
        for row in ShareLink.objects.filter(owner=user)
    ]


def _columns(row: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _settings(row: UserSettings) -> dict[str, Any]:
    model = row.default_model
    return {
        **_columns(row, *_SETTINGS),
        "default_model": model.public_name if model else None,
    }
