"""Pages on which people share conversations by link, and the page behind a link."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from conversations.access import admission
from conversations.access.errors import TooFast
from conversations.access.sharing import (
    allowed_audiences,
    find_open_link,
    needs_sign_in,
    take_view,
)
from conversations.access.sign_in_attempts import sign_in_address
from conversations.forms.share_form import ShareForm
from conversations.http.file_download import download
from conversations.models import Conversation, ShareLink
from conversations.pages.markdown_limits import RenderingBudget
from conversations.pages.notices.next_page_message import say_done
from conversations.pages.refusals import mark_refused
from conversations.pages.shared_transcript import (
    find_shared_file,
    find_titles,
    shared_transcript,
)
from conversations.turns.error_texts import in_own_language
from llm.db.encrypted_field import SecretUnavailable

MAX_RENDERED = 200_000  # characters of a page's answers; beyond them text is plain

# The owner's pages


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def share(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The conversation's links, and a form for a new one."""
    row = get_object_or_404(Conversation.objects.of(request.user), pk=conversation_id)
    if request.method != "POST":
        initial = {"turn": request.GET.get("turn", "").replace("\0", "")[:64]}
        return _share_page(request, row, _form(request, row, initial=initial))
    form = _form(request, row, data=request.POST)
    try:
        admission.take_user_request(request.user, admission.request_size(request))
    except TooFast as exc:
        return _too_fast(request, exc)
    if link := form.create():
        page = reverse("share", args=[row.pk])
        return redirect(f"{page}#{link.pk}")
    return _share_page(request, row, form, status=400)


@login_required
@never_cache
@require_safe
def shares(request: HttpRequest) -> HttpResponse:
    """All links of the user, newest first."""
    links = ShareLink.objects.of(request.user).select_related("conversation", "group")
    context = {"links": [_described(request, link) for link in links]}
    return render(request, "conversations/sharing/shares.html", context)


@login_required
@require_POST
def revoke_share(request: HttpRequest, share_id: str) -> HttpResponse:
    link = get_object_or_404(ShareLink.objects.of(request.user), pk=share_id)
    link.revoke()
    say_done(request, _("The link was revoked."))
    if request.POST.get("back") == "conversation":
        return redirect("share", link.conversation_id)
    return redirect("shares")


def _form(request: HttpRequest, row: Conversation, **kwargs: Any) -> ShareForm:
    return ShareForm(user=request.user, conversation=row, **kwargs)


def _share_page(
    request: HttpRequest, row: Conversation, form: ShareForm, status: int = 200
) -> HttpResponse:
    links = ShareLink.objects.of(request.user).filter(conversation=row)
    context = {
        "conversation": row,
        "form": form,
        "may_share": bool(allowed_audiences(request.user)),
        "links": [_described(request, each) for each in links.select_related("group")],
    }
    name = "conversations/sharing/share.html"
    return render(request, name, context, status=status)


def _described(request: HttpRequest, link: ShareLink) -> dict[str, Any]:
    """Template context: a link, and its address if that can be decrypted."""
    try:
        path = reverse("shared", args=[link.token.reveal()])
    except SecretUnavailable:
        return {"link": link, "url": ""}
    return {"link": link, "url": request.build_absolute_uri(path)}


# The page behind a link

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address contains the token
    "X-Robots-Tag": "noindex, nofollow",
}

View = Callable[..., HttpResponse]


def _behind_link(view: View) -> View:
    """Find the link of the token, or answer as if there were none."""

    @wraps(view)
    def respond(request: HttpRequest, token: str, **kwargs: Any) -> HttpResponse:
        try:
            follows = "state" in request.GET
            take_view(request.user, sign_in_address(request), follows=follows)
        except TooFast as exc:
            return _finish(_too_fast(request, exc))
        if link := find_open_link(token, request.user):
            try:
                return _finish(view(request, link, token, **kwargs))
            except Http404:
                return _finish(_not_found(request))
        if not request.user.is_authenticated and needs_sign_in(token):
            return _finish(redirect_to_login(request.path))
        return _finish(_not_found(request))

    return respond


@require_safe
@_behind_link
def shared(request: HttpRequest, link: ShareLink, token: str) -> HttpResponse:
    """What the link shows, read-only. With the `state` that a page has: nothing, if
    that is what the link still shows."""
    number = request.GET.get("page", "")
    is_number = number.isascii() and number.isdecimal()
    page = int(number[:6]) if is_number else 1
    window, titles = shared_transcript(link, token, page), find_titles(link)
    state, known = window.state(titles), request.GET.get("state")
    if known == state:
        return HttpResponse(status=204)
    is_view = known is None and request.method == "GET" and page == 1
    if is_view and request.user.pk != link.owner_id:
        link.count_view()
    context = {"link": link, "token": token, "window": window, "state": state, **titles}
    context["budget"] = RenderingBudget(MAX_RENDERED)
    return render(request, "conversations/sharing/shared.html", context)


@require_safe
@_behind_link
def shared_file(
    request: HttpRequest, link: ShareLink, token: str, file_id: str
) -> HttpResponse:
    if (row := find_shared_file(link, file_id)) is None:
        raise Http404
    return download(row, "no-store")


def _finish(response: HttpResponse) -> HttpResponse:
    for name, value in _HEADERS.items():
        response[name] = value
    return response


def _not_found(request: HttpRequest) -> HttpResponse:
    return render(request, "conversations/sharing/closed.html", status=404)


def _too_fast(request: HttpRequest, exc: TooFast) -> HttpResponse:
    context = {"message": in_own_language(str(exc))}
    name = "conversations/sharing/too_fast.html"
    return mark_refused(render(request, name, context), exc)
