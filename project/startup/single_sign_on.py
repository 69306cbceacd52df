"""Store the environment's identity provider: address, client and secret at each start,
the rest only when its row is made."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from llm.db.encrypted_field import SecretUnavailable
from project.accounts.models import IdentityProvider
from project.environment.configuration_error import ConfigurationError
from project.environment.single_sign_on import SingleSignOn

SLUG = "sso"


def store_single_sign_on(given: SingleSignOn) -> None:
    """Raises ConfigurationError."""
    row = IdentityProvider.objects.filter(slug=SLUG).first() or IdentityProvider(
        slug=SLUG,
        label=given.label,
        new_accounts=given.new_accounts,
        email_domains=given.email_domains,
    )
    row.kind, row.server_url, row.client_id = given.kind, given.issuer, given.client_id
    # The address comes from the environment, so it may be in a private network.
    row.allow_private_network = True
    if given.client_secret and not _has_secret(row, given.client_secret):
        row.secret = given.client_secret
    try:
        row.full_clean()
    except ValidationError as exc:
        problem = " ".join(str(line) for line in exc.messages)
        raise ConfigurationError("OIDC_ISSUER", problem) from None
    row.save()


def _has_secret(row: IdentityProvider, text: str) -> bool:
    try:
        return bool(row.secret) and row.secret.reveal() == text
    except SecretUnavailable:
        return False
