"""Second factors, identity providers, invitations and SCIM leave events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialLogin
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.cache import cache
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import translation

from conversations.audit.models import AuditEvent, AuditText
from project.accounts.adapters.identity import IdentityAdapter
from project.accounts.models import IdentityProvider, Invitation
from tests.conversations.scene import a_user, signed_in
from tests.project.accounts.test_scim import ADA, Program
from tests.project.accounts.test_second_factors import enrol, sign_in

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "client-secret-of-this-test"


@pytest.fixture
def root() -> User:
    return a_user("root", is_staff=True, is_superuser=True)


def events(*areas: str) -> list[tuple[str, Any, Any, str]]:
    rows = AuditEvent.objects.order_by("pk")
    return [
        (row.action, row.actor, row.subject, row.channel)
        for row in rows
        if row.action.partition(".")[0] in areas
    ]


def texts() -> str:
    rows = AuditText.objects.all()
    return "".join(f"{row.identity}{row.details}" for row in rows)


def test_adding_and_removing_a_second_factor_is_an_event(root: User):
    cache.clear()
    ada = a_user("ada")
    client = Client()
    sign_in(client)
    secret = enrol(client)
    added = ("second_factor.add", ada.pk, ada.pk, "page")
    assert events("second_factor") == [added, added]  # the app, and recovery codes
    assert secret not in texts()
    # Using one is none.
    row = Authenticator.objects.get(user=ada, type=Authenticator.Type.TOTP)
    row.record_usage()
    assert len(events("second_factor")) == 2
    path = reverse("admin:mfa_authenticator_delete", args=[row.pk])
    signed_in(root).post(path, {"post": "yes"})
    assert not Authenticator.objects.filter(pk=row.pk).exists()
    removed = ("second_factor.delete", root.pk, ada.pk, "admin")
    assert events("second_factor")[2:] == [removed, removed]


def test_a_wrong_code_is_a_refused_sign_in(root: User, caplog: Any):
    cache.clear()
    ada = a_user("ada")
    enrol(signed_in(ada))
    where = sign_in(client := Client())["Location"]
    client.post(where, {"code": "000000"})
    event = AuditEvent.objects.get(action="sign_in", outcome="refused")
    assert (event.actor, event.subject, event.channel) == (None, ada.pk, "page")
    assert "second factor" in event.text.details
    assert "000000" not in texts()
    assert "sign-in as 'ada' from 127.0.0.1 failed: wrong second factor" in caplog.text


def test_a_wrong_code_for_a_dangerous_act_says_so(root: User, caplog: Any):
    cache.clear()
    ada = a_user("ada")
    enrol(client := signed_in(ada))
    client.post("/account/second-factor/reauthenticate/", {"code": "000000"})
    event = AuditEvent.objects.get(action="sign_in", outcome="refused")
    assert (event.actor, event.subject) == (ada.pk, ada.pk)
    assert "wrong second factor, to confirm an act" in event.text.details
    assert "confirmation as 'ada' from 127.0.0.1 failed" in caplog.text


#: What a browser sends for a passkey; its signature is of nothing.
FORGED = {
    "id": "AAAA",
    "rawId": "AAAA",
    "type": "public-key",
    "response": {
        "clientDataJSON": "e30",
        "authenticatorData": "AAAA",
        "signature": "AAAA",
        "userHandle": "MQ",
    },
}


def test_a_refused_passkey_is_a_refused_sign_in(root: User, caplog: Any):
    cache.clear()
    ada = a_user("ada")
    enrol(signed_in(ada))
    forged = {"credential": json.dumps(FORGED)}
    where = sign_in(client := Client())["Location"]
    client.post(where, forged)  # after the password
    Client().post(reverse("mfa_login_webauthn"), forged)  # instead of one
    rows = AuditEvent.objects.filter(action="sign_in", outcome="refused").order_by("pk")
    assert [row.subject for row in rows] == [ada.pk, None]
    assert "wrong passkey" in rows[1].text.details
    assert "sign-in as an unknown name from 127.0.0.1 failed" in caplog.text


@pytest.mark.parametrize("is_known", [False, True])
def test_who_may_not_sign_in_by_a_provider_is_a_refused_sign_in(
    root: User, rf: RequestFactory, is_known: bool
):
    IdentityProvider.objects.create(
        kind="oidc", slug="acme", label="Acme", email_domains="acme.example"
    )
    user = a_user("ada") if is_known else User()
    identity = SocialAccount(provider="acme", uid="1", extra_data={})
    if is_known:
        identity.user = user
        identity.save()
    login = SocialLogin(user=user, account=identity, email_addresses=[])
    login.state = {}
    request = rf.get("/sso/oidc/acme/login/callback/")
    request.user, request.session = AnonymousUser(), {}
    with translation.override("de"), pytest.raises(ImmediateHttpResponse):
        IdentityAdapter().pre_social_login(request, login)
    event = AuditEvent.objects.get(action="sign_in", outcome="refused")
    assert (event.actor, event.subject) == (None, user.pk)
    assert '"provider": "acme"' in event.text.details
    assert "not of a domain that may sign in here" in event.text.details


@pytest.mark.parametrize("is_active", [False, True])
def test_a_refused_account_is_named_by_its_address(
    root: User, rf: RequestFactory, is_active: bool
):
    """It is closed, or the provider may not connect accounts by their address."""
    IdentityProvider.objects.create(
        kind="oidc", slug="acme", label="Acme", links_accounts=not is_active
    )
    ada = a_user("ada", email="ada@acme.example", is_active=is_active)
    refuse(rf, AnonymousUser(), "ada@acme.example")
    event = AuditEvent.objects.get(action="sign_in", outcome="refused")
    assert (event.actor, event.subject) == (None, ada.pk)
    assert '"account": "known"' in event.text.details


def test_a_refused_connection_is_no_sign_in(root: User, rf: RequestFactory):
    IdentityProvider.objects.create(
        kind="oidc", slug="acme", label="Acme", email_domains="acme.example"
    )
    ada = a_user("ada")
    refuse(rf, ada, "ada@other.example", process="connect")
    event = AuditEvent.objects.get(outcome="refused")
    assert (event.action, event.actor, event.subject) == (
        "identity.add",
        ada.pk,
        ada.pk,
    )
    assert "not of a domain" in event.text.details


def test_a_visitor_who_asks_to_connect_is_refused_as_a_sign_in(
    root: User, rf: RequestFactory
):
    """Whether it is a connection comes from the address, which anybody writes."""
    IdentityProvider.objects.create(
        kind="oidc", slug="acme", label="Acme", email_domains="acme.example"
    )
    refuse(rf, AnonymousUser(), "eve@other.example", process="connect")
    assert AuditEvent.objects.get(outcome="refused").action == "sign_in"


def refuse(rf: RequestFactory, user: Any, email: str, **state: str) -> None:
    """The answer of a provider for a new identity with this address is refused."""
    login = SocialLogin(
        user=User(),
        account=SocialAccount(provider="acme", uid="1", extra_data={}),
        email_addresses=[EmailAddress(email=email, verified=True)],
    )
    login.state = state
    request = rf.get("/sso/oidc/acme/login/callback/")
    request.user, request.session = user, {}
    with pytest.raises(ImmediateHttpResponse):
        IdentityAdapter().pre_social_login(request, login)


def test_an_identity_provider_is_configuration_without_its_secret(root: User):
    group = Group.objects.create(name="Sales")
    row = IdentityProvider(
        kind="oidc",
        slug="acme",
        label="Acme",
        server_url="https://login.example.org",
        client_id="parley",
    )
    row.secret = SECRET
    row.save()
    row.group_mappings.create(claim="sales", group=group)
    row.enabled = False
    row.save()
    row.delete()
    actions = [action for action, *_ in events("config")]
    assert actions[:3] == ["config.add", "config.add", "config.change"]
    assert set(actions[3:]) == {"config.delete"}
    assert "fingerprint" in texts()
    assert SECRET not in texts()


def test_invitations_are_events_without_the_address(root: User):
    path = reverse("admin:accounts_invitation_add")
    expires = {"expires_at_0": "2030-01-01", "expires_at_1": "12:00:00"}
    client = signed_in(root)
    answer = client.post(path, {"email": "zoe@example.org", **expires})
    assert answer.status_code == 302
    Invitation.objects.get().accept()
    (added, _accepted) = events("invitation")
    assert added == ("invitation.add", root.pk, None, "admin")
    assert _accepted[0] == "invitation.change"
    assert "zoe@example.org" not in texts()


def test_what_a_provisioning_program_changes_is_an_event_of_its_account(root: User):
    program = Program(root, "scim")
    made = program("post", "Users", ADA).json()
    change = {"op": "replace", "path": "active", "value": False}
    program.patch(f"Users/{made['id']}", change)
    by_root = [event for event in events("user") if event[1] == root.pk]
    assert [action for action, *_ in by_root] == ["user.add", "user.change"]
    assert {subject for _, _, subject, _ in by_root} == {int(made["id"])}
    assert {channel for *_, channel in by_root} == {"rest"}
