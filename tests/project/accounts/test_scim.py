"""SCIM 2.0, as Entra ID and Okta use it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from conversations.audit.models import AuditEvent
from conversations.models import AccessToken
from conversations.models.access_token import Scope
from project.accounts.models import Invitation
from tests.conversations.scene import a_user, bearer, signed_in, staff

pytestmark = pytest.mark.django_db

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
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
        ("get", "Users?startIndex=0", None),
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
