"""Names and passwords of a real LDAP directory."""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from axes.models import AccessAttempt
from django.contrib.auth.models import Group, User
from django.test import Client

from conversations.access.session_user import user_from_session
from project.accounts.models import IdentityProvider, Invitation
from tests.conversations.scene import PASSWORD, a_user
from tests.integration.sign_in.slapd import (
    PEOPLE,
    READER,
    READER_PASSWORD,
    Directory,
)
from tests.project.accounts.identities.test_guarded_session import Resolver

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.django_db,
    # ldap3 leaves a socket that could not connect to the garbage collection.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def _sockets_of_ldap3() -> Iterator[None]:
    """ldap3 leaves the socket of a failed connection to the garbage collector."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    directory = Directory(Path(tmp_path_factory.mktemp("slapd")))
    with directory.run():
        for name in ("ada", "grace", "root", "lin"):
            directory.add_person(name, f"{name}-there", mail=f"{name}@acme.org")
        yield directory


@pytest.fixture
def acme(directory: Directory) -> IdentityProvider:
    row = IdentityProvider(
        kind="ldap",
        slug="acme",
        label="Acme",
        server_url=directory.url,
        client_id=READER,
        secret=READER_PASSWORD,
        search_base=PEOPLE,
        start_tls=False,
        allow_private_network=True,
        new_accounts="everybody",
        email_is_trusted=True,
        groups_claim="memberOf",
    )
    row.full_clean()
    row.save()
    return row


def sign_in(name: str, password: str, client: Client | None = None) -> Any:
    form = {"username": name, "password": password}
    return (client or Client()).post("/login/", form)


def is_in(name: str, password: str) -> bool:
    return sign_in(name, password).status_code == 302


def test_a_person_of_the_directory_comes_in_with_its_groups(
    directory: Directory, acme: IdentityProvider
):
    acme.default_group = Group.objects.create(name="all")
    acme.save()
    dn = directory.add_group("engineers", "ada")
    acme.group_mappings.create(claim=dn, group=Group.objects.create(name="Engineers"))
    client = Client()
    assert sign_in("ada", "ada-there", client)["Location"] == "/"
    ada = User.objects.get()
    assert (ada.username, ada.email, ada.last_name) == ("ada", "ada@acme.org", "Ada")
    assert {group.name for group in ada.groups.all()} == {"all", "Engineers"}
    assert not ada.has_usable_password()
    assert client.get("/account/").status_code == 200
    assert user_from_session(client.cookies["sessionid"].value) == ada
    assert is_in("ada", "ada-there")
    assert User.objects.count() == 1


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    return resolver


def test_connections_go_to_the_address_that_was_checked(
    directory: Directory, acme: IdentityProvider, resolver: Resolver
):
    """DNS rebinding: the name leads elsewhere at the second look-up."""
    acme.server_url = f"ldap://directory.test:{directory.port}"
    acme.secret = READER_PASSWORD
    acme.save()
    # One look-up for the search, and one for the bind as the person.
    resolver.answers["directory.test"] = iter(["127.0.0.1", "127.0.0.1"])
    assert is_in("ada", "ada-there")
    assert next(resolver.answers["directory.test"], None) is None


def test_a_name_that_leads_to_a_private_address_is_refused_at_each_connection(
    directory: Directory, acme: IdentityProvider, resolver: Resolver
):
    acme.server_url = f"ldap://directory.test:{directory.port}"
    acme.secret, acme.allow_private_network = READER_PASSWORD, False
    acme.save()
    resolver.answers["directory.test"] = iter(["127.0.0.1"])
    assert not is_in("ada", "ada-there")
    assert next(resolver.answers["directory.test"], None) is None


def test_wrong_empty_and_hostile_passwords_and_names_are_refused(
    acme: IdentityProvider,
):
    assert not is_in("grace", "wrong")
    assert not is_in("grace", "")
    for name in ("*", "gra*", "grace)(uid=*", "nobody", "grace\0", "x" * 150):
        assert not is_in(name, "grace-there"), name
    assert not User.objects.exists()


def test_guesses_are_delayed_as_all_others(acme: IdentityProvider):
    answers = [sign_in("grace", "wrong").status_code for _ in range(5)]
    assert answers[-1] == 429
    assert sign_in("grace", "grace-there").status_code == 429
    assert AccessAttempt.objects.exists()


def test_an_account_with_a_password_here_is_not_the_directorys(
    acme: IdentityProvider,
):
    a_user("root", is_staff=True, is_superuser=True)
    assert not is_in("root", "root-there")
    assert is_in("root", PASSWORD)
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize("name", ["Grace", "GRACE", " gracE "])
def test_a_password_of_here_goes_to_no_directory_in_any_spelling_of_its_name(
    acme: IdentityProvider, name: str
):
    a_user("grace")
    for password in (PASSWORD, "grace-there"):
        assert not is_in(name, password)
    assert not SocialAccount.objects.exists()


def test_an_address_takes_over_no_account_of_staff(acme: IdentityProvider):
    acme.links_accounts = True
    acme.save()
    a_user("boss", email="root@acme.org", is_staff=True)
    assert not is_in("root", "root-there")
    a_user("linnea", email="lin@acme.org")
    assert is_in("lin", "lin-there")
    assert SocialAccount.objects.get().user.username == "linnea"


def test_a_new_name_of_the_same_person_is_the_same_account(
    directory: Directory, acme: IdentityProvider
):
    directory.add_person("zoe", "zoe-there")
    assert is_in("zoe", "zoe-there")
    directory.rename_person("zoe", "zoe-married")
    assert not is_in("zoe", "zoe-there")
    assert is_in("zoe-married", "zoe-there")
    assert User.objects.count() == 1


def test_only_invited_people_get_an_account(acme: IdentityProvider):
    acme.new_accounts = "invited"
    acme.save()
    assert not is_in("grace", "grace-there")
    Invitation.objects.create(email="grace@acme.org")
    assert is_in("grace", "grace-there")


def test_a_closed_account_stays_closed(acme: IdentityProvider):
    assert is_in("ada", "ada-there")
    User.objects.update(is_active=False)
    assert not is_in("ada", "ada-there")


def test_dangerous_acts_ask_the_directory(acme: IdentityProvider):
    client = Client()
    sign_in("ada", "ada-there", client)
    session = client.session
    session["parley:proven_at"] -= 3600
    session.save()
    asked = client.get("/account/export/begins/")["Location"]
    assert asked.startswith("/account/confirm/")
    form = {"password": "wrong", "next": "/account/export/"}
    assert client.post("/account/confirm/", form).status_code == 200
    form["password"] = "ada-there"
    assert client.post("/account/confirm/", form).status_code == 302
    assert client.get("/account/export/").status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"server_url": "ldap://127.0.0.1:9"},
        {"server_url": "ldaps://127.0.0.1:9"},
        {"client_id": "cn=nobody,dc=acme,dc=org"},
        {"start_tls": True},  # which this server does not speak: never in the clear
        {"allow_private_network": False},
    ],
)
def test_a_directory_that_does_not_work_lets_the_others_in(
    acme: IdentityProvider, changes: dict[str, Any], caplog: Any
):
    for name, value in changes.items():
        setattr(acme, name, value)
    acme.secret = READER_PASSWORD
    acme.save()
    a_user("ben")
    assert not is_in("grace", "grace-there")
    assert is_in("ben", PASSWORD)
    assert "directory acme does not work" in caplog.text
    assert "grace-there" not in caplog.text
