"""Headers with secret values, as columns of a row: names to show, values encrypted."""

from __future__ import annotations

import json
from collections.abc import Mapping

from django.db import models

from llm.encrypted import EncryptedTextField, Secret, SecretUnavailable


def revealed(stored: Secret | None) -> dict[str, str]:
    """The headers and their values. Raises SecretUnavailable."""
    if not stored:
        return {}
    headers: dict[str, str] = json.loads(stored.reveal())
    return headers


class SecretHeaders(models.Model):
    secret_names = models.JSONField(default=list, editable=False)
    secret_headers = EncryptedTextField(blank=True, default="", editable=False)

    class Meta:
        abstract = True

    def set_secret_headers(self, headers: Mapping[str, str]) -> None:
        """Adds these or puts them in the place of others; an empty one is removed."""
        new = {name.lower() for name in headers}
        old = {
            name: value
            for name, value in self.revealed_headers().items()
            if name.lower() not in new
        }
        kept = {name: value for name, value in {**old, **headers}.items() if value}
        self.secret_names = sorted(kept)
        self.secret_headers = json.dumps(kept) if kept else ""

    def revealed_headers(self) -> dict[str, str]:
        """None where the key is lost: then all have to be entered again."""
        try:
            return revealed(self.secret_headers)
        except SecretUnavailable:
            return {}
