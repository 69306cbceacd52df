"""Pages that export conversations, and that import those of other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from conversations.access.reauthentication import is_proven, requires_proof
from conversations.audit.record import record_event
from conversations.http.streamed_download import download
from conversations.models import (
    Conversation,
    ConversationImport,
    ConversationQuerySet,
    FolderFile,
)
from conversations.transfer import imports as importing
from conversations.transfer.account import load_folder_files, write_account
from conversations.transfer.export import (
    CONTENT_TYPES,
    file_name,
    load,
    write,
    write_zip,
)

LISTED = 20  # imports on the page


class ImportForm(forms.Form):
    file = forms.FileField(
        label=_("File"),
        max_length=255,
        error_messages={"required": _("Choose a file first.")},
    )


@login_required
@never_cache
@require_GET
def export_conversation(request: HttpRequest, conversation_id: str) -> HttpResponseBase:
    """The choice of formats; with `format` the file."""
    row = load(Conversation.objects.of(request.user).filter(pk=conversation_id))
    if row is None or row.is_temporary:
        raise Http404
    form = request.GET.get("format", "")
    if form not in CONTENT_TYPES:
        context = {"conversation": row}
        return render(request, "conversations/library/export.html", context)
    record_event("data.export", target=row, subject=request.user)
    return download(
        request, write(row, form), CONTENT_TYPES[form], file_name(row, form)
    )


@login_required
@never_cache
@require_GET
def export_all(request: HttpRequest) -> HttpResponseBase:
    file_format = _format_of(request)
    if not is_proven(request):
        query = urlencode({"format": file_format})
        return redirect(f"{reverse('export-download')}?{query}")
    rows = Conversation.objects.of(request.user).kept()
    user = request.user
    files = load_folder_files(user)
    return export_of(request, rows, file_format, write_account(user), files)


@login_required
@requires_proof("GET")
@never_cache
@require_GET
def download_page(request: HttpRequest) -> HttpResponse:
    """The page after the question for the password; it starts the download. A browser
    that is redirected to a download itself stays on the page with the question."""
    query = urlencode({"format": _format_of(request)})
    address = f"{reverse('export-all')}?{query}"
    context = {"address": address}
    response = render(request, "conversations/library/download_page.html", context)
    response["Refresh"] = f"0; url={address}"
    return response


def _format_of(request: HttpRequest) -> str:
    name = request.GET.get("format", "json")
    return name if name in CONTENT_TYPES else "json"


def export_of(
    request: HttpRequest,
    rows: ConversationQuerySet,
    form: str,
    account: bytes | None = None,
    files: Iterable[FolderFile] = (),
) -> HttpResponseBase:
    """An archive of the conversations, and of what the account has besides."""
    details = {"format": form, "conversations": rows.count()}
    record_event("data.export", subject=request.user, details=details)
    pieces = write_zip(rows, form, account, files)
    return download(request, pieces, "application/zip", "parley-conversations.zip")


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def imports(request: HttpRequest) -> HttpResponse:
    is_upload = request.method == "POST"
    form = ImportForm(request.POST, request.FILES) if is_upload else ImportForm()
    if form.is_valid():
        try:
            row = importing.accept(request.user, form.cleaned_data["file"])
        except importing.ImportRefused as exc:
            form.add_error("file", str(exc))
        else:
            importing.start(row)
            return redirect("import", row.pk)
    rows = ConversationImport.objects.of(request.user)[:LISTED]
    context: dict[str, Any] = {"form": form, "imports": rows}
    status = 400 if form.is_bound else 200
    return render(request, "conversations/library/imports.html", context, status=status)


@login_required
@never_cache
@require_GET
def show_import(request: HttpRequest, pk: int) -> HttpResponse:
    """The progress of an import, and what it has left out."""
    row = get_object_or_404(ConversationImport.objects.of(request.user), pk=pk)
    response = render(request, "conversations/library/import.html", {"row": row})
    if not row.is_finished:
        response["Refresh"] = "2"
    return response
