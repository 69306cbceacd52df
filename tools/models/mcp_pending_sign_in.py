"""Model of OAuth sign-ins that are in progress."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.db.encrypted_field import EncryptedTextField, Secret, SecretUnavailable
from llm.db.secret_rows import SecretRow
from tools.mcp.errors import SignInFailed
from tools.models.mcp_server import McpServer

TIME_TO_SIGN_IN = timedelta(minutes=10)


class McpSignInQuerySet(models.QuerySet["McpSignIn"]):
    def begin(
        self, server: McpServer, user: Any, state: str, secrets: Mapping[str, Any]
    ) -> McpSignIn:
        """Store a sign-in; replace an earlier one of this user. `secrets` is JSON."""
        self.filter(expires_at__lt=timezone.now()).delete()
        row, _made = self.update_or_create(
            server=server,
            user=user,
            defaults={
                "state": _digest(state),
                "secrets": Secret.of(json.dumps(secrets)),
                "expires_at": timezone.now() + TIME_TO_SIGN_IN,
            },
        )
        return row

    def take(self, state: str, user: Any) -> tuple[McpServer, dict[str, Any]]:
        """Remove and return a sign-in. Raises SignInFailed if this user has none with
        this state, or if it has expired."""
        rows = self.filter(state=_digest(state), user=user)
        row = rows.select_related("server").first()
        if row is None or not rows.filter(pk=row.pk).delete()[0]:
            raise SignInFailed(_UNKNOWN_SIGN_IN)
        if row.expires_at < timezone.now():
            raise SignInFailed(_EXPIRED_SIGN_IN)
        try:
            secrets: dict[str, Any] = json.loads(row.secrets.reveal())
        except SecretUnavailable as exc:
            raise SignInFailed(_UNKNOWN_SIGN_IN) from exc
        return row.server, secrets


class McpSignIn(SecretRow):
    server = models.ForeignKey(McpServer, models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    state = models.CharField(max_length=64, unique=True)  # its digest
    secrets = EncryptedTextField()
    expires_at = models.DateTimeField()

    objects = McpSignInQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        verbose_name = _("sign-in at an MCP server")
        constraints = [
            models.UniqueConstraint(
                fields=["server", "user"], name="tools_mcpsignin_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.server}: {self.user}"

    def secret_origin(self, column: str) -> str:
        return self.server.secret_origin("sign_in")


_UNKNOWN_SIGN_IN = (
    "there is no such sign-in in this browser, or it is over. Start the sign-in again"
    " here."
)
_EXPIRED_SIGN_IN = "the sign-in took too long. Start it again."


def _digest(state: str) -> str:
    return sha256(state.encode()).hexdigest()
