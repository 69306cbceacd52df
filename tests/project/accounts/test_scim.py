"""SCIM 2.0, as Entra ID and Okta use it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from conversations.audit.models import AuditEvent
from conversations.models import AccessToken
from conversations.models.access_token import Scope
from project.accounts.models import Invitation
from tests.conversations.scene import a_model, a_user, bearer, signed_in, staff

pytestmark = pytest.mark.django_db

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ADA = {
    "schemas": [USER],
    "userName": "ada@acme.org",
    "externalId": "0001-ada",
    "name": {"givenName": "Ada", "familyName": "Lovelace"},
    "emails": [{"value": "ada@acme.org", "type": "work", "primary": True}],
    "active": True,
    "password": "ignored-by-us",
}


class Program:
    def __init__(self, user: User, *scopes: str) -> None:
        _, token = AccessToken.issue(user, "scim", scopes=list(scopes))
        self._client = Client(headers={"Authorization": f"Bearer {token}"})

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        request = getattr(self._client, method)
        where = f"/scim/v2/{path}"
        if body is None:
            return request(where)
        return self.send(method, path, json.dumps(body))

    def send(self, method: str, path: str, text: str) -> Any:
        request = getattr(self._client, method)
        return request(f"/scim/v2/{path}", text, "application/scim+json")

    def patch(self, path: str, *operations: Any) -> Any:
        return self("patch", path, {"schemas": [PATCH], "Operations": operations})


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def program(root: User) -> Program:
    return Program(root, "scim")


def test_only_a_superusers_token_with_the_scope_comes_in(root: User):
    ada = a_user("ada", is_staff=True)
    path = "/scim/v2/Users"
    assert Client().get(path).status_code == 401
    assert signed_in(root).get(path).status_code == 401  # a session is no token
    others = [scope for scope in Scope.values if scope != "scim"]
    assert Program(root, *others)("get", "Users").status_code == 403
    assert Program(ada, "scim")("get", "Users").status_code == 403
    assert Program(root, "scim")("get", "Users").status_code == 200
    wrong = Client(headers={"Authorization": "Bearer parley-wrong"}).get(path)
    assert wrong.status_code == 401
    assert wrong.json()["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]


def test_the_scope_opens_nothing_else(root: User):
    _, token = AccessToken.issue(root, "scim", scopes=["scim"])
    client = Client(headers={"Authorization": f"Bearer {token}"})
    for path in ("/api/conversations/", "/api/tools/", "/api/memories/"):
        assert client.get(path).status_code == 403, path


def test_only_superusers_are_offered_the_scope(root: User):
    fields = {"label": "x", "scopes": ["scim"], "budget_period": "total"}
    assert (
        signed_in(a_user("ada", is_staff=True)).post("/tokens/", fields).status_code
        == 400
    )
    assert signed_in(root).post("/tokens/", fields).status_code == 200
    clerk = staff("clerk", "add_accesstoken", "view_accesstoken")
    page = "/admin/conversations/accesstoken/add/"
    signed_in(clerk).post(page, {**fields, "user": clerk.pk})
    assert not AccessToken.objects.filter(user=clerk).exists()
    signed_in(clerk).post(page, {**fields, "user": clerk.pk, "scopes": ["chat"]})
    assert AccessToken.objects.get(user=clerk).scopes == ["chat"]


def test_a_user_is_made_found_changed_and_deleted(program: Program):
    made = program("post", "Users", ADA)
    assert made.status_code == 201, made.content
    key = made.json()["id"]
    assert made["Location"].endswith(f"/scim/v2/Users/{key}")
    ada = User.objects.get(pk=key)
    assert (ada.username, ada.email, ada.last_name) == (
        "ada@acme.org",
        "ada@acme.org",
        "Lovelace",
    )
    assert not ada.has_usable_password()
    assert program("post", "Users", ADA).status_code == 409
    for query in (
        'userName eq "ada@acme.org"',
        'externalId eq "0001-ada"',
        'emails.value eq "ada@acme.org"',
    ):
        found = program("get", f"Users?filter={query}").json()
        assert [row["id"] for row in found["Resources"]] == [key], query
    assert program("get", 'Users?filter=userName eq "x"').json()["totalResults"] == 0
    shown = program("get", f"Users/{key}").json()
    assert (shown["externalId"], shown["active"]) == ("0001-ada", True)
    program.patch(
        f"Users/{key}",
        {"op": "Replace", "path": "name.givenName", "value": "Augusta"},
        {"op": "replace", "path": 'emails[type eq "work"].value', "value": "a@b.org"},
    )
    ada.refresh_from_db()
    assert (ada.first_name, ada.email) == ("Augusta", "a@b.org")
    assert program("put", f"Users/{key}", {**ADA, "active": False}).status_code == 200
    ada.refresh_from_db()
    assert not ada.is_active
    assert program("delete", f"Users/{key}").status_code == 204
    assert program("get", f"Users/{key}").status_code == 404
    assert key not in [r["id"] for r in program("get", "Users").json()["Resources"]]


def test_who_is_active_again_has_no_token_of_before(program: Program):
    ada = a_user("ada@acme.org")
    token, _ = AccessToken.issue(ada, "of before")
    for active in (False, True):
        change = {"op": "replace", "path": "active", "value": active}
        assert program.patch(f"Users/{ada.pk}", change).status_code == 200
    ada.refresh_from_db()
    assert ada.is_active
    token.refresh_from_db()
    assert not token.is_live


@pytest.mark.parametrize("value", [False, "False"])
@pytest.mark.parametrize("path", ["active", None])
def test_a_leaver_is_signed_out_at_once(program: Program, value: Any, path: Any):
    key = program("post", "Users", ADA).json()["id"]
    ada = User.objects.get(pk=key)
    browser = signed_in(ada)
    token = Client(headers=bearer(ada))
    assert browser.get("/account/").status_code == 200
    change = {"op": "replace", "value": {"active": value}}
    if path:
        change = {"op": "Replace", "path": path, "value": value}
    assert program.patch(f"Users/{key}", change).status_code == 200
    assert browser.get("/account/").status_code == 302
    assert token.get("/api/conversations/").status_code == 401


def test_groups_have_members(program: Program):
    ada = program("post", "Users", ADA).json()["id"]
    ben = program("post", "Users", {**ADA, "userName": "ben"}).json()["id"]
    body = {"displayName": "Engineers", "members": [{"value": ada}]}
    made = program("post", "Groups", body)
    assert made.status_code == 201, made.content
    key = made.json()["id"]
    assert [each["value"] for each in made.json()["members"]] == [ada]
    added = {"op": "Add", "path": "members", "value": [{"value": ben}]}
    removed = {"op": "Remove", "path": f'members[value eq "{ada}"]'}
    assert program.patch(f"Groups/{key}", added, removed).status_code == 200
    group = Group.objects.get(pk=key)
    assert [str(user.pk) for user in group.user_set.all()] == [ben]
    named = {"op": "replace", "path": "displayName", "value": "Developers"}
    program.patch(f"Groups/{key}", named)
    found = program("get", 'Groups?filter=displayName eq "Developers"').json()
    assert [row["id"] for row in found["Resources"]] == [key]
    shown = program("get", f"Users/{ben}").json()
    assert [each["display"] for each in shown["groups"]] == ["Developers"]
    assert program("delete", f"Groups/{key}").status_code == 204
    assert not Group.objects.filter(pk=key).exists()


def test_members_are_recorded_and_staff_stay(program: Program):
    ada, chief = a_user("ada"), a_user("chief", is_staff=True)
    group = Group.objects.create(name="Law")
    chief.groups.add(group)
    where = f"Groups/{group.pk}"
    added = {"op": "add", "path": "members", "value": [{"value": str(ada.pk)}]}
    program.patch(where, added)
    program.patch(where, {"op": "replace", "path": "members", "value": []})
    program.patch(where, added)
    program.patch(where, {"op": "remove", "path": "members"})

    events = AuditEvent.objects.filter(subject=ada.pk, action="user.change")
    assert [json.loads(each.text.details) for each in events.order_by("pk")] == [
        {"after": {"groups": {"added": ["Law"]}}},
        {"before": {"groups": {"removed": ["Law"]}}},
    ] * 2
    assert list(group.user_set.all()) == [chief]


def test_an_erased_person_leaves_no_invitation(db):
    zoe = a_user("zoe", email="Zoe@acme.org")
    Invitation.objects.create(email="zoe@acme.org")
    Invitation.objects.create(email="bob@acme.org")
    zoe.delete()
    assert [row.email for row in Invitation.objects.all()] == ["bob@acme.org"]


def test_it_is_no_way_to_more_rights(program: Program, root: User):
    staff = a_user("staff", is_staff=True)
    powerful = Group.objects.create(name="Operators")
    powerful.permissions.set(Permission.objects.all()[:1])
    ada = program("post", "Users", ADA).json()["id"]
    off = {"op": "replace", "path": "active", "value": False}
    for user in (staff, root):
        assert program.patch(f"Users/{user.pk}", off).status_code == 403
        assert program("put", f"Users/{user.pk}", ADA).status_code == 403
        assert program("delete", f"Users/{user.pk}").status_code == 403
    member = {"op": "add", "path": "members", "value": [{"value": ada}]}
    assert program.patch(f"Groups/{powerful.pk}", member).status_code == 403
    body = {"displayName": "x", "members": [{"value": ada}]}
    assert program("put", f"Groups/{powerful.pk}", body).status_code == 403
    assert program("delete", f"Groups/{powerful.pk}").status_code == 403
    body["members"] = [{"value": str(staff.pk)}]
    assert program("post", "Groups", body).status_code == 403
    raised = {"op": "replace", "path": "is_superuser", "value": True}
    assert program.patch(f"Users/{ada}", raised).status_code >= 400
    program("put", f"Users/{ada}", {**ADA, "is_superuser": True, "isStaff": True})
    assert not User.objects.get(pk=ada).is_superuser
    assert User.objects.filter(is_active=True, is_staff=True).count() == 2


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "Users", {"userName": ""}),
        ("post", "Users", {"userName": "a b"}),
        ("post", "Users", {"userName": "x" * 200}),
        ("post", "Users", {**ADA, "active": "maybe"}),
        ("post", "Users", {**ADA, "emails": [{"value": "no address"}]}),
        ("post", "Users", {**ADA, "emails": ["a@b.org"]}),
        ("post", "Users", {**ADA, "name": "Ada"}),
        ("post", "Users", [1]),
        ("post", "Groups", {"displayName": "x", "members": [{"value": "999999"}]}),
        ("post", "Groups", {"displayName": "x", "members": "ada"}),
        ("get", "Users?filter=userName", None),
        ("get", "Users?filter=" + "(" * 2000, None),
        ("get", "Users?startIndex=x", None),
        ("get", 'Users?filter=userName eq "x" or title eq "y"', None),
        ("get", "Users?filter=isSuperuser eq true", None),
        ("post", "Users", {**ADA, "emails": [{"value": None}, {"value": "a@b.org"}]}),
        ("post", "Users", {**ADA, "externalId": {"a": 1}}),
        ("post", "Users", {**ADA, "externalId": "x" * 300}),
        ("post", "Groups", {"displayName": ["x"]}),
        ("get", "Users/nobody", None),
        ("get", "Users/" + "9" * 40, None),
    ],
)
def test_bad_input_is_one_clear_error(
    program: Program, method: str, path: str, body: Any
):
    answer = program(method, path, body)
    assert answer.status_code in (400, 404), answer.content
    assert answer.json()["detail"]
    assert User.objects.filter(is_superuser=False).count() == 0
    assert not Group.objects.filter(name__contains="x").exists()


BROKEN = ["[" * 5000, '{"userName": "\\ud800"}', "{", "\xff", '{"a": NaN}']


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("path", ["Users", "Groups"])
def test_what_is_no_json_is_one_clear_error(program: Program, path: str, text: str):
    answer = program.send("post", path, text)
    assert answer.status_code == 400, answer.content
    assert answer.json()["scimType"] == "invalidSyntax"


@pytest.mark.parametrize(
    "operations",
    [
        None,
        [5],
        [{"op": None, "path": "active", "value": True}],
        [{"op": "replace", "path": 5, "value": True}],
        [{"op": "replace", "value": "x"}],
        [{"op": "replace", "path": "[", "value": "x"}],
        [{"op": "replace", "path": "a b", "value": "x"}],
    ],
)
def test_what_is_no_operation_is_one_clear_error(program: Program, operations: Any):
    ada = program("post", "Users", ADA).json()["id"]
    group = program("post", "Groups", {"displayName": "x"}).json()["id"]
    body = {"schemas": [PATCH], "Operations": operations}
    for path in (f"Users/{ada}", f"Groups/{group}"):
        answer = program("patch", path, body)
        assert answer.status_code == 400, answer.content
        assert answer.json()["detail"]


def test_a_name_that_is_null_is_none(program: Program):
    body = {**ADA, "name": {"givenName": None, "familyName": None}}
    assert program("post", "Users", body).status_code == 201
    assert User.objects.get(username="ada@acme.org").last_name == ""


def _with_members(program: Program) -> tuple[str, str, str]:
    """A group's key, and those of its two members."""
    ada = program("post", "Users", ADA).json()["id"]
    ben = program("post", "Users", {**ADA, "userName": "ben"}).json()["id"]
    members = [{"value": ada}, {"value": ben}]
    made = program("post", "Groups", {"displayName": "Law", "members": members})
    return made.json()["id"], ada, ben


def _members(program: Program, key: str) -> list[str]:
    return [each["value"] for each in program("get", f"Groups/{key}").json()["members"]]


def test_one_operation_for_each_member_costs_as_one_for_all(
    program: Program, django_assert_max_num_queries: Any
):
    users = [User.objects.create(username=f"u{n}") for n in range(60)]
    key = program("post", "Groups", {"displayName": "All"}).json()["id"]
    members = [{"value": str(user.pk)} for user in users]
    added = [{"op": "Add", "path": "members", "value": [each]} for each in members]
    paths = [f'members[value eq "{each["value"]}"]' for each in members]
    removed = [{"op": "remove", "path": path} for path in paths[:-1]]
    with django_assert_max_num_queries(60):
        program.patch(f"Groups/{key}", *added)
    assert len(_members(program, key)) == 60
    with django_assert_max_num_queries(60):
        program.patch(f"Groups/{key}", *removed)
    assert _members(program, key) == [members[-1]["value"]]
    program.patch(f"Groups/{key}", added[0], removed[0], added[1])  # in this order
    kept = {members[1]["value"], members[-1]["value"]}
    assert set(_members(program, key)) == kept
    refused = program.patch(f"Groups/{key}", added[2], {**added[3], "value": "x"})
    assert refused.status_code == 400
    assert set(_members(program, key)) == kept


@pytest.mark.parametrize(
    "path",
    [
        'members[display eq "ada"]',
        'members[value ne "ADA"]',
        'members[value eq "ADA" or value eq "BEN"]',
        'members[value eq "ADA"].value',
        "members.value",
    ],
)
@pytest.mark.parametrize("kind", ["remove", "replace", "add"])
def test_a_condition_that_is_not_understood_changes_no_members(
    program: Program, kind: str, path: str
):
    key, ada, ben = _with_members(program)
    path = path.replace("ADA", ada).replace("BEN", ben)
    operation = {"op": kind, "path": path, "value": [{"value": ada}]}
    if kind == "remove":
        del operation["value"]
    answer = program.patch(f"Groups/{key}", operation)
    assert answer.status_code == 400
    assert answer.json()["scimType"] == "invalidFilter"
    assert _members(program, key) == [ada, ben]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "Remove", "path": 'members[value eq "ADA"]'},
        {"op": "REMOVE", "path": 'Members[Value EQ "ADA"]'},
        {"op": "remove", "path": "members", "value": [{"value": "ADA"}] * 2},
        {
            "op": "remove",
            "path": "members",
            "value": [{"value": "ADA"}, {"value": "0"}],
        },
        {"op": "remove", "path": f'{GROUP}:members[value eq "ADA"]'},
        {"op": "Replace", "path": "MEMBERS", "value": [{"value": "BEN"}]},
        {"op": "replace", "value": {"members": [{"value": "BEN"}]}},
    ],
)
def test_one_member_leaves_however_a_program_writes_it(
    program: Program, operation: Any
):
    key, ada, ben = _with_members(program)
    text = json.dumps(operation).replace("ADA", ada).replace("BEN", ben)
    answer = program.patch(f"Groups/{key}", json.loads(text))
    assert answer.status_code == 200, answer.content
    assert _members(program, key) == [ben]


@pytest.mark.parametrize("value", ["999999", "nobody"])
def test_who_is_gone_needs_no_removal(program: Program, value: str):
    key, ada, ben = _with_members(program)
    gone = {"op": "remove", "path": f'members[value eq "{value}"]'}
    assert program.patch(f"Groups/{key}", gone).status_code == 200
    assert _members(program, key) == [ada, ben]


def test_a_closed_account_is_no_member_and_cannot_be_added(program: Program):
    key, ada, ben = _with_members(program)
    program("delete", f"Users/{ada}")
    assert _members(program, key) == [ben]
    back = {"op": "add", "path": "members", "value": [{"value": ada}]}
    assert program.patch(f"Groups/{key}", back).status_code == 400


def test_a_list_may_name_the_staff_who_are_members(program: Program):
    key, _, ben = _with_members(program)
    User.objects.filter(pk=ben).update(is_staff=True)
    members = [{"value": ben}]
    whole = {"op": "replace", "path": "members", "value": members}
    assert program.patch(f"Groups/{key}", whole).status_code == 200
    assert _members(program, key) == [ben]


def test_a_group_is_renamed_by_any_operation(program: Program):
    key = program("post", "Groups", {"displayName": "Law"}).json()["id"]
    program.patch(
        f"Groups/{key}",
        {"op": "add", "path": "externalId", "value": "g-1"},
        {"op": "Add", "path": "displayName", "value": "Legal"},
    )
    shown = program("get", f"Groups/{key}").json()
    assert (shown["displayName"], shown["externalId"]) == ("Legal", "g-1")
    okta = {"id": key, "displayName": "Law", "schemas": [GROUP]}
    program.patch(f"Groups/{key}", {"op": "replace", "value": okta})
    program.patch(f"Groups/{key}", {"op": "remove", "path": "externalId"})
    shown = program("get", f"Groups/{key}").json()
    assert (shown["displayName"], shown["externalId"]) == ("Law", "")


def test_what_is_refused_leaves_nothing_behind(program: Program):
    key, ada, ben = _with_members(program)
    body = {"displayName": "New", "members": [{"value": "999999"}]}
    assert program("put", f"Groups/{key}", body).status_code == 400
    assert program("post", "Groups", body).status_code == 400
    assert not Group.objects.filter(name="New").exists()
    assert _members(program, key) == [ada, ben]


#: What Entra ID writes by its own mapping of attributes.
ENTRA = {
    "displayName": "Augusta King",
    "title": "Countess",
    "name.givenName": "Augusta",
    'emails[type eq "work"].value': "king@acme.org",
    'phoneNumbers[type eq "mobile"].value': "5",
    f"{ENTERPRISE}:department": "Engines",
}


def test_attributes_that_are_not_stored_stop_no_others(program: Program):
    key = program("post", "Users", {**ADA, "displayName": "Ada"}).json()["id"]
    by_path = [{"op": "Add", "path": p, "value": v} for p, v in ENTRA.items()]
    for operations in ([{"op": "replace", "value": ENTRA}], by_path):
        answer = program.patch(f"Users/{key}", *operations)
        assert answer.status_code == 200, answer.content
        ada = User.objects.get(pk=key)
        assert (ada.first_name, ada.email) == ("Augusta", "king@acme.org")
        program("put", f"Users/{key}", ADA)


@pytest.mark.parametrize("path", ["name", None])
def test_a_name_is_changed_as_a_whole(program: Program, path: Any):
    key = program("post", "Users", ADA).json()["id"]
    value: Any = {"givenName": "Augusta", "familyName": "King", "formatted": "A. King"}
    value = value if path else {"id": key, "schemas": [USER], "name": value}
    answer = program.patch(
        f"Users/{key}", {"op": "replace", "path": path, "value": value}
    )
    assert answer.status_code == 200, answer.content
    assert User.objects.get(pk=key).get_full_name() == "Augusta King"


def test_values_are_removed(program: Program):
    key = program("post", "Users", ADA).json()["id"]
    other = {"op": "remove", "path": 'emails[type eq "home"]'}
    program.patch(f"Users/{key}", other)
    assert User.objects.get(pk=key).email == "ada@acme.org"
    answer = program.patch(
        f"Users/{key}",
        {"op": "Remove", "path": 'emails[type eq "work"].value'},
        {"op": "Remove", "path": "name.familyName"},
        {"op": "Remove", "path": "externalId"},
    )
    shown = answer.json()
    assert (shown["emails"], shown["name"]["familyName"]) == ([], "")
    assert shown["externalId"] == ""
    program("put", f"Users/{key}", ADA)
    program("put", f"Users/{key}", {**ADA, "emails": [], "externalId": None})
    assert User.objects.get(pk=key).email == ""
    for name in ("userName", "active"):
        refused = program.patch(f"Users/{key}", {"op": "remove", "path": name})
        assert refused.status_code == 400


def test_a_name_in_other_case_is_taken(program: Program):
    key = program("post", "Users", ADA).json()["id"]
    assert (
        program("post", "Users", {**ADA, "userName": "ADA@acme.org"}).status_code == 409
    )
    upper = {"op": "replace", "path": "UserName", "value": "Ada@acme.org"}
    assert program.patch(f"Users/{key}", upper).status_code == 200


@pytest.mark.parametrize(
    ("query", "finds"),
    [
        ('userName eq "ADA@ACME.org" and active eq true', True),
        ("active eq false", False),
        ('username eq "ada@acme.org"', True),
        (f'{USER}:userName eq "ada@acme.org"', True),
        ('emails[type eq "work"].value eq "ada@acme.org"', True),
        ('emails[type eq "home"].value eq "ada@acme.org"', False),
        ('id eq "KEY"', True),
        ('id eq "nobody"', False),
    ],
)
def test_filters_find_users(program: Program, query: str, finds: bool):
    key = program("post", "Users", ADA).json()["id"]
    found = program("get", f"Users?filter={query.replace('KEY', key)}").json()
    assert (key in [row["id"] for row in found["Resources"]]) is finds


@pytest.mark.parametrize("count", [2, 60])
@pytest.mark.parametrize("word", ["or", "and"])
def test_a_filter_of_very_many_conditions_is_refused(
    program: Program, count: int, word: str
):
    query = f" {word} ".join(["userName pr"] * count)
    for sought in (query, "(" * count + "userName pr" + ")" * count):
        answer = program("get", f"Users?filter={sought}")
        assert answer.status_code == (200 if count == 2 else 400), sought


def test_entra_id_asks_for_one_member(program: Program):
    key, ada, _ = _with_members(program)
    query = (
        f'Groups?filter=id eq "{key}" and members eq "%s"&excludedAttributes=members'
    )
    found = program("get", query % ada).json()
    assert [row["id"] for row in found["Resources"]] == [key]
    assert "members" not in found["Resources"][0]
    assert program("get", query % "0").json()["totalResults"] == 0


def test_pages_have_bounds(program: Program):
    assert program("get", "Users?startIndex=0").json()["startIndex"] == 1
    assert program("get", "Users?count=-1").json()["Resources"] == []
    config = program("get", "ServiceProviderConfig").json()
    assert config["filter"] == {"supported": True, "maxResults": 500}
    assert config["changePassword"] == {"supported": False}


def test_the_end_of_a_group_opens_nothing_to_everybody(program: Program):
    key, _, _ = _with_members(program)
    model = a_model("secret")
    model.groups.add(key)
    refused = program("delete", f"Groups/{key}")
    assert refused.status_code == 409
    assert "secret" in refused.json()["detail"]
    model.groups.set([Group.objects.create(name="Tax")])
    assert program("delete", f"Groups/{key}").status_code == 204


ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("get", "Nothing", 404),
        ("get", "Users/", 404),
        ("get", "Users/1/groups", 404),
        ("post", "Nothing", 404),
        ("put", "Schemas", 405),
        ("delete", "ResourceTypes", 405),
        ("get", "Users/.search", 405),
        ("put", "Users", 405),
        ("delete", "Groups", 405),
        ("get", "ResourceTypes/Cat", 404),
        ("get", "Schemas/urn:cat", 404),
        ("get", "Me", 501),
        ("post", "Bulk", 501),
        ("get", "", 501),
        ("get", "Users/999999", 404),
        ("post", "Users", 400),
        ("get", "Users?filter=isSuperuser eq true", 400),
    ],
)
def test_each_refusal_is_an_error_of_scim(
    program: Program, method: str, path: str, status: int
):
    body = {} if method == "post" else None
    stranger = getattr(Client(), method)(f"/scim/v2/{path}")
    for answer, expected in ((program(method, path, body), status), (stranger, 401)):
        assert answer.status_code == expected, answer.content
        assert answer["Content-Type"].startswith("application/scim+json")
        told = answer.json()
        assert (told["schemas"], told["status"]) == ([ERROR], str(expected))
        assert told["detail"]


@pytest.mark.parametrize("path", ["/scim", "/scim/", "/scim/v1/Users", "/scim/v2"])
def test_what_is_beside_the_resources_is_an_error_of_scim(path: str):
    answer = Client().get(path)
    assert answer.status_code == 401
    assert answer["Content-Type"].startswith("application/scim+json")


def test_a_refused_method_names_the_allowed_ones(program: Program):
    assert program("put", "Schemas")["Allow"] == "GET"


def test_members_cost_the_same_statements_however_many(program: Program):
    people = User.objects.bulk_create(User(username=f"p{n}") for n in range(60))
    keys = [str(user.pk) for user in people]
    group = Group.objects.create(name="Law")
    where, counts = f"Groups/{group.pk}", []
    program("get", where)  # what a process reads once
    for chosen in (keys[:3], keys):
        members = [{"value": key} for key in chosen]
        for operation in (
            {"op": "replace", "path": "members", "value": members},
            {"op": "remove", "path": "members"},
        ):
            with CaptureQueriesContext(connection) as statements:
                answer = program.patch(where, operation)
            assert answer.status_code == 200, answer.content
            counts.append(len(statements))
    assert counts[2:] == counts[:2]
    for user in people:
        events = AuditEvent.objects.filter(subject=user.pk, action="user.change")
        assert events.filter(target_id=str(user.pk)).count() in (2, 4)
    assert AuditEvent.objects.filter(action="user.change").count() == 2 * (3 + 60)


@pytest.mark.parametrize("depth", [60, 900, 990, 1020])
@pytest.mark.parametrize("path", ["Users", "Groups"])
def test_a_deep_body_is_an_error_of_the_program(program: Program, path: str, depth):
    deep = f'{{"schemas": ["{USER}"], "x": {"[" * depth}{"]" * depth}}}'
    for method, where in (("post", path), ("put", f"{path}/1"), ("patch", f"{path}/1")):
        refused = program.send(method, where, deep)
        assert refused.status_code == 400, method
        assert refused.json()["scimType"] == "invalidSyntax"


@pytest.mark.parametrize("wrong", [1, True, ["userName"], {"userName": "ada"}])
def test_the_filter_of_a_search_is_a_text(program: Program, wrong: Any):
    schema = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
    body = {"schemas": [schema], "filter": wrong}
    assert program("post", "Users/.search", body).status_code == 400
