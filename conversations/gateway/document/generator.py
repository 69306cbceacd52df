"""Generator of the gateway's OpenAPI document, for drf-spectacular's view.

Imported on the first request for the document.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.generators import SchemaGenerator

from conversations.gateway import openapi


class GatewayGenerator(SchemaGenerator):
    def get_schema(self, request: Any = None, public: bool = False) -> dict[str, Any]:
        about = settings.SPECTACULAR_SETTINGS
        return openapi.document(
            {
                "title": f"{about['TITLE']}: the gateway",
                "version": about["VERSION"],
                "license": about["LICENSE"],
                "description": "Vendors' APIs for every model behind Parley.",
            }
        )
