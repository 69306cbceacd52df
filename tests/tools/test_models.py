from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError

from tools import registry
from tools.apps import sync_tools
from tools.models import HttpTool, Tool
from tools.models import tool as models
from tools.registry import get_tool, python_tools, tool

pytestmark = pytest.mark.django_db


@tool(timeout=7, replay="idempotent", label="Buy")
async def buy(what: str) -> None:
    """Buy it."""


@tool
async def sell(what: str) -> None:
    """Sell it."""


@pytest.fixture
def code(monkeypatch):
    """What code offers: the test changes it."""
    code = {"buy": get_tool(buy), "sell": get_tool(sell)}
    monkeypatch.setattr(models, "python_tools", lambda: code)
    Tool.objects.all().delete()
    Tool.objects.sync()
    return code


@pytest.fixture
def user():
    return User.objects.create_user("ada")


def test_after_migrate_each_tool_has_a_row():
    assert set(Tool.objects.values_list("name", flat=True)) == set(python_tools())
    Tool.objects.all().delete()
    call_command("migrate", verbosity=0)
    assert set(Tool.objects.values_list("name", flat=True)) == set(python_tools())


def test_after_flush_too():
    Tool.objects.all().delete()
    sync_tools(using="default", sender=None)
    assert Tool.objects.count() == len(python_tools())


def test_without_a_table_there_is_nothing_to_write(django_assert_num_queries):
    class NoTables:
        def get_model(self, *names):
            raise LookupError

    with django_assert_num_queries(0):
        sync_tools(using="default", apps=NoTables())


def test_values_set_by_staff_remain(code):
    Tool.objects.filter(name="buy").update(enabled=False, description="Mine.")
    Tool.objects.sync()
    row = Tool.objects.get(name="buy")
    assert (row.enabled, row.description) == (False, "Mine.")


def test_a_row_without_code_is_marked_until_it_comes_again(code):
    missing = code.pop("buy")
    Tool.objects.sync()
    assert Tool.objects.get(name="buy").is_missing
    assert not Tool.objects.get(name="sell").is_missing
    assert list(Tool.objects.available(None)) == ["sell"]
    code["buy"] = missing
    Tool.objects.sync()
    assert not Tool.objects.get(name="buy").is_missing


def test_syncing_again_changes_nothing(code):
    before = list(Tool.objects.values())
    Tool.objects.sync()
    assert list(Tool.objects.values()) == before


def test_a_tool_is_used_as_code_declares_it(code):
    assert Tool.objects.available(None) == code


def test_a_row_has_the_last_word(code):
    Tool.objects.filter(name="buy").update(
        label="Shop", description="Mine.", timeout=0.5, replay="safe"
    )
    used = Tool.objects.available(None)["buy"]
    assert (used.label, used.description) == ("Shop", "Mine.")
    assert (used.timeout, used.replay) == (0.5, "safe")
    assert used.call == code["buy"].call
    assert code["buy"].timeout == 7


def test_a_disabled_or_missing_tool_is_not_available(code):
    Tool.objects.filter(name="buy").update(enabled=False)
    del code["sell"]
    assert Tool.objects.available(None) == {}


def test_named_groups_are_the_only_ones(code, user):
    group = Group.objects.create(name="buyers")
    row = Tool.objects.get(name="buy")
    row.groups.set([group, Group.objects.create(name="others")])
    assert list(Tool.objects.available(user)) == ["sell"]
    assert list(Tool.objects.available(AnonymousUser())) == ["sell"]
    user.groups.add(group)
    assert list(Tool.objects.available(user)) == ["buy", "sell"]
    assert list(Tool.objects.available(None)) == ["buy", "sell"]
    root = User.objects.create_superuser("root")
    assert list(Tool.objects.available(root)) == ["buy", "sell"]


def test_one_query_is_enough(code, user, django_assert_num_queries):
    with django_assert_num_queries(1):
        Tool.objects.available(user)


@pytest.mark.parametrize("timeout", [0, -1, 0.01, 1e9])
def test_a_timeout_has_limits(code, timeout):
    row = Tool.objects.get(name="buy")
    row.timeout = timeout
    with pytest.raises(ValidationError):
        row.full_clean()


def test_the_database_refuses_a_timeout_that_never_comes(code):
    with pytest.raises(IntegrityError):
        Tool.objects.update(timeout=0)


@pytest.mark.parametrize("name", ["7up", "two words", "é", "-x"])
def test_a_name_is_one_that_every_provider_takes(name):
    with pytest.raises(ValidationError):
        Tool(name=name).full_clean()
    assert not registry.NAME.match(name)


def test_people_see_the_label():
    assert str(Tool(name="buy")) == "buy"
    assert str(Tool(name="buy", label="Shop")) == "Shop"


def test_a_tool_and_its_schema_are_built_once(code):
    first, again = (Tool.objects.get(name="buy").build_tool() for _ in range(2))
    assert first is again
    assert first.definition is again.definition
    Tool.objects.filter(name="buy").update(description="Mine.")
    changed = Tool.objects.get(name="buy").build_tool()
    assert changed.definition["description"] == "Mine."
    assert first.definition["description"] == "Buy it."


# Asking first


@pytest.mark.parametrize(
    ("method", "policy"),
    [
        ("GET", None),
        ("HEAD", None),
        ("POST", "always"),
        ("PUT", "always"),
        ("PATCH", "always"),
        ("DELETE", "always"),
    ],
)
def test_a_writing_http_tool_needs_approval_until_staff_change_it(
    db: None, method: str, policy: str | None
):
    row = Tool.objects.create(name="t", kind="http", description="T.")
    HttpTool.objects.create(tool=row, method=method, url="https://a.test/x")

    def approval_policy() -> str | None:
        approval = Tool.objects.available(None)["t"].approval
        return approval and approval.policy

    assert approval_policy() == policy
    Tool.objects.filter(name="t").update(runs_unasked=True)
    assert approval_policy() is None
    row = Tool.objects.get(name="t")
    assert row in Tool.objects.awaiting_review()
    row.approval = "first"
    row.save()
    assert approval_policy() == "first"
    assert not Tool.objects.awaiting_review().exists()
    row.approval = "never"
    row.save(update_fields=["approval"])
    assert approval_policy() is None
    row.approval = ""
    row.save()
    assert approval_policy() == policy
