"""Abstract model with the OAuth client and the sign-in of an MCP server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.db.bound_secrets import canonical_origin
from llm.db.encrypted_field import EncryptedTextField, Secret, SecretUnavailable
from tools.http.validation import url_problems
from tools.mcp.row_access import MemoryTokenStore, RowRegistration, sign_in_columns
from tools.mcp.server_spec import AuthorizationCode, ClientCredentials
from tools.models.stored_sign_in import StoredSignIn


class OAuthClient(StoredSignIn):
    class Flow(models.TextChoices):
        MACHINE = "machine", _("client credentials")
        PERSON = "person", _("a member of staff signs in")
        USER = "user", _("each user signs in")

    oauth_flow = models.CharField(
        _("sign-in"),
        max_length=10,
        blank=True,
        choices=Flow.choices,
        help_text=_(
            "Empty if the server needs no sign-in, or secret headers are enough."
        ),
    )
    oauth_client_id = models.CharField(
        _("client id"),
        max_length=500,
        blank=True,
        help_text=_(
            "Client id at the authorization server. If a person signs in, leave empty"
            " to register a client automatically."
        ),
    )
    oauth_issuer = models.CharField(
        _("issuer"),
        max_length=2000,
        blank=True,
        help_text=_(
            "URL of the authorization server at which the client is registered, such"
            " as https://login.host; the secret is sent only there."
        ),
    )
    oauth_scope = models.CharField(
        _("scopes"),
        max_length=1000,
        blank=True,
        help_text=_(
            "Separated by spaces; empty for the scopes that the server asks for."
        ),
    )
    oauth_hint = models.CharField(max_length=20, blank=True, editable=False)
    oauth_secret = EncryptedTextField(
        _("client secret"), blank=True, default="", hint_field="oauth_hint"
    )
    signed_in_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
    )

    class Meta:
        abstract = True

    def clean_oauth(self) -> None:
        """Raises ValidationError."""
        if self.oauth_issuer:
            _raise_field_errors("oauth_issuer", *url_problems(self.oauth_issuer))
        if not self.oauth_flow:
            if self.oauth_client_id:
                _raise_field_errors("oauth_flow", _("Choose how this client signs in."))
            return
        if any(name.lower() == "authorization" for name in self._header_names()):
            problem = _(
                "There is already a secret header Authorization; remove it or choose"
                " no sign-in."
            )
            _raise_field_errors("oauth_flow", problem)
        is_machine = self.oauth_flow == self.Flow.MACHINE
        if is_machine and not self.oauth_client_id:
            _raise_field_errors("oauth_client_id", _("Enter the id of the client."))
        if (is_machine or self.oauth_secret) and not self.oauth_issuer:
            # Without an issuer the MCP server could direct the secret to any host.
            _raise_field_errors("oauth_issuer", _("Name the authorization server."))
        if is_machine and not self.oauth_secret:
            _raise_field_errors("oauth_secret", _("Enter the secret of this client."))

    def oauth_origin(self, url: str) -> str:
        """The origins that OAuth secrets are bound to: the MCP server's, which names
        the authorization server unless staff do, and the issuer's."""
        origins = [canonical_origin(url), canonical_origin(self.oauth_issuer)]
        return " ".join(filter(None, origins))

    def _header_names(self) -> list[str]:
        names: list[str] = getattr(self, "secret_names", [])
        return names

    def oauth(self) -> ClientCredentials | AuthorizationCode | None:
        match self.oauth_flow:
            case self.Flow.MACHINE:
                return ClientCredentials(
                    client_id=self.oauth_client_id,
                    client_secret=self.oauth_secret or None,
                    issuer=self.oauth_issuer,
                    scope=self.oauth_scope,
                )
            case self.Flow.PERSON | self.Flow.USER:
                by_user = self.oauth_flow == self.Flow.USER
                return AuthorizationCode(
                    redirect_uri=UNUSED_REDIRECT_URI,
                    # A user's tokens are added when a call of this user needs them.
                    store=MemoryTokenStore() if by_user else self.token_store(),
                    client_id=self.oauth_client_id,
                    client_secret=self.oauth_secret or None,
                    issuer=self.oauth_issuer,
                    scope=self.oauth_scope,
                    registration=RowRegistration(type(self), self.pk),
                    by_user=by_user,
                )
        return None

    # The client that users share, where each user signs in

    def load_shared_client(self) -> Mapping[str, Any]:
        """The client that was registered for the users; empty if there is none."""
        client: Mapping[str, Any] = self._load_state().get("client") or {}
        return client

    def _load_state(self) -> Mapping[str, Any]:
        try:
            state: Mapping[str, Any] = (
                json.loads(self.sign_in.reveal()) if self.sign_in else {}
            )
        except SecretUnavailable:  # or for another address
            return {}
        return state

    def store_shared_client(self, client: Mapping[str, Any]) -> None:
        """Without tokens: those of a member of staff are not for the users."""
        secret = Secret.of(json.dumps({"client": client}))
        self._set(sign_in=secret, signed_in_at=None, signed_in_by=None)

    def forget_client(self, client_id: str) -> None:
        """Forget the client that registered itself, if it is this one."""
        state = self._load_state()
        if (state.get("client") or {}).get("client_id") == client_id:
            rest = {name: value for name, value in state.items() if name != "client"}
            secret = Secret.of(json.dumps(rest)) if rest else ""
            self._set(sign_in=secret, sign_in_renews=False)

    # The sign-in of a member of staff

    def save_sign_in(self, state: Mapping[str, Any], user: Any) -> None:
        values = {**sign_in_columns(state), "signed_in_at": timezone.now()}
        self._set(**values, signed_in_by=user)

    def sign_out(self) -> None:
        """Delete the stored tokens; `tools.mcp.sign_out` also revokes them."""
        self._set(
            sign_in="",
            signed_in_at=None,
            signed_in_by=None,
            signed_in_until=None,
            sign_in_renews=False,
            renewing_until=None,
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.save(update_fields=list(values))


#: A placeholder: renewing tokens does not use the redirect URI.
UNUSED_REDIRECT_URI = "https://nowhere.invalid/"


def _raise_field_errors(field: str, *sentences: Any) -> None:
    if sentences:
        raise ValidationError({field: list(sentences)})
