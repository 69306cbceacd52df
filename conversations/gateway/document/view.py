"""View of the gateway's OpenAPI document."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt


@csrf_exempt
def document(request: HttpRequest) -> HttpResponseBase:
    # Imported late: the document is rarely requested, and generating it needs 4 MB.
    from conversations.http.openapi_view import respond

    return respond(request, "conversations.gateway.document.generator.GatewayGenerator")
