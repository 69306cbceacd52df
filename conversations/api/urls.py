from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from conversations.api import files, presets, tool_calls, tools, views

app_name = "api"


@csrf_exempt
def document(request: HttpRequest) -> HttpResponseBase:
    # Imported late: the document is rarely requested, and generating it needs 4 MB.
    from conversations.api.openapi_view import respond

    return respond(request)


urlpatterns = [
    path("conversations/", views.ConversationsView.as_view(), name="conversations"),
    path(
        "conversations/<slug:pk>/",
        views.ConversationView.as_view(),
        name="conversation",
    ),
    path("conversations/<slug:pk>/turns/", views.TurnsView.as_view(), name="turns"),
    path(
        "conversations/<slug:pk>/attachments/",
        files.AttachmentsView.as_view(),
        name="attachments",
    ),
    path("attachments/<slug:pk>/", files.AttachmentView.as_view(), name="attachment"),
    path("turns/<slug:pk>/", views.TurnView.as_view(), name="turn"),
    path("turns/<slug:pk>/cancel/", views.CancelView.as_view(), name="cancel"),
    path("turns/<slug:pk>/continue/", views.ContinueView.as_view(), name="continue"),
    path("turns/<slug:pk>/events/", views.EventsView.as_view(), name="events"),
    path(
        "conversations/<slug:pk>/tool-calls/",
        tool_calls.CallsView.as_view(),
        name="tool-calls",
    ),
    path(
        "tool-calls/<int:pk>/cancel/",
        tool_calls.CallCancelView.as_view(),
        name="tool-call-cancel",
    ),
    path("questions/", tool_calls.QuestionsView.as_view(), name="questions"),
    path("questions/<slug:pk>/", tool_calls.QuestionView.as_view(), name="question"),
    path("questions/<slug:pk>/answer/", tool_calls.AnswerView.as_view(), name="answer"),
    path("callbacks/<str:token>/", tool_calls.CallbackView.as_view(), name="callback"),
    path("presets/", presets.PresetsView.as_view(), name="presets"),
    path("tools/", tools.ToolsView.as_view(), name="tools"),
    path("models/", views.ModelsView.as_view(), name="models"),
    path("schema/", document, name="schema"),
]
