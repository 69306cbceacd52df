"""Model of users' own sign-ins at MCP servers at which each user signs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.db.secret_rows import why_not_sent
from tools.mcp.row_access import sign_in_columns
from tools.mcp.server_spec import AuthorizationCode, ServerSpec
from tools.models.stored_sign_in import StoredSignIn


class McpUserSignInQuerySet(models.QuerySet["McpUserSignIn"]):
    def store(self, server: Any, user: Any, state: Mapping[str, Any]) -> None:
        """Store the tokens of a sign-in; they replace the user's earlier ones."""
        known = McpUserSignIn.objects.filter(server=server, user=user).first()
        row = known or McpUserSignIn(server=server, user=user)
        values = {**sign_in_columns(state), "signed_in_at": timezone.now()}
        for name, value in values.items():
            setattr(row, name, value)
        row.save()

    def find_servers(self, user_id: int) -> set[int]:
        """Ids of the servers at which this user is signed in."""
        rows = self.filter(user=user_id).select_related("server")
        return {row.server_id for row in rows if row.is_usable}


class McpUserSignIn(StoredSignIn):
    server = models.ForeignKey(
        "tools.McpServer", models.CASCADE, related_name="user_sign_ins"
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")

    objects = McpUserSignInQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        ordering = ["server__name"]
        verbose_name = _("user's sign-in at an MCP server")
        verbose_name_plural = _("users' sign-ins at MCP servers")
        constraints = [
            models.UniqueConstraint(
                fields=["server", "user"], name="tools_mcpusersignin_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.server}: {self.user}"

    def secret_origin(self, column: str) -> str:
        return self.server.secret_origin("sign_in")

    @property
    def signed_in_by(self) -> Any:
        return self.user

    @property
    def is_usable(self) -> bool:
        """False if the tokens are forgotten, have expired or cannot be read, or if the
        server has another address now."""
        if self.server.oauth_flow != self.server.Flow.USER:
            return False
        if self.has_expired or not self.is_signed_in:
            return False
        return not why_not_sent(self.sign_in, self.secret_origin("sign_in"))

    @property
    def spec(self) -> ServerSpec:
        return self.with_tokens(self.server.spec)

    def with_tokens(self, server: ServerSpec) -> ServerSpec:
        """The values of a connection with this user's tokens."""
        if not isinstance(server.oauth, AuthorizationCode):
            return server
        oauth = replace(server.oauth, store=self.token_store())
        return replace(server, oauth=oauth, account=self.user_id)

    def sign_out(self) -> None:
        """Delete the tokens; `tools.mcp.sign_out` also revokes them."""
        self.delete()
