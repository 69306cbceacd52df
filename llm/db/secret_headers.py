"""Abstract model with secret headers: names in plain text, values encrypted."""

from __future__ import annotations

import json
from collections.abc import Mapping

from django.db import models

from llm.db.bound_secrets import canonical_origin
from llm.db.encrypted_field import EncryptedTextField, SecretUnavailable
from llm.db.revealable_secret import reveal_headers
from llm.db.secret_rows import SecretRow, why_not_sent


class SecretHeaders(SecretRow):
    secret_names = models.JSONField(default=list, editable=False)
    secret_headers = EncryptedTextField(blank=True, default="", editable=False)

    class Meta:
        abstract = True

    def secret_origin(self, column: str) -> str:
        url: str = getattr(self, "url", "")
        return canonical_origin(url)

    def set_secret_headers(self, headers: Mapping[str, str]) -> None:
        """Add these headers or replace stored ones; an empty value removes one.

        Set the row's URL first: headers that were entered for another origin are
        dropped, and all are bound to the row's origin when it is saved.
        """
        new = {name.lower() for name in headers}
        old = {
            name: value
            for name, value in self.get_secret_headers().items()
            if name.lower() not in new
        }
        merged = {name: value for name, value in {**old, **headers}.items() if value}
        self.secret_names = sorted(merged)
        self.secret_headers = json.dumps(merged) if merged else ""

    def get_secret_headers(self) -> dict[str, str]:
        """The stored headers; {} if the key is lost or they were entered for another
        origin, so that staff have to enter them again."""
        try:
            return reveal_headers(self.secret_headers)
        except SecretUnavailable:
            return {}

    @property
    def why_headers_not_sent(self) -> str:
        """Why the headers are not sent, a sentence for staff; "" if they are."""
        return why_not_sent(self.secret_headers, self.secret_origin("secret_headers"))

    @property
    def secrets_not_sent(self) -> list[str]:
        """A sentence for each secret that is not sent."""
        why, names = self.why_headers_not_sent, ", ".join(self.secret_names)
        return [f"{names}: {why}"] if why else []
