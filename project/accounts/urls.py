"""URLs of signing in, second factors and connected identities."""

from __future__ import annotations

from allauth.account import views as allauth
from allauth.socialaccount import views as socialaccount
from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path, re_path

from conversations.pages.account_views import AccountView
from project.accounts.identities import saml
from project.accounts.pages import connections, provider_sign_in
from project.accounts.pages.required_password import RequiredPasswordView
from project.accounts.pages.sign_in import SignInView
from project.accounts.scim.authentication import refuse_path

#: Names that django-allauth's pages and adapters link to, at Parley's own pages.
_aliases: list[URLPattern] = [
    path("login/", SignInView.as_view(), name="account_login"),
    path("logout/", LogoutView.as_view(), name="account_logout"),
    path("account/", AccountView.as_view(), name="account_change_password"),
]
_password_reset: list[URLPattern] = [
    path("", allauth.password_reset, name="account_reset_password"),
    path("sent/", allauth.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        allauth.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "done/",
        allauth.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
]
_email: list[URLPattern] = [
    path("", allauth.email, name="account_email"),
    path(
        "sent/",
        allauth.email_verification_sent,
        name="account_email_verification_sent",
    ),
    re_path(
        r"^confirm/(?P<key>[-:\w]+)/$",
        allauth.confirm_email,
        name="account_confirm_email",
    ),
]
_oidc: list[URLPattern] = [
    path("login/", provider_sign_in.begin, name="openid_connect_login"),
    path("login/callback/", provider_sign_in.end, name="openid_connect_callback"),
]
_providers: list[URLPattern | URLResolver] = [
    path("", connections.connections, name="socialaccount_connections"),
    path(
        "cancelled/",
        socialaccount.login_cancelled,
        name="socialaccount_login_cancelled",
    ),
    path("error/", socialaccount.login_error, name="socialaccount_login_error"),
    path("oidc/<slug:provider_id>/", include(_oidc)),
]
if saml.IS_INSTALLED:
    _providers += [
        path(
            "saml/<slug:organization_slug>/login/",
            provider_sign_in.begin_saml,
            name="saml_login",
        ),
        path(
            "saml/<slug:organization_slug>/acs/",
            provider_sign_in.receive_saml,
            name="saml_acs",
        ),
        path(
            "saml/<slug:organization_slug>/acs/finish/",
            provider_sign_in.end_saml,
            name="saml_finish_acs",
        ),
        path(
            "saml/<slug:organization_slug>/metadata/",
            provider_sign_in.show_saml_metadata,
            name="saml_metadata",
        ),
        # django-allauth names it to the provider, and would sign people out by
        # unsigned links.
        path(
            "saml/<slug:organization_slug>/sls/",
            provider_sign_in.refuse_saml_logout,
            name="saml_sls",
        ),
    ]
urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", SignInView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    *_aliases,
    path("account/inactive/", allauth.account_inactive, name="account_inactive"),
    path("account/confirm/", allauth.reauthenticate, name="account_reauthenticate"),
    path(
        "account/own-password/",
        RequiredPasswordView.as_view(),
        name="required-password",
    ),
    path("account/password-reset/", include(_password_reset)),
    path("account/email/", include(_email)),
    path("account/second-factor/", include("allauth.mfa.urls")),
    path(
        "account/confirm-by-provider/", connections.confirm, name="confirm-by-provider"
    ),
    path("sso/", include(_providers)),
    path("scim/v2/", include("django_scim.urls")),
    re_path(r"^scim(?:/|$)", refuse_path),
]
