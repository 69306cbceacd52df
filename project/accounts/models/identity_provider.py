"""Providers of identities: how people of an organisation sign in without a password."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from llm.db.bound_secrets import OriginChanged, SecretUnavailable, canonical_origin
from llm.db.encrypted_field import EncryptedTextField
from llm.db.secret_rows import SecretRow
from project.accounts.identities import directory, saml

GOOGLE = "https://accounts.google.com"
#: Tenants of Entra ID that stand for every account of Microsoft.
_FOREIGN_TENANTS = {"common", "organizations", "consumers"}


class IdentityProvider(SecretRow):
    class Kind(models.TextChoices):
        ENTRA = "entra", "Entra ID"
        GOOGLE = "google", "Google"
        OKTA = "okta", "Okta"
        KEYCLOAK = "keycloak", "Keycloak"
        OIDC = "oidc", _("another OpenID Connect provider")
        SAML = "saml", "SAML 2.0"
        LDAP = "ldap", _("LDAP directory")

    class NewAccounts(models.TextChoices):
        EVERYBODY = "everybody", _("for everybody whom the provider signs in")
        INVITED = "invited", _("for invited addresses only")
        NOBODY = "nobody", _("for nobody; staff make accounts, people connect them")

    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    slug = models.SlugField(
        _("short name"),
        unique=True,
        max_length=40,
        help_text=_("Part of the addresses that the provider must know."),
    )
    label = models.CharField(
        _("label"), max_length=60, help_text=_("On the button of the sign-in page.")
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    server_url = models.CharField(
        _("issuer"),
        max_length=500,
        blank=True,
        help_text=_(
            "Entra ID: https://login.microsoftonline.com/TENANT-ID/v2.0. Okta:"
            " https://NAME.okta.com. Keycloak: https://HOST/realms/REALM. Google and"
            " SAML: leave it empty. LDAP: ldaps://HOST or ldap://HOST:PORT."
        ),
    )
    client_id = models.CharField(
        _("client ID"),
        max_length=255,
        blank=True,
        help_text=_("LDAP: the name that may search, as in cn=parley,dc=example."),
    )
    secret_hint = models.CharField(max_length=16, blank=True, editable=False)
    secret = EncryptedTextField(
        _("client secret"),
        blank=True,
        hint_field="secret_hint",
        help_text=_("LDAP: the password of that name."),
    )
    scopes = models.CharField(
        _("scopes"), max_length=255, default="openid profile email"
    )
    metadata = models.TextField(
        _("metadata"),
        blank=True,
        max_length=200_000,
        help_text=_("SAML: the XML that the provider offers for download."),
    )
    search_base = models.CharField(
        _("search base"),
        max_length=500,
        blank=True,
        help_text=_("LDAP: where people are, as in ou=people,dc=example,dc=org."),
    )
    user_filter = models.CharField(
        _("filter for people"),
        max_length=500,
        blank=True,
        default="(uid={name})",
        help_text=_("LDAP; Active Directory: (sAMAccountName={name})."),
    )
    start_tls = models.BooleanField(
        _("encrypt ldap:// by StartTLS"), default=True, help_text=_("LDAP.")
    )
    allow_private_network = models.BooleanField(
        _("allow private network"),
        default=False,
        help_text=_("The provider's host may lie in your own network."),
    )
    new_accounts = models.CharField(
        _("new accounts"),
        max_length=16,
        choices=NewAccounts.choices,
        default=NewAccounts.NOBODY,
    )
    default_group = models.ForeignKey(
        Group,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("default group"),
        help_text=_("Group of new accounts."),
    )
    email_domains = models.CharField(
        _("e-mail domains"),
        max_length=500,
        blank=True,
        validators=[
            RegexValidator(
                r"^[a-z0-9.-]+(, *[a-z0-9.-]+)*$",
                _("Write domains in lower case with commas: example.org, example.com"),
            )
        ],
        help_text=_(
            "Only people with a verified address in one of these, with commas; empty:"
            " no rule."
        ),
    )
    email_is_trusted = models.BooleanField(
        _("all e-mail addresses are verified"),
        default=False,
        help_text=_(
            "Only where your organisation assigns the addresses and nobody can enter"
            " one: Entra ID does not say which are verified."
        ),
    )
    links_accounts = models.BooleanField(
        _("connect by e-mail address"),
        default=False,
        help_text=_(
            "A verified address signs in to the account that has it, except that of"
            " staff. Otherwise people connect the provider on their page Account."
        ),
    )
    groups_claim = models.CharField(
        _("claim with groups"),
        max_length=100,
        blank=True,
        default="groups",
        help_text=_("As in groups or realm_access.roles."),
    )
    counts_as_second_factor = models.BooleanField(
        _("counts as a second factor"),
        default=False,
        help_text=_("The provider asks for one itself."),
    )

    class Meta:
        ordering = ["label", "pk"]
        verbose_name = _("identity provider")
        verbose_name_plural = _("identity providers")

    def __str__(self) -> str:
        return self.label

    @property
    def issuer(self) -> str:
        """The issuer's address, without a slash at its end."""
        fixed = GOOGLE if self.kind == self.Kind.GOOGLE else ""
        return (self.server_url or fixed).rstrip("/")

    @property
    def sign_in_url(self) -> str:
        name = "saml_login" if self.kind == self.Kind.SAML else "openid_connect_login"
        return reverse(name, args=[self.slug])

    @property
    def host(self) -> str:
        return urlsplit(self.issuer).hostname or ""

    @property
    def domains(self) -> list[str]:
        return [part.strip() for part in self.email_domains.split(",") if part.strip()]

    def secret_origin(self, column: str) -> str:
        return canonical_origin(self.issuer or saml.single_sign_on_url(self))

    @property
    def secrets_not_sent(self) -> list[str]:
        """A sentence for each secret that is stored but currently not sent."""
        try:
            if self.secret:
                self.secret.reveal()
        except OriginChanged:
            return [_now("The secret was entered for another address. Enter it again.")]
        except SecretUnavailable:
            return [_now("No key decrypts the secret. Enter it again.")]
        return []

    def clean(self) -> None:
        super().clean()
        problems = dict(self._problems())
        if problems:
            raise ValidationError(problems)

    @property
    def speaks_oidc(self) -> bool:
        return self.kind not in (self.Kind.SAML, self.Kind.LDAP)

    def _problems(self) -> Iterator[tuple[str, Any]]:
        if self.kind == self.Kind.SAML:
            yield from saml.problems(self)
        elif self.kind == self.Kind.LDAP:
            yield from directory.problems(self)
        else:
            yield from self._problems_of_oidc()

    def _problems_of_oidc(self) -> Iterator[tuple[str, Any]]:
        url = urlsplit(self.issuer)
        if not self.issuer:
            yield "server_url", _("This provider needs its issuer.")
        elif url.scheme != "https" and not self.allow_private_network:
            yield "server_url", _("Use https, or allow the private network.")
        tenant = url.path.strip("/").partition("/")[0]
        if self.kind == self.Kind.ENTRA and tenant in _FOREIGN_TENANTS:
            yield (
                "server_url",
                _("Name your tenant: every account of Microsoft would come in."),
            )
        if not self.client_id:
            yield "client_id", _("This provider needs a client ID.")
        if self.is_open and not self.domains and self.kind == self.Kind.GOOGLE:
            yield (
                "email_domains",
                _("Name your domains: every account of Google would come in."),
            )

    @property
    def is_open(self) -> bool:
        return self.new_accounts == self.NewAccounts.EVERYBODY


class GroupMapping(models.Model):
    """Members of an identity provider's group join a group of Parley."""

    provider = models.ForeignKey(
        IdentityProvider, models.CASCADE, related_name="group_mappings"
    )
    claim = models.CharField(
        _("value in the claim"),
        max_length=255,
        help_text=_("Entra ID sends the group's object ID, others its name."),
    )
    group = models.ForeignKey(
        Group, models.CASCADE, related_name="+", verbose_name=_("group")
    )

    class Meta:
        default_permissions = ()
        ordering = ["claim", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "claim", "group"], name="one_mapping_of_a_claim"
            )
        ]

    def __str__(self) -> str:
        return f"{self.claim} → {self.group}"
