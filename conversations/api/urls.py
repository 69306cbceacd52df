"""URLs of the REST API, and of its OpenAPI document."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from conversations.api import (
    account,
    branches,
    context,
    files,
    memories,
    own_keys,
    participants,
    presets,
    queue,
    search,
    seen,
    sharing,
    tool_calls,
    tools,
    views,
)
from conversations.api.library import transfer
from conversations.api.library import views as library
from conversations.api.reading.changes import ChangesView
from conversations.api.reading.dictation import DictationView
from conversations.api.reading.ratings import DetailsView, RatingView
from conversations.api.settings import limits, mcp_sign_ins, notices, usage, webhooks
from conversations.api.settings import views as own_settings

app_name = "api"


@csrf_exempt
def document(request: HttpRequest) -> HttpResponseBase:
    # Imported late: the document is rarely requested, and generating it needs 4 MB.
    from conversations.http.openapi_view import respond

    return respond(request, "conversations.api.openapi_generator.Generator")


urlpatterns = [
    path("conversations/", views.ConversationsView.as_view(), name="conversations"),
    path("conversations/bulk/", library.BulkView.as_view(), name="bulk"),
    path("conversations/export/", transfer.ExportAllView.as_view(), name="export-all"),
    path(
        "conversations/<slug:pk>/export/",
        transfer.ExportView.as_view(),
        name="export",
    ),
    path("dictation/", DictationView.as_view(), name="dictation"),
    path("folders/", library.FoldersView.as_view(), name="folders"),
    path("folders/<int:pk>/", library.FolderView.as_view(), name="folder"),
    path(
        "folders/<int:pk>/files/",
        library.FolderFilesView.as_view(),
        name="folder-files",
    ),
    path(
        "folders/<int:pk>/files/<int:file_id>/",
        library.FolderFileView.as_view(),
        name="folder-file",
    ),
    path("tags/", library.TagsView.as_view(), name="tags"),
    path("imports/", transfer.ImportsView.as_view(), name="imports"),
    path("imports/<int:pk>/", transfer.ImportView.as_view(), name="import"),
    path(
        "conversations/<slug:pk>/",
        views.ConversationView.as_view(),
        name="conversation",
    ),
    path("conversations/<slug:pk>/turns/", views.TurnsView.as_view(), name="turns"),
    path(
        "conversations/<slug:pk>/context/",
        context.ContextView.as_view(),
        name="context",
    ),
    path(
        "conversations/<slug:pk>/items/<str:item_id>/",
        context.ItemView.as_view(),
        name="item",
    ),
    path(
        "conversations/<slug:pk>/attachments/",
        files.AttachmentsView.as_view(),
        name="attachments",
    ),
    path(
        "conversations/<slug:pk>/shares/",
        sharing.ConversationSharesView.as_view(),
        name="conversation-shares",
    ),
    path(
        "conversations/<slug:pk>/participants/",
        participants.ParticipantsView.as_view(),
        name="participants",
    ),
    path(
        "participants/<int:pk>/",
        participants.ParticipantView.as_view(),
        name="participant",
    ),
    path("invitations/", participants.InvitationsView.as_view(), name="invitations"),
    path(
        "invitations/<int:pk>/accept/",
        participants.AcceptView.as_view(),
        name="accept-invitation",
    ),
    path("shares/", sharing.SharesView.as_view(), name="shares"),
    path("shares/<slug:pk>/", sharing.ShareView.as_view(), name="share"),
    path(
        "conversations/<slug:pk>/branch/",
        branches.BranchView.as_view(),
        name="branch",
    ),
    path(
        "conversations/<slug:pk>/restore/",
        branches.RestoreConversationView.as_view(),
        name="restore-conversation",
    ),
    path("turns/<slug:pk>/fork/", branches.ForkView.as_view(), name="fork"),
    path(
        "turns/<slug:pk>/branch/",
        branches.DeletedBranchView.as_view(),
        name="delete-branch",
    ),
    path(
        "turns/<slug:pk>/restore/",
        branches.RestoreBranchView.as_view(),
        name="restore-branch",
    ),
    path("attachments/<slug:pk>/", files.AttachmentView.as_view(), name="attachment"),
    path("conversations/<slug:pk>/queue/", queue.QueueView.as_view(), name="queue"),
    path("conversations/<slug:pk>/seen/", seen.SeenView.as_view(), name="seen"),
    path(
        "conversations/<slug:pk>/changes/",
        ChangesView.as_view(),
        name="changes",
    ),
    path("turns/<slug:pk>/", queue.ChangeableTurnView.as_view(), name="turn"),
    path("turns/<slug:pk>/cancel/", views.CancelView.as_view(), name="cancel"),
    path("turns/<slug:pk>/rating/", RatingView.as_view(), name="rating"),
    path("turns/<slug:pk>/details/", DetailsView.as_view(), name="details"),
    path("turns/<slug:pk>/continue/", branches.ContinueView.as_view(), name="continue"),
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
    path(
        "questions/open/",
        tool_calls.OpenQuestionsView.as_view(),
        name="open-questions",
    ),
    path(
        "approvals/",
        tool_calls.StandingApprovalsView.as_view(),
        name="standing-approvals",
    ),
    path(
        "approvals/<slug:pk>/",
        tool_calls.StandingApprovalView.as_view(),
        name="standing-approval",
    ),
    path("questions/<slug:pk>/", tool_calls.QuestionView.as_view(), name="question"),
    path("questions/<slug:pk>/answer/", tool_calls.AnswerView.as_view(), name="answer"),
    path("callbacks/<str:token>/", tool_calls.CallbackView.as_view(), name="callback"),
    path("keys/", own_keys.OwnKeysView.as_view(), name="own-keys"),
    path("keys/<int:provider_id>/", own_keys.OwnKeyView.as_view(), name="own-key"),
    path("presets/", presets.PresetsView.as_view(), name="presets"),
    path("tools/", tools.ToolsView.as_view(), name="tools"),
    path("models/", views.ModelsView.as_view(), name="models"),
    path("search/", search.SearchView.as_view(), name="search"),
    path("memories/", memories.MemoriesView.as_view(), name="memories"),
    path("memories/<int:pk>/", memories.MemoryView.as_view(), name="memory"),
    path(
        "memories/<int:pk>/restore/",
        memories.RestoredMemoryView.as_view(),
        name="restore-memory",
    ),
    path("tokens/", account.TokensView.as_view(), name="tokens"),
    path("tokens/<int:pk>/", account.TokenView.as_view(), name="token"),
    path(
        "tokens/<int:pk>/requests/",
        account.LoggedRequestsView.as_view(),
        name="logged-requests",
    ),
    path(
        "tokens/<int:pk>/requests/<int:row>/",
        account.LoggedRequestView.as_view(),
        name="logged-request",
    ),
    path("sessions/", account.SessionsView.as_view(), name="sessions"),
    path("sessions/<int:pk>/", account.SessionView.as_view(), name="session"),
    path("password/", account.PasswordView.as_view(), name="password"),
    path("sign-ins/", mcp_sign_ins.SignInsView.as_view(), name="sign-ins"),
    path("sign-ins/<int:pk>/", mcp_sign_ins.OwnSignInView.as_view(), name="sign-in"),
    path("settings/", own_settings.SettingsView.as_view(), name="settings"),
    path("prompts/", own_settings.PromptsView.as_view(), name="prompts"),
    path("prompts/<int:pk>/", own_settings.PromptView.as_view(), name="prompt"),
    path("webhooks/", webhooks.WebhooksView.as_view(), name="webhooks"),
    path("webhooks/<int:pk>/", webhooks.WebhookView.as_view(), name="webhook"),
    path(
        "webhooks/<int:pk>/secret/",
        webhooks.SecretView.as_view(),
        name="webhook-secret",
    ),
    path(
        "webhooks/<int:pk>/deliveries/",
        webhooks.DeliveriesView.as_view(),
        name="deliveries",
    ),
    path(
        "webhooks/<int:pk>/deliveries/<int:delivery_id>/send/",
        webhooks.SendAgainView.as_view(),
        name="send-again",
    ),
    path("limits/", limits.LimitsView.as_view(), name="limits"),
    path("announcements/", notices.AnnouncementsView.as_view(), name="announcements"),
    path(
        "announcements/<int:pk>/dismiss/",
        notices.DismissView.as_view(),
        name="dismiss-announcement",
    ),
    path("terms/", notices.TermsView.as_view(), name="terms"),
    path("usage/", usage.UsageView.as_view(), name="usage"),
    path("usage/all/", usage.AllUsageView.as_view(), name="all-usage"),
    path(
        "account/delete/",
        own_settings.AccountDeletionView.as_view(),
        name="delete-account",
    ),
    path("schema/", document, name="schema"),
]
