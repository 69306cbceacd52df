"""Abstract model with the tokens of one sign-in at an MCP server."""

from __future__ import annotations

from typing import Any, cast

from django.db import models
from django.utils import timezone

from llm.db.bound_secrets import Binding
from llm.db.encrypted_field import EncryptedTextField, binding_of
from llm.db.secret_rows import SecretRow
from tools.mcp.row_access import RowTokenStore


class StoredSignIn(SecretRow):
    sign_in = EncryptedTextField(blank=True, default="", editable=False)
    signed_in_at = models.DateTimeField(null=True, editable=False)
    signed_in_until = models.DateTimeField(null=True, editable=False)
    sign_in_renews = models.BooleanField(default=False, editable=False)
    renewing_until = models.DateTimeField(null=True, editable=False)

    class Meta:
        abstract = True

    @property
    def is_signed_in(self) -> bool:
        return bool(self.sign_in)

    @property
    def has_expired(self) -> bool:
        """True if the tokens have expired and cannot be renewed."""
        until = self.signed_in_until
        return bool(until and not self.sign_in_renews and until < timezone.now())

    def token_store(self) -> RowTokenStore:
        binding = self.sign_in_binding()
        return RowTokenStore(type(self), self.pk, self.signed_in_at, binding)

    def sign_in_binding(self) -> Binding:
        column: Any = self._meta.get_field("sign_in")
        return binding_of(cast(EncryptedTextField, column), self)
