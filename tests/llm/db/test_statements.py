"""Prepared queries answer as the ORM does, whatever values come later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from llm.db.statements import MAX_KNOWN, CompiledInsert, CompiledQuery, CompiledRows
from llm.db.user_parameter import UserParameter
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from tools.models import HttpTool, Tool
from tools.models.tool import RELATED_ROWS

pytestmark = pytest.mark.django_db

_BY_NAME = CompiledQuery[LanguageModel](
    lambda name: LanguageModel.objects.filter(name=name), "a name", related=["provider"]
)


@pytest.fixture
def provider() -> Provider:
    return Provider.objects.create(
        name="home", kind="openai_compatible", base_url="http://127.0.0.1:1/v1"
    )


def test_rows_are_whole_with_those_they_lead_to(
    provider: Provider, django_assert_num_queries: object
) -> None:
    for name in ("one", "two"):
        LanguageModel.objects.create(
            provider=provider, name=name, capabilities={"tools": name == "two"}
        )
    for name in ("one", "two"):
        found = _BY_NAME.first(name)
        assert found == LanguageModel.objects.get(name=name)
        assert found.capabilities == {"tools": name == "two"}
        with django_assert_num_queries(0):
            assert found.provider.name == "home"
    assert _BY_NAME.first("three") is None


@pytest.mark.django_db(transaction=True)
def test_shared_rows_are_those_of_now(provider: Provider) -> None:
    assert list(_BY_NAME.all_shared("one")) == []
    LanguageModel.objects.create(provider=provider, name="one", label="A")
    (first,) = _BY_NAME.all_shared("one")
    assert (first.label, first.provider.name) == ("A", "home")
    assert _BY_NAME.all_shared("one")[0] is first
    LanguageModel.objects.update(label="B")
    (changed,) = _BY_NAME.all_shared("one")
    assert (changed.label, first.label) == ("B", "A")
    LanguageModel.objects.update(label="A")
    assert _BY_NAME.all_shared("one")[0].label == "A"
    Provider.objects.update(name="away")  # a row that it leads to
    assert _BY_NAME.all_shared("one")[0].provider.name == "away"
    LanguageModel.objects.all().delete()
    assert list(_BY_NAME.all_shared("one")) == []


@pytest.mark.django_db(transaction=True)
def test_shared_rows_in_use_outlive_any_number_of_others(provider: Provider) -> None:
    names = [f"model {number}" for number in range(MAX_KNOWN + 1)]
    LanguageModel.objects.bulk_create(
        LanguageModel(provider=provider, name=name) for name in [*names, "in use"]
    )
    (shared,) = _BY_NAME.all_shared("in use")
    for name in names:
        _BY_NAME.all_shared(name)
        assert _BY_NAME.all_shared("in use")[0] is shared


def test_a_row_that_is_found_can_be_saved(provider: Provider) -> None:
    LanguageModel.objects.create(provider=provider, name="one")
    found = _BY_NAME.all("one")[0]
    found.label = "First"
    found.save()
    assert LanguageModel.objects.get().label == "First"


def test_a_join_to_a_missing_row_is_none() -> None:
    query = CompiledQuery[ModelCall](
        lambda turn: ModelCall.objects.filter(turn_id=turn), "a turn", related=["model"]
    )
    ModelCall.objects.create(turn_id="one", provider_name="home", model_name="gone")
    found = query.first("one")
    assert found is not None
    assert found.model is None


def test_moments_are_compared(provider: Provider) -> None:
    query = CompiledQuery[ApiKey](
        lambda now: ApiKey.objects.usable(now), datetime(1970, 1, 2, tzinfo=UTC)
    )
    now = timezone.now()
    resting = {"state": ApiKey.State.RESTING, "rest_until": now}
    ApiKey.objects.create(provider=provider, label="rests", **resting)
    assert query.all(now - timedelta(seconds=1)) == []
    assert len(query.all(now + timedelta(seconds=1))) == 1


def test_rows_of_tools_are_whole_with_what_may_lead_to_them(
    django_assert_num_queries: object,
) -> None:
    """Some relations lead back to the row, and of some rows they lead nowhere."""
    query = CompiledQuery[Tool](
        lambda kind: Tool.objects.filter(kind=kind), "a kind", related=RELATED_ROWS
    )
    with_row = Tool.objects.create(name="one", kind=Tool.Kind.HTTP)
    HttpTool.objects.create(tool=with_row, url="https://example.org/")
    Tool.objects.create(name="two", kind=Tool.Kind.HTTP)
    found = sorted(query.all("http"), key=lambda tool: tool.name)
    with django_assert_num_queries(0):  # type: ignore[operator]
        http = [getattr(tool, "http", None) for tool in found]
        assert [row and row.url for row in http] == ["https://example.org/", None]
        assert http[0].tool is found[0]
        assert [hasattr(tool, "mcp_server") for tool in found] == [False, False]


def test_columns_alone(provider: Provider) -> None:
    query = CompiledRows(
        lambda pk, user: (
            LanguageModel.objects.available_to(UserParameter(user))
            .filter(pk=pk)
            .values_list("pk")
        ),
        -1,
        -2,
    )
    inside, outside = (User.objects.create_user(name) for name in ("in", "out"))
    model = LanguageModel.objects.create(provider=provider, name="one")
    assert query.rows(model.pk, outside.pk) == [(model.pk,)]
    group = Group.objects.create(name="few")
    inside.groups.add(group)
    model.groups.add(group)
    assert query.rows(model.pk, inside.pk) == [(model.pk,)]
    assert query.rows(model.pk, outside.pk) == []


def test_a_value_without_a_place_is_a_mistake() -> None:
    query = CompiledQuery[LanguageModel](
        lambda name: LanguageModel.objects.all(), "a name"
    )
    with pytest.raises(AssertionError):
        query.all("one")


_write_calls = CompiledInsert(ModelCall)


def test_a_row_is_written_as_the_orm_writes_it() -> None:
    fields = {
        "turn_id": "one",
        "provider_name": "home",
        "cost": Decimal("0.25"),
        "degraded": ["seed"],
    }
    ModelCall.objects.create(**fields)
    mine = ModelCall(**fields)
    _write_calls(mine)
    theirs, written = ModelCall.objects.order_by("pk").values()
    assert written.pop("id") == mine.pk != theirs.pop("id")
    assert written.pop("created_at") == mine.created_at >= theirs.pop("created_at")
    assert written == theirs
    mine.status = ModelCall.Status.FAILED
    mine.save()
    assert ModelCall.objects.filter(status="failed").count() == 1


def test_bulk_inserts_keep_their_order_and_preset_values() -> None:
    then = datetime(2026, 1, 2, tzinfo=UTC)
    _write_calls(*(ModelCall(turn_id=name, created_at=then) for name in "abc"))
    _write_calls()
    rows = ModelCall.objects.order_by("pk").values_list("turn_id", "created_at")
    assert list(rows) == [(name, then) for name in "abc"]
