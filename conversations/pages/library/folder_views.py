"""Pages of folders: their list, and one folder with its instructions and files."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from conversations.models import Folder
from conversations.pages.confirmation import ask_before_deleting
from conversations.pages.library.forms import FolderFileForm, FolderForm
from conversations.pages.notices.next_page_message import say_done, say_saved


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def folders(request: HttpRequest) -> HttpResponse:
    form = FolderForm(request.POST or None, user=request.user)
    if form.is_valid() and (saved := form.save_once()):
        return redirect("folder", saved.pk)
    shown = Q(
        conversations__deleted_at=None,
        conversations__is_temporary=False,
        conversations__isnull=False,
    )
    rows = Folder.objects.of(request.user)
    rows = rows.annotate(count=Count("conversations", filter=shown))
    context = {"folders": rows, "form": form}
    status = 400 if form.is_bound else 200
    return render(request, "conversations/library/folders.html", context, status=status)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def folder(request: HttpRequest, folder_id: int) -> HttpResponse:
    row = _folder(request, folder_id)
    form = FolderForm(request.POST or None, instance=row, user=request.user)
    if form.is_valid() and form.save_once():
        say_saved(request)
        return redirect("folder", row.pk)
    return _page(request, folder_id, form, FolderFileForm())


@login_required
@require_POST
def add_file(request: HttpRequest, folder_id: int) -> HttpResponse:
    row = _folder(request, folder_id)
    form = FolderFileForm(request.POST, request.FILES)
    if form.is_valid() and form.add_to(row):
        say_saved(request)
        return redirect("folder", row.pk)
    return _page(request, folder_id, FolderForm(instance=row, user=request.user), form)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete_file(request: HttpRequest, folder_id: int, file_id: int) -> HttpResponse:
    rows = _folder(request, folder_id).files.defer("text")
    row = get_object_or_404(rows, pk=file_id)
    if request.method == "POST":
        row.delete()
        say_done(request, _("The file “%(name)s” was deleted.") % {"name": row.name})
        return redirect("folder", folder_id)
    back = reverse("folder", args=[folder_id])
    return ask_before_deleting(request, _("Delete this file?"), row.name, back)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete_folder(request: HttpRequest, folder_id: int) -> HttpResponse:
    """Delete the folder; its conversations stay, without a folder. Asks first, because
    the files are gone for good."""
    row = _folder(request, folder_id)
    if request.method == "POST":
        row.delete()
        say_done(request, _("The folder “%(name)s” was deleted.") % {"name": row.name})
        return redirect("folders")
    context = {"folder": row, "count": row.files.count()}
    return render(request, "conversations/library/delete_folder.html", context)


def _folder(request: HttpRequest, folder_id: int) -> Folder:
    found: Folder = get_object_or_404(Folder.objects.of(request.user), pk=folder_id)
    return found


def _page(
    request: HttpRequest, folder_id: int, form: FolderForm, file_form: FolderFileForm
) -> HttpResponse:
    # Read again: an invalid form has changed its instance.
    row = _folder(request, folder_id)
    context = {
        "folder": row,
        "files": row.files.defer("text"),
        "form": form,
        "file_form": file_form,
    }
    status = 400 if form.is_bound or file_form.is_bound else 200
    return render(request, "conversations/library/folder.html", context, status=status)
