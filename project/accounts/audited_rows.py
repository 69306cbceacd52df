"""The rows of accounts whose changes the audit log records."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount

from conversations.access.audited_rows import reveal_secret
from conversations.audit.watch import Watched, watch
from project.accounts.models import (
    GroupMapping,
    IdentityProvider,
    Invitation,
    ScimResource,
)


def watch_rows() -> None:
    provider = Watched(
        area="config",
        ignored=frozenset({"secret_id"}),
        secrets={"secret": reveal_secret},
    )
    watch(IdentityProvider, provider)
    watch(GroupMapping, Watched(area="config"))
    # The address is a person's, who has no account yet by which it could be erased.
    watch(Invitation, Watched(area="invitation", ignored=frozenset({"email"})))
    factor = Watched(
        area="second_factor",
        ignored=frozenset({"data", "last_used_at", "created_at"}),
        find_subject=lambda row: row.user_id,
    )
    watch(Authenticator, factor)
    identity = Watched(
        area="identity",
        ignored=frozenset({"uid", "extra_data", "last_login", "date_joined"}),
        find_subject=lambda row: row.user_id,
    )
    watch(SocialAccount, identity)
    resource = Watched(
        area="provisioning",
        ignored=frozenset({"external_id"}),
        find_subject=lambda row: row.user_id,
    )
    watch(ScimResource, resource)
