"""View of the OpenAPI documents, each generated once a process and served with an ETag.

Import it when a document is requested: drf-spectacular needs 4 MB.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    QueryDict,
)
from django.utils.module_loading import import_string
from django.utils.translation import override
from django.views.decorators.http import etag
from drf_spectacular.views import SpectacularAPIView

_PARAMETERS = ("format", "lang", "version")
_JSON_TYPES = ("application/vnd.oai.openapi+json", "application/json")


def respond(request: HttpRequest, generator: str) -> HttpResponseBase:
    """The document, or 304 if the client has it. It is the same for all users.

    `generator` is the path of a generator's class.
    """
    for name in request.GET:
        if name not in _PARAMETERS:
            known = ", ".join(_PARAMETERS)
            return _refuse(name[:100], f"{name[:100]}: unknown; use {known}.")
    form = request.GET.get("format", "")
    if form not in ("", "json", "yaml"):
        return SpectacularAPIView.as_view()(request)  # it answers with an error
    accept_header = request.headers.get("Accept", "")
    accept = next((kind for kind in _JSON_TYPES if kind in accept_header), "*/*")
    made = render_document(generator, form, accept)
    respond_once: Any = etag(lambda _: made["ETag"])(
        lambda _: HttpResponse(made.content, headers=made.headers)
    )
    response: HttpResponseBase = respond_once(request)
    return response


def _refuse(name: str, message: str) -> HttpResponse:
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": name,
        "code": "unknown_parameter",
    }
    return JsonResponse({"error": error}, status=400)


@cache
def render_document(generator: str, form: str, accept: str) -> HttpResponse:
    request = HttpRequest()
    request.method = "GET"
    request.META = {"HTTP_ACCEPT": accept, "SERVER_NAME": "localhost"}
    request.META["SERVER_PORT"] = "80"
    request.GET = QueryDict(f"format={form}" if form else "")
    view = SpectacularAPIView.as_view(generator_class=import_string(generator))
    with override("en"):  # its titles are those of columns, which are translated
        response: Any = view(request)
        response.render()
    response["Cache-Control"] = "no-cache"
    response["ETag"] = f'"{sha256(response.content).hexdigest()}"'
    made: HttpResponse = response
    return made
