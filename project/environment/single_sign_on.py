"""The identity provider that environment variables configure."""

from __future__ import annotations

from dataclasses import dataclass, field

from project.environment.configuration_error import ConfigurationError
from project.environment.variables import Environment

KINDS = ["entra", "google", "okta", "keycloak", "oidc"]
POLICIES = ["everybody", "invited", "nobody"]


@dataclass(frozen=True, slots=True)
class SingleSignOn:
    kind: str
    label: str
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    new_accounts: str
    email_domains: str


def read_single_sign_on(env: Environment) -> SingleSignOn | None:
    """None without OIDC_CLIENT_ID."""
    provider = SingleSignOn(
        kind=env.choice("OIDC_KIND", "oidc", KINDS),
        label=env.text("OIDC_LABEL", "Single sign-on"),
        issuer=env.url("OIDC_ISSUER"),
        client_id=env.text("OIDC_CLIENT_ID", "").strip(),
        client_secret=env.text("OIDC_CLIENT_SECRET", ""),
        new_accounts=env.choice("OIDC_NEW_ACCOUNTS", "nobody", POLICIES),
        email_domains=", ".join(env.words("OIDC_EMAIL_DOMAINS", [])).lower(),
    )
    if not provider.client_id:
        if provider.issuer or provider.client_secret:
            name = "OIDC_ISSUER" if provider.issuer else "OIDC_CLIENT_SECRET"
            raise ConfigurationError(name, "it needs OIDC_CLIENT_ID as well.")
        return None
    if not provider.issuer and provider.kind != "google":
        raise ConfigurationError("OIDC_ISSUER", "OIDC_CLIENT_ID needs it; set it.")
    return provider
