"""What a provisioning program calls a user or a group (SCIM's externalId)."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models


class ScimResource(models.Model):
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        related_name="scim_resource",
    )
    group = models.OneToOneField(
        Group, models.CASCADE, null=True, related_name="scim_resource"
    )
    external_id = models.CharField(max_length=254, db_index=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.external_id
