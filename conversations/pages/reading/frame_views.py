"""The sandboxed frame in which diagrams are drawn."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_GET

#: The frame has an opaque origin: no cookies, no storage, no access to the page. It
#: loads its two scripts and nothing else.
POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self';"
    " style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'self'"
)


@require_GET
@xframe_options_sameorigin
def mermaid_frame(request: HttpRequest) -> HttpResponse:
    """The same page for everybody; it holds nothing of anyone's."""
    response = render(request, "conversations/reading/mermaid_frame.html")
    response["Content-Security-Policy"] = POLICY
    response["Cache-Control"] = "max-age=3600"
    return response
