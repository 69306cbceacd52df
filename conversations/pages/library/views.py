"""The library: search with filters, and changes of many conversations at once."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST
from rest_framework.exceptions import ValidationError

from conversations.models import Conversation, Folder
from conversations.models.keyboard_shortcuts import LIBRARY_ACTIONS
from conversations.pages.forms.chat_options_form import ChatOptionsForm
from conversations.pages.library.forms import FilterForm, OrganiseForm
from conversations.pages.library.transfer_views import export_of
from conversations.pages.notices.next_page_message import say_saved
from conversations.requests.branches import restore_conversations
from conversations.requests.bulk import MAX_IDS, BulkSerializer, find_tags
from conversations.search.filters import SearchFilters
from conversations.search.results import PAGE, SearchResults, find_conversations

#: Key of a session: ids of deleted conversations, and until when to offer Undo.
_DELETION = "library_deletion"
UNDO_TIME = 600  # seconds that the library's pages offer Undo


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def library(request: HttpRequest) -> HttpResponseBase:
    if request.method == "POST":
        return _change(request)
    return _list(request, request.GET)


def _list(request: HttpRequest, query: QueryDict, *, status: int = 200) -> HttpResponse:
    """The page of the list that `query` filters, with what a refused form has chosen.

    It answers a form that changes nothing, so that no choice has to be made again.
    """
    form = FilterForm(query, user=request.user)
    form.is_valid()
    filters, words = form.filters(), form.cleaned_data.get("q") or ""
    start = form.cleaned_data.get("start") or 0
    found = find_conversations(request.user, words, start, filters)
    context = {
        "form": form,
        "found": _rows(found),
        "results": found,
        "links": _page_links(query, found, start),
        "folders": Folder.objects.of(request.user),
        "is_archive": filters == SearchFilters(archived="only") and not words,
        "back": f"{reverse('library')}{f'?{query.urlencode()}' if query else ''}",
        "ticked": request.POST.getlist("ids"),
        "chosen_folder": request.POST.get("folder", ""),
        "written_tag": request.POST.get("tag", ""),
        "deleted_ids": _restorable_ids(request),
        "shortcut_actions": LIBRARY_ACTIONS,
        "is_library": True,
    }
    page = "conversations/library/library.html"
    return render(request, page, context, status=status)


def _rows(found: SearchResults) -> list[dict[str, Any]]:
    """The results, each with its row."""
    rows = Conversation.objects.select_related("folder").prefetch_related("tags")
    by_id = rows.in_bulk([each.id for each in found.conversations])
    return [
        {"found": each, "row": by_id[each.id]}
        for each in found.conversations
        if each.id in by_id
    ]


def _page_links(query: QueryDict, found: SearchResults, start: int) -> dict[str, str]:
    links = {}
    if start:
        links["previous"] = _with_start(query, max(0, start - PAGE))
    if found.has_more:
        links["next"] = _with_start(query, start + PAGE)
    return links


def _with_start(query: QueryDict, start: int) -> str:
    changed = query.copy()
    changed["start"] = str(start)
    return f"?{changed.urlencode()}"


def _change(request: HttpRequest) -> HttpResponseBase:
    """Apply the chosen action to the ticked conversations, and show the list again."""
    back = _back(request)
    ids = request.POST.getlist("ids")
    if not ids:
        return _refuse(request, back, _("Choose at least one conversation."))
    if request.POST.get("action") == "export":
        rows = Conversation.objects.of(request.user).kept().filter(pk__in=ids[:MAX_IDS])
        return export_of(request, rows, "json")
    if request.POST.get("action") == "restore":
        _restore(request, ids[:MAX_IDS])
        return redirect(back)
    data: dict[str, Any] = {"ids": ids, "action": request.POST.get("action", "")}
    data |= {"tag": tag} if (tag := request.POST.get("tag", "").strip()) else {}
    data |= {"folder": request.POST.get("folder") or None}
    change = BulkSerializer(data=data, context={"user": request.user})
    try:
        change.is_valid(raise_exception=True)
        changed = change.apply()
    except ValidationError as exc:
        return _refuse(request, back, " ".join(_problems(exc.detail)))
    if changed and data["action"] == "delete":  # said beside Undo
        until = time.time() + UNDO_TIME
        request.session[_DELETION] = {"ids": changed, "until": until}
        return redirect(back)
    text = ngettext(
        "%(count)s conversation changed.",
        "%(count)s conversations changed.",
        len(changed),
    )
    messages.success(request, text % {"count": len(changed)})
    return redirect(back)


def _refuse(request: HttpRequest, back: str, why: str) -> HttpResponse:
    messages.error(request, why)
    return _list(request, QueryDict(urlsplit(back).query), status=400)


def _restorable_ids(request: HttpRequest) -> list[str]:
    """Ids of the conversations that the last bulk deletion of this session removed, for
    `UNDO_TIME`. Reading them keeps them, because another tab or a browser that loads
    pages in advance may read them first."""
    deletion = request.session.get(_DELETION, {"ids": [], "until": 0})
    ids: list[str] = deletion["ids"]
    return ids if time.time() < deletion["until"] else []


def _restore(request: HttpRequest, ids: list[str]) -> None:
    request.session.pop(_DELETION, None)
    cleaned = [each.replace("\0", "")[:64] for each in ids]
    count = restore_conversations(request.user, cleaned)
    text = ngettext(
        "%(count)s conversation restored.", "%(count)s conversations restored.", count
    )
    messages.success(request, text % {"count": count})


def _problems(detail: Any) -> list[str]:
    if isinstance(detail, dict):
        return [text for each in detail.values() for text in _problems(each)]
    if isinstance(detail, list):
        return [text for each in detail for text in _problems(each)]
    return [str(detail)]


def _back(request: HttpRequest) -> str:
    """The address of the list that sent the form, if it is one of the library."""
    library_url, back = reverse("library"), request.POST.get("back", "")
    is_inside = back == library_url or back.startswith(f"{library_url}?")
    return back if is_inside else library_url


@login_required
@require_POST
def pin_or_archive(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Pin or archive one conversation, or undo that."""
    row = get_object_or_404(
        Conversation.objects.of(request.user).kept(), pk=conversation_id
    )
    data = {"ids": [row.pk], "action": request.POST.get("action", "")}
    if data["action"] in ("pin", "unpin", "archive", "unarchive"):
        change = BulkSerializer(data=data, context={"user": request.user})
        change.is_valid(raise_exception=True)
        change.apply()
    return redirect(_open_page(request, request.POST.get("current", "")))


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def organise(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Folder and tags of one conversation."""
    row = get_object_or_404(
        Conversation.objects.of(request.user).kept(), pk=conversation_id
    )
    form = OrganiseForm(request.POST or None, instance=row, user=request.user)
    back = _open_page(request, request.GET.get("current", row.pk))
    if form.is_valid():
        try:
            tags = find_tags(request.user, form.cleaned_data["labels"])
        except ValidationError as exc:
            form.add_error("labels", " ".join(_problems(exc.detail)))
        else:
            with transaction.atomic():
                form.save()
                row.tags.set(tags)
            say_saved(request)
            return redirect(back)
    context = {"conversation": row, "form": form, "back": back}
    return render(request, "conversations/library/organise.html", context)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def options(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Instructions and effort of one conversation."""
    row = get_object_or_404(
        Conversation.objects.of(request.user).kept(), pk=conversation_id
    )
    form = ChatOptionsForm(request.POST or None, instance=row)
    back = _open_page(request, request.GET.get("current", row.pk))
    if form.is_valid():
        form.save()
        say_saved(request)
        return redirect(back)
    context = {"conversation": row, "form": form, "back": back}
    return render(request, "conversations/library/options.html", context)


def _open_page(request: HttpRequest, current: str) -> str:
    """The page of the conversation `current` if the user sees it, else of a new one:
    it may be one of another person, in whose chat this user is a guest."""
    current = current.replace("\0", "")[:64]
    if Conversation.objects.visible_to(request.user).filter(pk=current).exists():
        return reverse("conversation", args=[current])
    return reverse("chat")
