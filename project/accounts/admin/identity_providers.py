"""Admin of identity providers, invitations and connected identities."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from conversations.admin.reauthentication import ReauthenticationMixin
from llm.admin.bases import SecretFormAdmin
from project.accounts.admin.second_factors import SignInMethodAdmin
from project.accounts.models import GroupMapping, IdentityProvider, Invitation

for _model in (SocialApp, SocialToken, SocialAccount):  # of django-allauth's own admin
    admin.site.unregister(_model)


class GroupMappingInline(admin.TabularInline):
    model = GroupMapping
    extra = 0


class OnlySuperusers(admin.ModelAdmin):
    """Only superusers may change these rows: a change can sign them in as any user."""

    def _may(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._may(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request)

    # Superusers have the permissions too, but in a read-only admin.

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._may(request) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request) and super().has_delete_permission(request, obj)


@admin.register(IdentityProvider)
class IdentityProviderAdmin(ReauthenticationMixin, OnlySuperusers, SecretFormAdmin):
    inlines = [GroupMappingInline]
    list_display = ["label", "slug", "kind", "enabled", "new_accounts", "secret_hint"]
    list_filter = ["kind", "enabled"]
    search_fields = ["label", "slug"]
    search_help_text = _("A label or a short name.")
    readonly_fields = ["secret_hint", "callback"]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    *("kind", "slug", "label", "enabled", "callback"),
                    *("server_url", "client_id", "secret", "secret_hint", "scopes"),
                    "allow_private_network",
                ]
            },
        ),
        ("SAML", {"fields": ["metadata"], "classes": ["collapse"]}),
        (
            "LDAP",
            {
                "fields": ["search_base", "user_filter", "start_tls"],
                "classes": ["collapse"],
            },
        ),
        (
            _("Who may come in"),
            {
                "fields": [
                    *("new_accounts", "default_group", "email_domains"),
                    *("email_is_trusted", "links_accounts", "counts_as_second_factor"),
                ]
            },
        ),
        (_("Groups"), {"fields": ["groups_claim"]}),
    ]

    def has_secret(self, object_id: str | None) -> bool:
        return True

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """People's identities are stored with the short name."""
        return [*self.readonly_fields, *(["slug"] if obj else [])]

    @admin.display(description=_("address for the provider"))
    def callback(self, obj: IdentityProvider) -> str:
        if not obj.pk or obj.kind == obj.Kind.LDAP:
            return "–"
        path = f"/sso/saml/{obj.slug}/metadata/"
        if obj.kind != obj.Kind.SAML:
            path = reverse("openid_connect_callback", args=[obj.slug])
        return f"{settings.PUBLIC_URL.rstrip('/')}{path}"


@admin.register(Invitation)
class InvitationAdmin(admin.ModelAdmin):
    fields = ["email", "expires_at", "invited_by", "accepted_at"]
    readonly_fields = ["invited_by", "accepted_at"]
    list_display = ["email", "expires_at", "invited_by", "accepted_at"]
    list_select_related = ["invited_by"]
    search_fields = ["email"]

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: bool
    ) -> None:
        if not change:
            obj.invited_by = request.user
        super().save_model(request, obj, form, change)


@admin.register(SocialAccount)
class IdentityAdmin(SignInMethodAdmin):
    """Deleting one disconnects a provider from an account."""

    list_display = ["user", "provider", "uid", "last_login", "date_joined"]
    list_select_related = ["user"]
    list_filter = ["provider"]
    search_fields = ["=user__username", "=uid"]
    fields = ["user", "provider", "uid", "last_login", "date_joined"]
