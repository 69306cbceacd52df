"""Who may enter identity providers, and what is stored."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Permission, User
from django.test import Client

from project.accounts.models import IdentityProvider
from project.environment.configuration_error import ConfigurationError
from project.environment.single_sign_on import SingleSignOn
from project.startup.single_sign_on import store_single_sign_on
from tests.conversations.scene import PASSWORD, a_user, signed_in

pytestmark = pytest.mark.django_db

ADD = "/admin/accounts/identityprovider/add/"
SECRET = "a-secret-that-nobody-sees-again"
FORMS = {f"group_mappings-{name}": "0" for name in ("TOTAL_FORMS", "INITIAL_FORMS")}


def fields(**more: str) -> dict[str, str]:
    return {
        "kind": "oidc",
        "slug": "acme",
        "label": "Acme",
        "enabled": "on",
        "server_url": "https://id.acme.org",
        "client_id": "parley",
        "secret": SECRET,
        "scopes": "openid email",
        "new_accounts": "invited",
        "groups_claim": "groups",
        **FORMS,
        **more,
    }


@pytest.fixture
def root() -> Any:
    return signed_in(User.objects.create_superuser("root", password=PASSWORD))


def test_the_secret_is_encrypted_and_shown_never(root: Any):
    assert root.post(ADD, fields()).status_code == 302
    row = IdentityProvider.objects.get()
    assert row.secret.reveal() == SECRET
    assert SECRET not in row.secret.stored
    page = root.get(f"/admin/accounts/identityprovider/{row.pk}/change/")
    assert SECRET not in page.content.decode()
    assert "/sso/oidc/acme/login/callback/" in page.content.decode()
    kept = fields(secret="", label="Acme Inc.")
    root.post(f"/admin/accounts/identityprovider/{row.pk}/change/", kept)
    row.refresh_from_db()
    assert (row.label, row.secret.reveal()) == ("Acme Inc.", SECRET)


def test_a_secret_does_not_follow_to_another_address(root: Any):
    root.post(ADD, fields())
    row = IdentityProvider.objects.get()
    moved = fields(secret="", server_url="https://evil.org")
    url = f"/admin/accounts/identityprovider/{row.pk}/change/"
    page = root.post(url, moved, follow=True).content.decode()
    assert "The secret was entered for another address" in page
    assert Client().post("/sso/oidc/acme/login/").status_code == 404


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"server_url": ""}, "needs its issuer"),
        ({"server_url": "http://id.acme.org"}, "Use https"),
        ({"client_id": ""}, "needs a client ID"),
        (
            {
                "kind": "entra",
                "server_url": "https://login.microsoftonline.com/common/v2.0",
            },
            "Name your tenant",
        ),
        (
            {"kind": "google", "server_url": "", "new_accounts": "everybody"},
            "Name your domains",
        ),
        ({"email_domains": "@acme.org"}, "Write domains"),
    ],
)
def test_a_provider_that_would_let_strangers_in_is_refused(
    root: Any, changes: dict[str, str], problem: str
):
    page = root.post(ADD, fields(**changes))
    assert problem in page.content.decode()
    assert not IdentityProvider.objects.exists()


def test_only_superusers_see_providers():
    staff = a_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.all())
    client = signed_in(staff)
    assert client.get(ADD).status_code == 403
    assert client.get("/admin/accounts/identityprovider/").status_code == 403
    assert client.get("/admin/accounts/invitation/").status_code == 200


def test_a_deleted_providers_people_are_not_those_of_the_next_one(root: Any):
    row = IdentityProvider.objects.create(
        kind="oidc", slug="acme", label="A", server_url="https://a.org", client_id="x"
    )
    ada = a_user("ada")
    SocialAccount.objects.create(user=ada, provider="acme", uid="1")
    row.delete()
    assert not SocialAccount.objects.exists()
    assert User.objects.filter(pk=ada.pk).exists()


def single_sign_on(**changes: str) -> SingleSignOn:
    values = {
        "kind": "oidc",
        "label": "Acme",
        "issuer": "http://keycloak:8080/realms/acme",
        "client_id": "parley",
        "client_secret": SECRET,
        "new_accounts": "everybody",
        "email_domains": "",
    }
    return SingleSignOn(**{**values, **changes})


def test_the_environment_replaces_address_and_secret_but_no_decision_of_staff():
    store_single_sign_on(single_sign_on())
    row = IdentityProvider.objects.get(slug="sso")
    stored = row.secret.stored
    row.new_accounts, row.label = "nobody", "Our company"
    row.save()
    store_single_sign_on(single_sign_on())
    row.refresh_from_db()
    assert (row.new_accounts, row.label) == ("nobody", "Our company")
    assert row.secret.stored == stored
    store_single_sign_on(
        single_sign_on(client_secret="another", issuer="https://b.org")
    )
    row.refresh_from_db()
    assert (row.secret.reveal(), row.issuer) == ("another", "https://b.org")


def test_an_environment_that_lets_strangers_in_stops_the_start():
    open_google = single_sign_on(kind="google", issuer="")
    with pytest.raises(ConfigurationError, match="Name your domains"):
        store_single_sign_on(open_google)
