"""What a provider's claims change, for providers unlike the one of the other tests."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.http import HttpRequest

from conversations.access.session_marks import is_proven_lately, mark_proven
from project.accounts.identities.claims import (
    OtherPerson,
    is_in_domains,
    list_groups,
    merge_claims,
    sync_groups,
)
from project.accounts.identities.receivers import sync_signed_in_user
from project.accounts.models import IdentityProvider, Invitation
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return a_user("ada")


def a_provider(**fields: Any) -> IdentityProvider:
    values = {"kind": "oidc", "slug": "acme", "label": "Acme", "client_id": "parley"}
    values["server_url"] = "https://acme.org"
    return IdentityProvider.objects.create(**{**values, **fields})


def group_names(user: User) -> set[str]:
    return set(user.groups.values_list("name", flat=True))


def test_both_answers_must_be_about_the_same_person():
    mixed = {"id_token": {"sub": "ada"}, "userinfo": {"sub": "eve", "groups": ["it"]}}
    with pytest.raises(OtherPerson):
        merge_claims(mixed)
    same = {"id_token": {"sub": "a", "groups": [1]}, "userinfo": {"sub": "a", "x": 2}}
    assert merge_claims(same) == {"sub": "a", "groups": [1], "x": 2}


@pytest.mark.parametrize(
    ("path", "claims", "found"),
    [
        ("groups", {"groups": ["a", "b"]}, {"a", "b"}),
        ("groups", {"groups": "a"}, {"a"}),
        ("groups", {"groups": [7]}, {"7"}),
        ("groups", {"groups": {"a": 1}}, set()),
        ("groups", {}, set()),
        ("realm_access.roles", {"realm_access": {"roles": ["a"]}}, {"a"}),
        ("realm_access.roles", {"realm_access": "a"}, set()),
        ("https://acme.org/groups", {"https://acme.org/groups": ["a"]}, {"a"}),
        ("groups", {"_claim_names": {"groups": "src1"}}, None),
        ("", {"groups": ["a"]}, None),
    ],
)
def test_groups_are_read_as_each_kind_of_provider_sends_them(
    path: str, claims: Any, found: Any
):
    assert list_groups(IdentityProvider(groups_claim=path), claims) == found


def test_only_mapped_groups_are_given_and_taken(ada: User):
    provider = a_provider()
    mapped, other, own = (Group.objects.create(name=n) for n in ("m", "o", "own"))
    provider.group_mappings.create(claim="it", group=mapped)
    provider.group_mappings.create(claim="hr", group=other)
    ada.groups.add(own, other)
    assert sync_groups(provider, ada, {"groups": ["it", "own"]})
    assert group_names(ada) == {"m", "own"}
    assert not sync_groups(provider, ada, {"_claim_names": {"groups": "src1"}})
    assert group_names(ada) == {"m", "own"}  # too many were not sent
    assert sync_groups(provider, ada, {})
    assert group_names(ada) == {"own"}


@pytest.mark.parametrize(
    ("email", "is_in"),
    [
        ("ada@acme.org", True),
        ("ada@ACME.org", True),
        ("ada@sub.acme.org", False),
        ("ada@evilacme.org", False),
        ("ada@acme.org.evil.org", False),
        ("acme.org", True),
        ("", False),
    ],
)
def test_a_domain_rule_compares_whole_domains(email: str, is_in: bool):
    provider = IdentityProvider(email_domains="acme.org, acme.com")
    assert is_in_domains(provider, email) is is_in
    assert is_in_domains(IdentityProvider(), email)


def test_an_invitation_is_for_one_address_once_and_for_a_time(ada: User):
    row = Invitation.objects.create(email="Ida@Acme.org")
    assert Invitation.find_open("ida@acme.ORG") == row
    assert Invitation.find_open("") is None
    row.accept()
    assert Invitation.find_open("ida@acme.org") is None


@pytest.mark.parametrize(
    ("signed_in_ago", "is_proven"),
    [(3600, False), (5, True), (-60, True), (None, True)],
)
def test_a_session_is_as_fresh_as_the_sign_in_at_the_provider(
    ada: User, signed_in_ago: int | None, is_proven: bool
):
    """A provider that is asked for no proof answers at once, and says when it had one.
    Its clock may be ahead; one that does not say it is believed."""
    a_provider()
    id_token: dict[str, Any] = {"sub": "ada"}
    if signed_in_ago is not None:
        id_token["auth_time"] = int(time.time()) - signed_in_ago
    account = SocialAccount(provider="acme", extra_data={"id_token": id_token})
    request = HttpRequest()
    request.session = SessionStore()
    mark_proven(request.session)
    sync_signed_in_user(
        request=request, user=ada, sociallogin=SimpleNamespace(account=account)
    )
    assert is_proven_lately(request.session) is is_proven


def test_a_code_after_an_old_sign_in_at_the_provider_is_a_proof(ada: User):
    """django-allauth asks for the account's second factor after the provider."""
    TOTP.activate(ada, generate_totp_secret())
    a_provider()
    id_token = {"sub": "ada", "auth_time": int(time.time()) - 3600}
    account = SocialAccount(provider="acme", extra_data={"id_token": id_token})
    request = HttpRequest()
    request.session = SessionStore()
    mark_proven(request.session)
    sync_signed_in_user(
        request=request, user=ada, sociallogin=SimpleNamespace(account=account)
    )
    assert is_proven_lately(request.session)
