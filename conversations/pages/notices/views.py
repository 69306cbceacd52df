"""The page of the terms of use, and the button that dismisses an announcement."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from conversations.access.policy import announcements, terms
from conversations.models import TermsAcceptance, TermsVersion


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def terms_page(request: HttpRequest) -> HttpResponse:
    """The newest terms. A POST accepts them, if it names the version that is newest
    still."""
    from conversations.pages.markdown import render as render_markdown  # is large

    newest = TermsVersion.objects.newest()
    if newest is None:
        raise Http404
    values = request.POST if request.method == "POST" else request.GET
    wanted = _safe_next(request, values.get("next", ""))
    is_outdated = False
    if request.method == "POST":
        if request.POST.get("version") == str(newest.number):
            terms.accept(newest, request.user, request.session)
            return redirect(wanted or "chat")
        is_outdated = True
    own = TermsAcceptance.objects.filter(user=request.user.pk, terms=newest).first()
    context = {
        "terms": newest,
        "text": render_markdown(newest.text),
        "accepted_at": own and own.accepted_at,
        "next": wanted,
        "is_outdated": is_outdated,
    }
    status = 409 if is_outdated else 200
    template = "conversations/notices/terms.html"
    return render(request, template, context, status=status)


@login_required
@require_POST
def dismiss_announcement(request: HttpRequest, pk: int) -> HttpResponse:
    if not announcements.dismiss(request.user, pk):
        raise Http404
    return redirect(_safe_next(request, request.POST.get("next", "")) or "chat")


def _safe_next(request: HttpRequest, wanted: str) -> str:
    """The address of a page of this server, else ""."""
    if not wanted.startswith("/"):
        return ""
    is_safe = url_has_allowed_host_and_scheme(
        wanted, {request.get_host()}, require_https=request.is_secure()
    )
    return wanted if is_safe else ""
