"""Row of a stored request to a provider and its response, for staff."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from llm.http.recording import Recording, unpack


class ModelExchange(models.Model):
    """What was sent to a provider and what it answered, without keys."""

    call = models.OneToOneField(
        "ModelCall", models.CASCADE, primary_key=True, related_name="exchange"
    )
    content = models.BinaryField()  # as `Recording.pack` makes it
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        default_permissions = ["view"]
        verbose_name = _("request and response")
        verbose_name_plural = _("requests and responses")

    def __str__(self) -> str:
        return str(self.pk)

    @staticmethod
    def store(recordings: Iterable[tuple[int, Recording]]) -> None:
        """One statement, for recordings by the id of their call."""
        rows = [
            ModelExchange(call_id=call_id, content=recording.pack())
            for call_id, recording in recordings
        ]
        ModelExchange.objects.bulk_create(rows)

    def read(self) -> dict[str, Any]:
        return unpack(bytes(self.content))
