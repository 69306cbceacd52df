"""URLs of the chat pages and of signing in."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from conversations.pages import (
    account_views,
    item_views,
    memory_views,
    own_key_views,
    participant_views,
    question_views,
    queue_views,
    script_texts,
    share_views,
    token_views,
    views,
)
from conversations.pages.account_views import AccountView
from conversations.pages.branches import urls as branches
from conversations.pages.connect import views as connect_views
from conversations.pages.library import folder_views, transfer_views
from conversations.pages.library import views as library_views
from conversations.pages.notices import views as notice_views
from conversations.pages.pwa import views as pwa_views
from conversations.pages.reading import (
    artifact_views,
    frame_views,
    print_views,
    rating_views,
)
from conversations.pages.settings import deletion as account_deletion
from conversations.pages.settings import (
    limit_views,
    mcp_sign_in_views,
    prompt_views,
    usage_views,
    webhook_views,
)
from conversations.pages.settings import views as settings_views

_turn: list[URLPattern] = [
    path("", views.turn, name="turn"),
    path("refresh/", views.refresh, name="refresh"),
    path("stop/", views.stop, name="stop"),
    path("retry/", views.retry, name="retry"),
    path("continue/", views.continue_turn, name="continue"),
    path("rating/", rating_views.rate, name="rate"),
    path("texts/<int:index>/", views.text, name="text"),
    path("queue/", queue_views.change_waiting, name="change-queued"),
    path("memories/<int:pk>/undo/", memory_views.undo_memory, name="undo-memory"),
    *branches.of_turns,
]
_artifact: list[URLPattern] = [
    path("", artifact_views.artifact, name="artifact"),
    path("content/", artifact_views.content, name="artifact-content"),
    path("download/", artifact_views.download, name="artifact-download"),
]
_conversation: list[URLPattern | URLResolver] = [
    path("", views.conversation, name="conversation"),
    path("rename/", views.rename, name="rename"),
    path("delete/", views.delete, name="delete"),
    path("keep/", library_views.pin_or_archive, name="keep"),
    path("organise/", library_views.organise, name="organise"),
    path("options/", library_views.options, name="chat-options"),
    path("export/", transfer_views.export_conversation, name="export-conversation"),
    path("print/", print_views.print_conversation, name="print-conversation"),
    path("people/", participant_views.people, name="people"),
    path("share/", share_views.share, name="share"),
    *branches.of_conversations,
    path("tools/", views.set_tools, name="choose-tools"),
    path("background/", views.background, name="background"),
    path("queue/", queue_views.waiting, name="queue"),
    path("context/", item_views.context_gauge, name="context-gauge"),
    path("items/<str:item_id>/", item_views.change_item, name="change-item"),
    path("calls/<int:call_id>/cancel/", views.cancel_call, name="cancel-call"),
    path("turns/<str:turn_id>/", include(_turn)),
]
_folder: list[URLPattern] = [
    path("", folder_views.folder, name="folder"),
    path("delete/", folder_views.delete_folder, name="delete-folder"),
    path("files/", folder_views.add_file, name="add-folder-file"),
    path(
        "files/<int:file_id>/delete/",
        folder_views.delete_file,
        name="delete-folder-file",
    ),
]
_webhook: list[URLPattern] = [
    path("", webhook_views.webhook, name="webhook"),
    path("delete/", webhook_views.delete_webhook, name="delete-webhook"),
    path("secret/", webhook_views.renew_secret, name="webhook-secret"),
    path(
        "deliveries/<int:delivery_id>/send/",
        webhook_views.send_again,
        name="send-again",
    ),
]
urlpatterns = [
    path("", views.chat, name="chat"),
    path("chats/", views.conversation_list, name="conversation-list"),
    path("chat/<str:conversation_id>/", include(_conversation)),
    path("frames/mermaid/", frame_views.mermaid_frame, name="mermaid-frame"),
    path("artifacts/<str:turn_id>/<int:item>/<int:number>/", include(_artifact)),
    path("library/", library_views.library, name="library"),
    path("folders/", folder_views.folders, name="folders"),
    path("folders/<int:folder_id>/", include(_folder)),
    path("import/", transfer_views.imports, name="imports"),
    path("import/<int:pk>/", transfer_views.show_import, name="import"),
    path("account/export/", transfer_views.export_all, name="export-all"),
    path(
        "account/export/begins/", transfer_views.download_page, name="export-download"
    ),
    path(
        "people/<int:pk>/remove/", participant_views.remove_person, name="remove-person"
    ),
    path("invitations/", participant_views.invitations, name="invitations"),
    path(
        "invitations/<int:pk>/accept/",
        participant_views.accept_invitation,
        name="accept-invitation",
    ),
    path("shares/", share_views.shares, name="shares"),
    path(
        "shares/<str:share_id>/revoke/", share_views.revoke_share, name="revoke-share"
    ),
    path("shared/<str:token>/", share_views.shared, name="shared"),
    path(
        "shared/<str:token>/files/<str:file_id>/",
        share_views.shared_file,
        name="shared-file",
    ),
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
    path("keys/", own_key_views.own_keys, name="own-keys"),
    path("keys/<int:provider_id>/", own_key_views.store_key, name="store-own-key"),
    path(
        "keys/<int:provider_id>/delete/",
        own_key_views.delete_key,
        name="delete-own-key",
    ),
    path(
        "keys/<int:provider_id>/sign-in/",
        own_key_views.begin_sign_in,
        name="begin-key-sign-in",
    ),
    path(
        "keys/<int:provider_id>/sign-in/<str:state>/",
        own_key_views.end_sign_in,
        name="end-key-sign-in",
    ),
    path("memories/", memory_views.memories, name="memories"),
    path("memories/<int:pk>/", memory_views.change_memory, name="change-memory"),
    path("memories/<int:pk>/delete/", memory_views.delete_memory, name="delete-memory"),
    path("manifest.webmanifest", pwa_views.manifest, name="manifest"),
    path("sw.js", pwa_views.service_worker, name="service-worker"),
    path("offline/", pwa_views.offline, name="offline"),
    path(
        "texts/<str:language>/<str:version>.js",
        script_texts.script_texts,
        name="script-texts",
    ),
    path("settings/", settings_views.general, name="settings"),
    path("settings/personal/", settings_views.personal, name="settings-personal"),
    path("settings/shortcuts/", settings_views.shortcuts, name="settings-shortcuts"),
    path("settings/usage/", usage_views.usage, name="usage"),
    path("settings/usage/csv/", usage_views.usage_file, name="usage-csv"),
    path("settings/limits/", limit_views.limits_fragment, name="limits-left"),
    path("settings/prompts/", prompt_views.prompts, name="prompts"),
    path("settings/prompts/<int:pk>/", prompt_views.prompt, name="prompt"),
    path("settings/prompts/<int:pk>/use/", prompt_views.use_prompt, name="use-prompt"),
    path(
        "settings/prompts/<int:pk>/delete/",
        prompt_views.delete_prompt,
        name="delete-prompt",
    ),
    path("settings/webhooks/", webhook_views.webhooks, name="webhooks"),
    path("settings/webhooks/<int:pk>/", include(_webhook)),
    path("account/delete/", account_deletion.delete_account, name="delete-account"),
    path("terms/", notice_views.terms_page, name="terms"),
    path(
        "announcements/<int:pk>/dismiss/",
        notice_views.dismiss_announcement,
        name="dismiss-announcement",
    ),
    path("connect/", connect_views.connect, name="connect"),
    path("tokens/", token_views.tokens, name="tokens"),
    path("tokens/<int:pk>/", token_views.token_settings, name="token-settings"),
    path("tokens/<int:pk>/revoke/", token_views.revoke_token, name="revoke-token"),
    path("tokens/<int:pk>/log/", token_views.switch_request_log, name="request-log"),
    path(
        "tokens/<int:pk>/requests/<int:row>/",
        token_views.logged_request,
        name="logged-request",
    ),
    path("questions/", question_views.questions, name="questions"),
    path("questions/<str:question_id>/", question_views.question, name="question"),
    path(
        "questions/<str:question_id>/sign-in/",
        mcp_sign_in_views.begin_for_question,
        name="question-sign-in",
    ),
    path(
        "questions/<str:question_id>/revoke/",
        question_views.revoke_approval,
        name="revoke-approval",
    ),
    path("sign-ins/back/", mcp_sign_in_views.come_back, name="signed-in-at-server"),
    path("settings/sign-ins/", mcp_sign_in_views.sign_ins, name="sign-ins"),
    path(
        "settings/sign-ins/<int:server_id>/begin/",
        mcp_sign_in_views.begin_at_server,
        name="sign-in-at-server",
    ),
    path(
        "settings/sign-ins/<int:pk>/end/",
        mcp_sign_in_views.sign_out,
        name="sign-out-of-server",
    ),
]
