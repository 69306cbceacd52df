"""What a provider's claims change, for providers unlike the one of the other tests."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from project.accounts.identities.claims import (
    OtherPerson,
    is_in_domains,
    list_groups,
    merge_claims,
    sync_groups,
)
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
