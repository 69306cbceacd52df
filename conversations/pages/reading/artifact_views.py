"""Pages of an artifact: its preview with versions, its sandboxed content, its file."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_GET

from conversations.models import Turn
from conversations.pages.reading.artifacts import (
    Artifact,
    find_artifact,
    versions_of,
)

#: What a model wrote may run its own scripts, with an opaque origin: no cookies, no
#: storage, no access to our pages, and no requests. `allow-same-origin` must never be
#: added. Our pages' `frame-src 'self'` keeps the frame from leaving for another host.
#: WebRTC is not stopped: Chromium has no directive for it, and names an unknown one as
#: an error of the page. Nor does every browser heed X-DNS-Prefetch-Control: a document
#: can still send a few bytes to an address, or in a name that the browser looks up.
POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline';"
    " style-src 'unsafe-inline'; img-src data: blob:; font-src data:;"
    " media-src data: blob:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'self'"
)


@login_required
@never_cache
@require_GET
def artifact(
    request: HttpRequest, turn_id: str, item: int, number: int
) -> HttpResponse:
    """The preview, or with `?view=code` the source."""
    turn, found = _find(request, turn_id, item, number)
    versions = versions_of(turn, found)
    context = {
        "turn": turn,
        "artifact": found,
        "versions": versions,
        "is_code": request.GET.get("view") == "code",
    }
    return render(request, "conversations/reading/artifact.html", context)


@login_required
@never_cache
@require_GET
@xframe_options_sameorigin
def content(request: HttpRequest, turn_id: str, item: int, number: int) -> HttpResponse:
    """The document itself, for the frame of the preview only."""
    _, found = _find(request, turn_id, item, number)
    if request.headers.get("Sec-Fetch-Dest") == "document":
        # On its own it could leave for another host and take its text along.
        return redirect("artifact", *found.address)
    response = HttpResponse(found.document, content_type="text/html; charset=utf-8")
    response["Content-Security-Policy"] = POLICY
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "no-referrer"
    response["X-DNS-Prefetch-Control"] = "off"
    return response


@login_required
@never_cache
@require_GET
def download(
    request: HttpRequest, turn_id: str, item: int, number: int
) -> HttpResponse:
    _, found = _find(request, turn_id, item, number)
    response = HttpResponse(
        found.source, content_type=f"{found.file_type}; charset=utf-8"
    )
    response["Content-Security-Policy"] = POLICY
    response["Cache-Control"] = "no-store"
    disposition = content_disposition_header(True, found.file_name)
    response["Content-Disposition"] = disposition or "attachment"
    return response


def _find(
    request: HttpRequest, turn_id: str, item: int, number: int
) -> tuple[Turn, Artifact]:
    turn = get_object_or_404(Turn.objects.visible_to(request.user), pk=turn_id)
    if (found := find_artifact(turn, item, number)) is None:
        raise Http404
    return turn, found
