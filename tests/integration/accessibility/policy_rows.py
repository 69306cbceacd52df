"""Rows for the console's pages of rules: audit log, limits, holds, retention, identity
providers; and people who are asked about in them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from urllib.parse import urlencode

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.urls import reverse
from django.utils import timezone

from conversations.audit.act import Channel
from conversations.audit.models import AuditEvent
from conversations.audit.record import record_event
from conversations.models import (
    Conversation,
    LegalHold,
    LimitRaise,
    RetentionRule,
    TermsAcceptance,
    TermsVersion,
    Turn,
    UsageLimit,
)
from conversations.models.limits.usage_limit import LimitPeriod
from project.accounts.models import (
    IdentityProvider,
    Invitation,
    RequiredPasswordChange,
)
from tests.integration.accessibility.texts import (
    GUEST,
    LEAVING,
    NEWCOMER,
    STARTER,
    TERMS,
)
from tests.serving import PASSWORD


def store_policies(turn: Turn) -> dict[str, str]:
    """The addresses of the pages, by kind."""
    staff = User.objects.get(username="admin")
    user = User.objects.create_user("hedda")
    limit = _store_limits(staff, user)
    provider = _store_identity_providers(staff)
    _store_rules(staff)
    event = _record_acts(staff, user, turn)
    wanted = reverse("admin:conversations_turn_change", args=[turn.pk])
    reason = urlencode({"next": wanted})
    return {
        "admin audit log": reverse("admin:audit_auditevent_changelist"),
        "admin audit event": reverse("admin:audit_auditevent_change", args=[event.pk]),
        "admin limits": reverse("admin:conversations_usagelimit_changelist"),
        "admin limit": reverse("admin:conversations_usagelimit_change", args=[limit]),
        "admin raises": reverse("admin:conversations_limitraise_changelist"),
        "admin new raise": reverse("admin:conversations_limitraise_add"),
        "admin identity providers": reverse(
            "admin:accounts_identityprovider_changelist"
        ),
        "admin identity provider": reverse(
            "admin:accounts_identityprovider_change", args=[provider]
        ),
        "admin invitations": reverse("admin:accounts_invitation_changelist"),
        "admin legal holds": reverse("admin:conversations_legalhold_changelist"),
        "admin new legal hold": reverse("admin:conversations_legalhold_add"),
        "admin retention rules": reverse(
            "admin:conversations_retentionrule_changelist"
        ),
        "admin reason": f"{reverse('admin:reading_reason')}?{reason}",
    }


def store_sign_ins() -> dict[str, str]:
    """Of people who are asked for something before they go on."""
    starter = User.objects.create_user(STARTER, password=PASSWORD)
    RequiredPasswordChange.objects.create(user=starter)
    guest = User.objects.create_user(GUEST, password=PASSWORD)
    SocialAccount.objects.create(user=guest, provider="orchard", uid="owen")
    return {
        "required password": reverse("required-password"),
        "confirmation by provider": reverse("confirm-by-provider"),
    }


def store_terms() -> dict[str, str]:
    """Terms that all but one have accepted, without events, which would fill the audit
    log."""
    newest = TermsVersion.objects.create(text=TERMS)
    newest.publish()
    TermsAcceptance.objects.bulk_create(
        TermsAcceptance(user=user, terms=newest) for user in User.objects.all()
    )
    User.objects.create_user(NEWCOMER, password=PASSWORD)
    path = reverse("terms")
    return {"terms": path, "new terms": path}


def _store_limits(staff: User, user: User) -> int:
    month, day = LimitPeriod.MONTH, LimitPeriod.DAY
    interns = Group.objects.create(name="Interns")
    UsageLimit.objects.create(group=interns, period=day, requests=200, tokens=400_000)
    UsageLimit.objects.create(group=interns, period=month, cost=40, is_shared=True)
    own = UsageLimit.objects.create(
        user=user, period=month, tokens=5_000_000, cost=Decimal("12.5")
    )
    raises = [
        ({"user": user}, {"cost": 10}, "Annual report until Friday", 3),
        ({"group": interns}, {"cost": 25}, "General meeting", -9),
    ]
    for whom, amounts, reason, days in raises:
        LimitRaise.objects.create(
            **whom,
            **amounts,
            period=month,
            reason=reason,
            granted_by=staff,
            ends_at=timezone.now() + timedelta(days=days),
        )
    return own.pk


def _store_identity_providers(staff: User) -> int:
    IdentityProvider.objects.create(
        kind="ldap",
        slug="directory",
        label="Orchard directory",
        server_url="ldaps://directory.example.org",
        client_id="cn=parley,dc=example,dc=org",
        search_base="ou=people,dc=example,dc=org",
        enabled=False,
    )
    provider = IdentityProvider(
        kind="keycloak",
        slug="orchard",
        label="Orchard account",
        server_url="https://login.example.org/realms/orchard",
        client_id="parley",
        new_accounts=IdentityProvider.NewAccounts.INVITED,
        default_group=Group.objects.get(name="Interns"),
        email_domains="example.org",
    )
    provider.secret = "kc-0123456789-abcdefgh"
    provider.save()
    provider.group_mappings.create(claim="press", group=Group.objects.get(name="Board"))
    Invitation.objects.create(email="hedda@example.org", invited_by=staff)
    return provider.pk


def _store_rules(staff: User) -> None:
    """Of people who have nothing else here."""
    RetentionRule.objects.create(group=Group.objects.get(name="Board"), days=365)
    RetentionRule.objects.create(group=Group.objects.get(name="Interns"), days=90)
    former = User.objects.create_user("tomasz")
    conversation = Conversation.objects.create(
        owner=User.objects.create_user("ines"), title="Offer of the fruit wholesaler"
    )
    LegalHold.objects.create(
        conversation=conversation,
        reason="Claim of the fruit wholesaler",
        created_by=staff,
    )
    LegalHold.objects.create(user=former, reason="Case 4711", created_by=staff)
    User.objects.create_user(LEAVING)


def _record_acts(staff: User, user: User, turn: Turn) -> AuditEvent:
    """As the acts themselves record them. Returns the event of a change."""
    record_event("sign_in", target=user, actor=user, subject=user, channel=Channel.PAGE)
    record_event(
        "sign_in",
        target=user,
        subject=user,
        channel=Channel.PAGE,
        is_refused=True,
    )
    record_event(
        "content.read",
        target=turn,
        actor=staff,
        subject=user,
        reason="Ticket 4711: the answer is cut off.",
        channel=Channel.ADMIN,
    )
    changed = record_event(
        "budget.change",
        target=UsageLimit.objects.get(user=user),
        actor=staff,
        subject=user,
        before={"cost": "10.00"},
        after={"cost": "12.50"},
        channel=Channel.ADMIN,
    )
    record_event("data.export", actor=user, subject=user, channel=Channel.REST)
    return changed
