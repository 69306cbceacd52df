"""What the SCIM service supports, as its document for clients says."""

from __future__ import annotations

from typing import Any

from django_scim.models import SCIMServiceProviderConfig

from project.accounts.scim.authentication import MAX_ROWS


class ServiceConfig(SCIMServiceProviderConfig):
    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = super().to_dict()
        found["filter"] = {"supported": True, "maxResults": MAX_ROWS}
        found["changePassword"] = {"supported": False}
        return found
