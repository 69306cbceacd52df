from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from llm import router
from llm.adaptation.adapt import merge_usage
from llm.db.encrypted_field import MASK
from llm.errors import InvalidKey, RateLimited
from llm.http.client import ProviderCall
from llm.models import ApiKey, ModelCall, Provider
from llm.provider import Route
from llm.wire.codecs.anthropic.blocks import usage_of
from llm.wire.deltas import FinishDelta, StartDelta, UsageDelta

pytestmark = pytest.mark.django_db

KEY = "no-usual-prefix-0123456789"
STOP = FinishDelta("stop", "end_turn")


@pytest.fixture
def route() -> Route:
    provider = Provider.objects.create(name="Groq EU", kind="groq")
    provider.keys.create(secret=KEY)
    model = provider.models.create(name="llama", prices={"input": 2, "output": 8})
    return router.route_of(model)


def test_a_call_is_recorded_whole(route: Route):
    call = ProviderCall(ttft=0.5, latency=2.5, http_status=200, request_id="req_1")
    row = ModelCall.objects.record(
        call,
        route,
        turn_id="resp_1",
        step=2,
        start=StartDelta("chatcmpl-1", "llama-2026-01-01"),
        usage=UsageDelta(1000, 100, 400, 0, reasoning_tokens=50),
        finish=STOP,
    )
    row.refresh_from_db()
    assert row.status == "completed"
    assert (row.turn_id, row.step, row.attempt) == ("resp_1", 2, 1)
    assert (row.model_id, row.key_id) == (route.model_id, route.key_id)
    assert (row.provider_name, row.model_name) == ("Groq EU", "llama-2026-01-01")
    assert (row.input_tokens, row.cached_tokens, row.output_tokens) == (1000, 400, 100)
    assert (row.cache_write_tokens, row.reasoning_tokens) == (0, 50)
    assert row.cache_write_1h_tokens is None
    assert row.cost == Decimal("0.0028")
    assert (row.ttft, row.latency, row.http_status) == (0.5, 2.5, 200)
    assert (row.request_id, row.response_id) == ("req_1", "chatcmpl-1")
    assert row.finish_reason == "end_turn"
    assert (row.error_code, row.error_detail) == ("", "")


@pytest.mark.parametrize("together", [False, True])
def test_cache_writes_of_an_hour_are_recorded_apart(route: Route, together: bool):
    """As Claude streams them: the end of the answer repeats only some of the counts."""
    begin = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 30,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 10,
            "ephemeral_1h_input_tokens": 20,
        },
    }
    call = merge_usage(
        usage_of(begin),
        usage_of({"cache_creation_input_tokens": 30, "output_tokens": 5}),
    )
    if together:
        made = ModelCall.of(ProviderCall(), route, usage=call, finish=STOP)
        ModelCall.objects.record_all([made])
    else:
        ModelCall.objects.record(ProviderCall(), route, usage=call, finish=STOP)
    row = ModelCall.objects.get()
    assert (row.cache_write_tokens, row.cache_write_1h_tokens) == (30, 20)
    assert row.input_tokens == 33


def test_what_a_host_counts_apart_is_in_the_row(route: Route):
    compaction = {"type": "compaction", "input_tokens": 1000, "output_tokens": 10}
    counts = {"input_tokens": 100, "output_tokens": 1}
    usage = usage_of({**counts, "iterations": [compaction]})
    row = ModelCall.objects.record(ProviderCall(), route, usage=usage, finish=STOP)
    assert (row.input_tokens, row.output_tokens) == (1100, 11)
    assert row.cost == (1100 * 2 + 11 * Decimal(8)) / 1_000_000
    assert not row.is_estimated


def test_tier_and_searches_are_recorded_and_marked_without_their_price(route: Route):
    counts = {"input_tokens": 100, "output_tokens": 1}
    searched = {"server_tool_use": {"web_search_requests": 2}}
    usage = usage_of({**counts, **searched, "service_tier": "priority"})
    record = ModelCall.objects.record
    row = record(ProviderCall(), route, usage=usage, finish=STOP)
    row.refresh_from_db()
    assert (row.service_tier, row.web_searches) == ("priority", 2)
    assert row.file_searches is None
    assert row.is_estimated
    assert row.cost == Decimal("0.000208")
    known = replace(
        route, prices={**route.prices, "web_search": 5, "tiers": {"priority": 2}}
    )
    row = record(ProviderCall(), known, usage=usage, finish=STOP)
    assert not row.is_estimated
    assert row.cost == Decimal("0.010416")


@pytest.mark.parametrize(
    ("error", "finish", "cancelled", "status"),
    [
        (None, STOP, False, "completed"),
        (None, FinishDelta("tool_calls"), False, "completed"),
        (None, FinishDelta("length"), False, "incomplete"),
        (None, FinishDelta("content_filter"), False, "incomplete"),
        (None, None, False, "failed"),
        (None, None, True, "cancelled"),
        (RateLimited(), None, True, "cancelled"),
        (RateLimited(), None, False, "failed"),
        (RateLimited(), STOP, False, "failed"),
    ],
)
def test_the_status_shows_how_the_call_ended(route, error, finish, cancelled, status):
    call = ProviderCall(error=error)
    row = ModelCall.objects.record(call, route, finish=finish, cancelled=cancelled)
    assert row.status == status


def test_the_detail_of_an_error_is_stored_without_the_key(route: Route):
    detail = f"Incorrect key {KEY} (or sk-proj-aaaaaaaaaaaaaaaaaaaa), see the docs."
    error = InvalidKey(detail=detail)
    row = ModelCall.objects.record(ProviderCall(error=error, http_status=401), route)
    assert row.error_code == "E_LLM_INVALID_KEY"
    assert row.error_detail == f"Incorrect key {MASK} (or {MASK}), see the docs."


def test_a_key_cut_by_the_end_of_the_detail_is_taken_out_as_well(route: Route):
    error = InvalidKey(detail="x" * 3990 + KEY)
    row = ModelCall.objects.record(ProviderCall(error=error), route)
    assert KEY[:8] not in row.error_detail
    assert len(row.error_detail) <= 4000


def test_a_key_knows_its_last_use_and_its_last_error(route: Route):
    row = ModelCall.objects.record(ProviderCall(error=RateLimited(detail=KEY)), route)
    key = ApiKey.objects.get()
    assert key.last_used_at == row.created_at
    assert key.last_error.startswith("E_LLM_RATE_LIMIT: The provider's rate limit")
    assert KEY not in key.last_error
    ModelCall.objects.record(ProviderCall(), route, finish=STOP)
    assert ApiKey.objects.get().last_error == ""


def test_nonsense_from_a_provider_is_recorded_as_far_as_it_goes(route: Route):
    row = ModelCall.objects.record(
        ProviderCall(request_id="r" * 500),
        route,
        start=StartDelta("i" * 500, "m" * 500),
        usage=UsageDelta(-5, 10**20, None, -1, reasoning_tokens=3),
        finish=FinishDelta("stop", "f" * 500),
    )
    row.refresh_from_db()
    assert (row.input_tokens, row.output_tokens) == (None, 2**31 - 1)
    assert (row.cached_tokens, row.cache_write_tokens) == (None, None)
    assert row.cost is None
    for name in ("request_id", "response_id", "model_name", "finish_reason"):
        assert len(getattr(row, name)) == ModelCall._meta.get_field(name).max_length


def test_a_cost_too_large_for_the_column_is_none(route: Route):
    row = ModelCall.objects.record(
        ProviderCall(), route, usage=UsageDelta(1, 1, cost=1e30), finish=STOP
    )
    assert row.cost is None


def test_an_unknown_price_is_none_and_not_nothing(route: Route):
    row = ModelCall.objects.record(ProviderCall(), route, finish=STOP)
    assert row.cost is None


def test_recording_reads_nothing(route: Route, django_assert_num_queries):
    with django_assert_num_queries(2):  # insert, update
        ModelCall.objects.record(
            ProviderCall(),
            route,
            usage=UsageDelta(1, 1),
            start=StartDelta(),
            finish=STOP,
        )


def test_many_calls_are_recorded_in_few_statements(
    route: Route, django_assert_num_queries
):
    refused = ProviderCall(error=RateLimited())
    calls = [ProviderCall(), ProviderCall(), refused, refused]
    rows = [ModelCall.of(call, route, finish=STOP) for call in calls]
    # The savepoint and its end, the rows, and a look at the key for either ending.
    with django_assert_num_queries(5):
        ModelCall.objects.record_all(rows)
    statuses = ModelCall.objects.order_by("id").values_list("status", flat=True)
    assert list(statuses) == ["completed", "completed", "failed", "failed"]
    key = route.key_id and ApiKey.objects.get(pk=route.key_id)
    assert key.last_error.startswith(f"{refused.error.code}: ")
    assert key.last_used_at is not None
