from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from conversations import views

_turn: list[URLPattern] = [
    path("", views.turn, name="turn"),
    path("stop/", views.stop, name="stop"),
    path("retry/", views.retry, name="retry"),
]
_conversation: list[URLPattern | URLResolver] = [
    path("", views.conversation, name="conversation"),
    path("rename/", views.rename, name="rename"),
    path("delete/", views.delete, name="delete"),
    path("turns/<str:turn_id>/", include(_turn)),
]
urlpatterns = [
    path("", views.chat, name="chat"),
    path("chats/", views.conversation_list, name="conversation-list"),
    path("chat/<str:conversation_id>/", include(_conversation)),
]
