"""URLs of branches, below those of a conversation and of a turn."""

from __future__ import annotations

from django.urls import URLPattern, path

from conversations.pages.branches import views

of_turns: list[URLPattern] = [
    path("edit/", views.edit, name="edit-message"),
    path("show/", views.show, name="show-branch"),
    path("fork/", views.fork, name="fork"),
    path("delete/", views.delete, name="delete-branch"),
    path("restore/", views.restore, name="restore-branch"),
]
of_conversations: list[URLPattern] = [
    path("restore/", views.restore_conversation, name="restore-conversation"),
]
