"""Generator of the OpenAPI document.

Imported on the first request for the document, because drf-spectacular's generator
imports Django's test client, which takes 4 MB.
"""

from __future__ import annotations

from typing import Any

from django.urls import get_resolver
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator

from conversations.api import schema


class Generator(SchemaGenerator):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        get_resolver().url_patterns  # noqa: B018 - it imports the views, which describe
        schema.apply_descriptions()
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]


class _TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "conversations.api.authentication.TokenAuthentication"
    name = "accessToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
