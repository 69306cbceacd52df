from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from conversations.pages import (
    account_views,
    memory_views,
    question_views,
    token_views,
    views,
)
from conversations.pages.account_views import AccountView

_turn: list[URLPattern] = [
    path("", views.turn, name="turn"),
    path("stop/", views.stop, name="stop"),
    path("retry/", views.retry, name="retry"),
    path("continue/", views.continue_turn, name="continue"),
    path("texts/<int:index>/", views.text, name="text"),
]
_conversation: list[URLPattern | URLResolver] = [
    path("", views.conversation, name="conversation"),
    path("rename/", views.rename, name="rename"),
    path("delete/", views.delete, name="delete"),
    path("tools/", views.set_tools, name="choose-tools"),
    path("background/", views.background, name="background"),
    path("calls/<int:call_id>/cancel/", views.cancel_call, name="cancel-call"),
    path("turns/<str:turn_id>/", include(_turn)),
]
urlpatterns = [
    path("", views.chat, name="chat"),
    path("chats/", views.conversation_list, name="conversation-list"),
    path("chat/<str:conversation_id>/", include(_conversation)),
    path("account/", AccountView.as_view(), name="account"),
    path(
        "account/changed/",
        AccountView.as_view(extra_context={"is_changed": True}),
        name="password-changed",
    ),
    path(
        "account/sessions/<int:pk>/end/", account_views.end_session, name="end-session"
    ),
    path(
        "account/sessions/end-others/",
        account_views.end_other_sessions,
        name="end-other-sessions",
    ),
    path("memories/", memory_views.memories, name="memories"),
    path("memories/<int:pk>/", memory_views.forget_memory, name="forget-memory"),
    path("tokens/", token_views.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", token_views.revoke_token, name="revoke-token"),
    path("questions/", question_views.questions, name="questions"),
    path("questions/<str:question_id>/", question_views.question, name="question"),
]
