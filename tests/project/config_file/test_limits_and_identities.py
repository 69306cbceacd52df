"""Limits of use and identity providers in the configuration file."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w
from django.contrib.auth.models import Group, User

from conversations.models import UsageLimit
from llm.db.encrypted_field import SecretUnavailable
from llm.models import LanguageModel, Provider
from project.accounts.models import IdentityProvider
from project.config_file import ConfigError, dump, load

pytestmark = pytest.mark.django_db

LIMITS = """
[[usage_limits]]
cost = 20.5

[[usage_limits]]
user = "ada"
period = "day"
requests = 0

[[usage_limits]]
group = "research"
is_shared = true
tokens = 2_000_000
size = 50_000_000

[[usage_limits]]
group = "research"
tokens = 1000

[[usage_limits]]
model = "Host/large"
tokens = 500
warn_at = 60
"""
IDENTITIES = """
[[identity_providers]]
kind = "keycloak"
slug = "staff"
label = "Our accounts"
server_url = "https://id.example.org/realms/staff"
client_id = "parley"
secret = "env:STAFF_SECRET"
default_group = "users"
group_mappings = [
  {claim = "/research", group = "research"}, {claim = "/boss", group = "operators"},
]
"""
ENVIRONMENT = {"STAFF_SECRET": "planted-4567"}


@pytest.fixture(autouse=True)
def ada() -> User:
    host = Provider.objects.create(name="Host", kind="demo")
    LanguageModel.objects.create(provider=host, name="large")
    return User.objects.create_user("ada")


def made(text: str, environment=ENVIRONMENT, **options):
    return load(tomllib.loads(text), environment, **options)


def problems(text: str, environment=ENVIRONMENT, **options) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        made(text, environment, **options)
    return refused.value.problems


def dumped() -> str:
    return tomli_w.dumps(dump())


# Limits


def test_a_file_sets_limits_of_everybody_users_and_groups():
    assert made(LIMITS).changes == [
        "usage_limits[everybody, month]: created",
        "usage_limits[ada, day]: created",
        "group 'research': created without members",
        "usage_limits[research, month]: created",
        "usage_limits[research, month]: created",
        "usage_limits[everybody, month, Host/large]: created",
    ]
    found = [
        (row.subject, row.period, row.is_shared, row.requests, row.tokens)
        for row in UsageLimit.objects.order_by("pk")
    ]
    assert found == [
        ("everybody", "month", False, None, None),
        ("ada", "day", False, 0, None),
        ("research", "month", True, None, 2_000_000),
        ("research", "month", False, None, 1000),
        ("everybody", "month", False, None, 500),
    ]
    assert made(LIMITS).changes == []


def test_a_dump_of_limits_creates_the_same_rows_elsewhere():
    made(LIMITS)
    text, before = dumped(), list(UsageLimit.objects.values())
    assert made(text).changes == []
    UsageLimit.objects.all().delete()
    made(text)
    after = list(UsageLimit.objects.values())
    for rows in (before, after):
        for row in rows:
            del row["id"]
    assert after == before


def test_an_amount_that_the_file_leaves_out_is_no_limit_any_more():
    made(LIMITS)
    text = "[[usage_limits]]\nrequests = 5\n"
    assert made(text).changes == [
        "usage_limits[everybody, month].requests: none → 5",
        'usage_limits[everybody, month].cost: "20.5" → none',
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('user = "bo"\ntokens = 1', "[bo, month].user: there is no user 'bo'."),
        ("", "[everybody, month]: Enter at least one amount."),
        ('user = "ada"\ngroup = "g"\ntokens = 1', "name a user or a group, not both."),
        ("tokens = -1", "[everybody, month].tokens: Ensure this value is"),
        ('period = "year"\ntokens = 1', "period: Value 'year' is not a valid choice."),
        ("period = 3\ntokens = 1", "write user, group and period as strings."),
        ("is_shared = true\ntokens = 1", ".is_shared: Only a group's members share."),
        ("token = 1", ".token"),
        ("tokens = 1\n[[usage_limits]]\ntokens = 2", "this limit occurs twice."),
    ],
)
def test_a_wrong_limit_is_refused_with_its_path(text, problem):
    [found] = problems(f"[[usage_limits]]\n{text}\n")[:1]
    assert problem in found.replace(": unknown field 'token'", ".token")
    assert not UsageLimit.objects.exists()


# Identity providers


def test_a_file_creates_an_identity_provider():
    made(IDENTITIES)
    row = IdentityProvider.objects.get()
    assert (row.kind, row.client_id) == ("keycloak", "parley")
    assert row.secret.reveal() == "planted-4567"
    assert row.default_group == Group.objects.get(name="users")
    assert {(each.claim, each.group.name) for each in row.group_mappings.all()} == {
        ("/research", "research"),
        ("/boss", "operators"),
    }
    assert made(IDENTITIES).changes == []


def test_a_dump_names_a_variable_instead_of_the_secret():
    made(IDENTITIES)
    text = dumped()
    assert "planted" not in text
    assert 'secret = "env:STAFF_SECRET"' in text
    assert made(text).changes == []
    IdentityProvider.objects.all().delete()
    made(text)
    assert IdentityProvider.objects.get().group_mappings.count() == 2


def test_mappings_and_secret_follow_the_file():
    made(IDENTITIES)
    text = IDENTITIES.replace('{claim = "/boss", group = "operators"},', "")
    assert made(text, {"STAFF_SECRET": "another-8901"}).changes == [
        "identity_providers[staff].secret: replaced",
        "identity_providers[staff].group_mappings: now /research → research",
    ]
    assert IdentityProvider.objects.get().secret.reveal() == "another-8901"


def test_the_secret_follows_to_an_address_only_from_the_shell():
    made(IDENTITIES)
    moved = IDENTITIES.replace("id.example.org", "evil.example")
    assert made(moved, {}, from_admin=True).notes == [
        "identity_providers[staff].secret: files loaded here have no secrets; the"
        " stored secret stays."
    ]
    with pytest.raises(SecretUnavailable):
        IdentityProvider.objects.get().secret.reveal()
    made(IDENTITIES)
    made(moved)
    assert IdentityProvider.objects.get().secret.reveal() == "planted-4567"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("env:STAFF_SECRET", "in-the-file", "a secret does not belong in a file"),
        ("env:STAFF_SECRET", "env:ABSENT", "ABSENT is not set"),
        ('"keycloak"', '"myspace"', "kind: Value 'myspace' is not a valid choice."),
        ("https://id", "http://id", "Use https, or allow the private network."),
        ('claim = "/boss"', "claim = 3", "group_mappings[2].claim: write a string."),
        ("claim =", "role =", "group_mappings[1]: unknown field 'role'"),
        ("default_group = ", "default_grup = ", "did you mean default_group?"),
    ],
)
def test_a_wrong_identity_provider_is_refused(old, new, problem):
    assert any(problem in each for each in problems(IDENTITIES.replace(old, new)))
    assert not IdentityProvider.objects.exists()


def test_lists_that_are_closed_to_somebody_are_refused():
    assert problems(IDENTITIES, without=["identity_providers"]) == [
        "identity_providers: you may not change these."
    ]
    assert "identity_providers" not in dump(["identity_providers"])
