"""View of the OpenAPI document, generated once a process and served with an ETag."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.utils.cache import get_conditional_response, set_response_etag
from drf_spectacular.views import SpectacularAPIView

_JSON_TYPES = ("application/vnd.oai.openapi+json", "application/json")


def respond(request: HttpRequest) -> HttpResponseBase:
    """The document, or 304 if the client has it. It is the same for all users."""
    form = request.GET.get("format", "")
    if form not in ("", "json", "yaml"):
        return SpectacularAPIView.as_view()(request)  # it answers with an error
    accept_header = request.headers.get("Accept", "")
    accept = next((kind for kind in _JSON_TYPES if kind in accept_header), "*/*")
    made = _render(form, accept)
    response = HttpResponse(made.content, headers=made.headers)
    unchanged = get_conditional_response(request, response["ETag"], response=response)
    return unchanged or response


@cache
def _render(form: str, accept: str) -> HttpResponse:
    request = HttpRequest()
    request.method = "GET"
    request.META = {"HTTP_ACCEPT": accept, "SERVER_NAME": "localhost"}
    request.META["SERVER_PORT"] = "80"
    request.GET = QueryDict(f"format={form}" if form else "")
    response: Any = SpectacularAPIView.as_view()(request)
    response.render()
    response["Cache-Control"] = "no-cache"
    set_response_etag(response)
    made: HttpResponse = response
    return made
