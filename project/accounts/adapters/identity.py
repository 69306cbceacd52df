"""How django-allauth signs people in by the identity providers of the admin.

Source: https://docs.allauth.org/en/latest/socialaccount/adapter.html
"""

from __future__ import annotations

import logging
from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from django.http import HttpRequest
from django.shortcuts import render
from django.utils import translation
from django.utils.translation import gettext_lazy as _

from conversations.audit.sign_ins import record_refusal, record_refused_connection
from llm.db.encrypted_field import SecretUnavailable
from project.accounts.identities import admission, saml
from project.accounts.identities.claims import OtherPerson, merge_claims
from project.accounts.identities.guarded_session import GuardedSession
from project.accounts.models import IdentityProvider

logger = logging.getLogger(__name__)

_MIXED_UP = _("The provider's answers contradict each other.")


class IdentityAdapter(DefaultSocialAccountAdapter):
    # Providers

    def list_apps(
        self,
        request: HttpRequest | None,
        provider: str | None = None,
        client_id: str | None = None,
    ) -> list[Any]:
        rows = IdentityProvider.objects.filter(enabled=True)
        rows = rows.exclude(kind=IdentityProvider.Kind.LDAP)
        apps = [app for row in rows if (app := _build_app(row))]
        return [
            app
            for app in apps
            if (not provider or provider in (app.provider, app.provider_id))
            and (not client_id or client_id == app.client_id)
        ]

    def get_requests_session(self) -> GuardedSession:
        rows = IdentityProvider.objects.filter(enabled=True, allow_private_network=True)
        return GuardedSession(frozenset(row.host for row in rows))

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, *args: Any, **kwargs: Any
    ) -> None:
        name = getattr(getattr(provider, "app", None), "provider_id", "")
        problem = type(kwargs.get("exception")).__name__
        logger.warning(
            "sign-in by %s failed: %s, %s", name, kwargs.get("error"), problem
        )

    # People

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        provider = find_provider(sociallogin.account)
        email = _forget_unverified(sociallogin)
        try:
            merge_claims(sociallogin.account.extra_data)
            if sociallogin.state.get("process") == "connect":
                admission.check_domain(provider, email)
            elif sociallogin.is_existing:
                admission.check_known(provider, email, sociallogin.user)
            elif owner := admission.find_account(provider, email):
                sociallogin.connect(request, owner)
        except OtherPerson:
            _refuse(request, provider, _MIXED_UP, sociallogin)
        except admission.SignInRefused as exc:
            _refuse(request, provider, exc.why, sociallogin, exc.account)

    def is_open_for_signup(
        self, request: HttpRequest, sociallogin: SocialLogin
    ) -> bool:
        provider = find_provider(sociallogin.account)
        return admission.may_make_account(provider, _verified_email(sociallogin))

    def is_auto_signup_allowed(self, *_: Any, **__: Any) -> bool:
        return True  # no form: the provider says who the person is

    def save_user(
        self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None
    ) -> Any:
        user = super().save_user(request, sociallogin, form)
        provider = find_provider(sociallogin.account)
        admission.welcome(provider, user, _verified_email(sociallogin))
        logger.info("account %r made by %s", user.get_username(), provider.slug)
        return user


def find_provider(account: SocialAccount) -> IdentityProvider:
    return IdentityProvider.objects.get(slug=account.provider)


def _build_app(row: IdentityProvider) -> SocialApp | None:
    """None for a row that cannot work now; the log says why."""
    if row.kind == IdentityProvider.Kind.SAML:
        return _build_saml_app(row)
    try:
        secret = row.secret.reveal() if row.secret else ""
    except SecretUnavailable:
        logger.error("the secret of identity provider %s cannot be read", row.slug)
        return None
    return SocialApp(
        provider="openid_connect",
        provider_id=row.slug,
        name=row.label,
        client_id=row.client_id,
        secret=secret,
        settings={
            "server_url": row.issuer,
            "oauth_pkce_enabled": True,
            "scope": row.scopes.split(),
            "verified_email": row.email_is_trusted,
        },
    )


def _build_saml_app(row: IdentityProvider) -> SocialApp | None:
    if not saml.IS_INSTALLED:
        logger.error("identity provider %s needs the extra 'saml'", row.slug)
        return None
    try:
        settings = saml.build_settings(row)
    except saml.InvalidMetadata:
        logger.error("the metadata of identity provider %s are invalid", row.slug)
        return None
    return SocialApp(
        provider="saml",
        provider_id=row.slug,
        name=row.label,
        client_id=row.slug,
        settings=settings,
    )


def _forget_unverified(login: SocialLogin) -> str:
    """Forget addresses that the provider did not verify: a user may have entered that
    of another person there. Returns the verified one, or ""."""
    login.email_addresses = [each for each in login.email_addresses if each.verified]
    email = _verified_email(login)
    if not login.is_existing and login.user:
        login.user.email = email
    return email


def _verified_email(login: SocialLogin) -> str:
    found = (each.email for each in login.email_addresses if each.verified)
    return str(next(found, "")).lower()


def _refuse(
    request: HttpRequest,
    provider: IdentityProvider,
    why: Any,
    login: SocialLogin,
    account: Any = None,
) -> None:
    """`account`: found by the address. Raises ImmediateHttpResponse."""
    with translation.override("en"):  # for staff
        reason = str(why)
    details = {"provider": provider.slug, "reason": reason}
    if login.state.get("process") == "connect" and request.user.is_authenticated:
        logger.warning("connecting %s refused: %.60s", provider.slug, reason)
        record_refused_connection(request.user, details)
    else:
        logger.warning("sign-in by %s refused: %.60s", provider.slug, reason)
        known = login.user if login.is_existing else account
        record_refusal(known, details, request)
    context = {"provider": provider, "why": why}
    page = render(request, "accounts/sign_in_refused.html", context, status=403)
    raise ImmediateHttpResponse(page)
