"""Attempts and fallbacks, over real bytes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx
from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from llm import router
from llm.capabilities import capabilities_of
from llm.errors import (
    BadRequest,
    BadResponse,
    InvalidKey,
    LLMError,
    ProviderDown,
    ProviderTimeout,
    RateLimited,
)
from llm.generation import retries, retry_policy
from llm.generation.request_builder import RequestBuilder
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.models import LanguageModel, Provider
from llm.providers import all_providers
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    FrameDelta,
    StartDelta,
    TextDelta,
    UsageDelta,
)
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import user_message
from llm.wire.request import Request

from .chat import DONE, chunk
from .hosts import (
    USAGE,
    Host,
    breaks_off,
    calls,
    frames,
    refuses,
    route,
    route_at,
    text_stream,
)

THRICE = Policy(attempts=3)
ONCE = Policy(attempts=1)


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


class Waits(list):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def request(**fields: Any) -> Request:
    return Request(model="a-model", items=[user_message("Hi")], **fields)


async def listen(
    *routes: Any, call: ProviderCall, model_request: Request | None = None, **options
):
    """What reached the caller, and the error that ended it."""
    options = {"wait": Waits(), "policy": ONCE, **options}
    deltas: list[Delta] = []
    stream = retries.stream(routes, model_request or request(), call, **options)
    try:
        async with aclosing(stream) as batches:
            async for batch in batches:
                deltas += batch
    except LLMError as exc:
        return deltas, exc
    return deltas, None


def text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


class Items(list):
    """Whose end can be seen."""


async def test_the_input_is_released_once_output_is_published(web):
    Host(web, "a", text_stream("Hello"))
    items = Items([user_message("Hi")])
    reference = weakref.ref(items)
    stream = retries.stream(
        [route()],
        Request(model="m", items=items),
        ProviderCall(),
        policy=THRICE,
        wait=Waits(),
    )
    del items
    async with aclosing(stream) as batches:
        deltas_seen = await anext(batches)
        gc.collect()
        assert reference() is None
        async for deltas in batches:
            deltas_seen += deltas
    assert text(deltas_seen) == "Hello"


# Attempts


async def test_a_model_is_tried_three_times_by_default(web):
    host, call, waits = Host(web, "a", *[refuses(429)] * 3), ProviderCall(), Waits()
    deltas, error = await listen(route(), call=call, policy=None, wait=waits)
    assert isinstance(error, RateLimited)
    assert (len(host.requests), len(waits)) == (3, 2)
    assert (deltas, [c.attempt for c in [*call.earlier, call]]) == ([], [1, 2, 3])


async def test_nothing_is_repeated_where_staff_set_one_attempt(web):
    host, call = Host(web, "a", refuses(503)), ProviderCall()
    wishes = {"retry": {"attempts": 1}}
    await listen(route(defaults=wishes), call=call, policy=None)
    assert (len(host.requests), call.earlier, call.attempt) == (1, (), 1)


async def test_a_request_that_found_no_connection_is_repeated(web):
    host = Host(web, "a", httpx.ConnectTimeout("x"), text_stream("Hello"))
    deltas, _ = await listen(route(), call=ProviderCall(), policy=None)
    assert (text(deltas), len(host.requests)) == ("Hello", 2)


@pytest.mark.parametrize(
    "given_up",
    [
        ProviderTimeout(detail="Silent for 120 s."),
        httpx.ReadTimeout("late"),
        TimeoutError(),
    ],
    ids=["ours", "httpx", "system"],
)
async def test_a_timed_out_request_is_repeated_only_on_request(web, given_up):
    """It may still run at the provider, and cost what it costs."""
    host = Host(web, "a", given_up)
    _, error = await listen(route(), call=ProviderCall(), policy=None)
    assert isinstance(error, ProviderTimeout)
    assert len(host.requests) == 1


async def test_a_models_own_policy_counts_where_the_caller_has_none(web):
    host = Host(web, "a", refuses(429), text_stream("Hello"))
    wishes = {"retry": {"attempts": 2}}
    deltas, _ = await listen(route(defaults=wishes), call=ProviderCall(), policy=None)
    assert (text(deltas), len(host.requests)) == ("Hello", 2)


async def test_a_transient_error_is_retried_and_each_attempt_recorded(web):
    host = Host(web, "a", refuses(429), httpx.ConnectError("x"), text_stream("Hello"))
    call, waits = ProviderCall(), Waits()
    deltas, error = await listen(route(), call=call, policy=THRICE, wait=waits)
    assert (text(deltas), error) == ("Hello", None)
    assert len(host.requests) == 3
    assert len(waits) == 2
    assert [c.attempt for c in [*call.earlier, call]] == [1, 2, 3]
    assert [type(c.error) for c in call.earlier] == [RateLimited, ProviderDown]
    assert [c.http_status for c in [*call.earlier, call]] == [429, None, 200]
    assert call.error is None
    assert call.request_id == "req_3"
    assert call.earlier[0].earlier == ()


async def test_each_failed_call_leaves_one_line_without_content(web, caplog):
    planted = refuses(429, x_request_id="req_7"), breaks_off("Hel", "lo")
    Host(web, "a", *planted)
    await listen(route(), call=ProviderCall(), policy=THRICE)
    lines = [r.getMessage() for r in caplog.records if "failed" in r.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith("a call of the model 'a' failed: RateLimited ")
    assert "429" in lines[0]
    assert "'req_7'" in lines[0]
    assert "CutOff" in lines[1]
    for word in ("planted", "Hel", "Hi", "sk-a"):
        assert not any(word in record.getMessage() for record in caplog.records)


async def test_an_answer_leaves_no_line(web, caplog):
    Host(web, "a", text_stream("Hello"))
    await listen(route(), call=ProviderCall())
    assert caplog.records == []


async def test_after_the_last_attempt_the_last_error_is_raised(web):
    Host(web, "a", refuses(503), refuses(503), refuses(429))
    call = ProviderCall()
    deltas, error = await listen(route(), call=call, policy=THRICE)
    assert deltas == []
    assert isinstance(error, RateLimited)
    assert call.error is error
    assert len(call.earlier) == 2


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_permanent_error_is_not_retried(web, status: int):
    host = Host(web, "a", refuses(status))
    _, error = await listen(route(), call=ProviderCall(), policy=THRICE)
    assert isinstance(error, BadRequest)
    assert len(host.requests) == 1


UNREADABLE = [
    refuses(400, "tool_use_failed"),
    frames(chunk({}, "function_call_filter: MALFORMED_FUNCTION_CALL"), DONE),
    frames(chunk({}, "function_call_filter: MALFORMED_RESPONSE"), DONE),
    frames(chunk({}, "function_call_filter: UNEXPECTED_TOOL_CALL"), DONE),
]


@pytest.mark.parametrize("fault", UNREADABLE)
async def test_a_call_that_the_model_wrote_wrongly_is_asked_for_once_more(web, fault):
    host, call, waits = (
        Host(web, "a", fault, text_stream("Yes")),
        ProviderCall(),
        Waits(),
    )
    deltas, error = await listen(route(), call=call, policy=THRICE, wait=waits)
    assert (text(deltas), error) == ("Yes", None)
    assert (len(host.requests), waits) == (2, [0.0])
    assert [type(e.error) for e in call.earlier] == [BadResponse]


async def test_it_is_asked_for_only_once_more_and_only_where_retries_are_allowed(web):
    host = Host(web, "a", *[UNREADABLE[0]] * 3)
    _, error = await listen(route(), call=ProviderCall(), policy=THRICE)
    assert isinstance(error, BadResponse)
    assert len(host.requests) == 2
    host = Host(web, "b", *[UNREADABLE[0]] * 3)
    _, error = await listen(route("b"), call=ProviderCall(), policy=ONCE)
    assert isinstance(error, BadResponse)
    assert len(host.requests) == 1


async def test_after_published_text_nothing_is_retried(web):
    host = Host(web, "a", breaks_off("Hel", "lo"))
    other = Host(web, "b")
    call = ProviderCall()
    deltas, error = await listen(route(), route("b"), call=call, policy=THRICE)
    assert text(deltas) == "Hello"
    assert isinstance(error, ProviderDown)
    assert (len(host.requests), other.requests, call.earlier) == (1, [], ())


async def test_an_error_after_the_beginning_alone_is_made_good(web):
    opening = frames({"id": "1", "model": "m", "choices": [], "usage": {}})
    failing = opening + b'data: {"error": {"message": "overloaded", "code": 503}}\n\n'
    Host(web, "a", failing, text_stream("Hello"))
    call = ProviderCall()
    deltas, error = await listen(route(), call=call, policy=THRICE)
    assert (text(deltas), error) == ("Hello", None)
    assert sum(isinstance(d, StartDelta) for d in deltas) == 1
    assert len(call.earlier) == 1


def unended(text: str) -> httpx.Response:
    """A whole answer of which the host does not say that it is ended."""
    choice = {"index": 0, "message": {"content": text}, "finish_reason": None}
    return httpx.Response(200, json={"id": "c", "choices": [choice], "usage": USAGE})


def ended(text: str) -> httpx.Response:
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    return httpx.Response(200, json={"id": "c", "choices": [choice], "usage": USAGE})


async def test_a_whole_answer_that_fails_is_retried_with_its_usage_recorded(web):
    Host(web, "a", unended("All is"), ended("All is well."))
    call = ProviderCall()
    whole = request(stream=False)
    deltas, error = await listen(route(), call=call, model_request=whole, policy=THRICE)
    assert (text(deltas), error) == ("All is well.", None)
    [failed] = call.earlier
    assert failed.usage is not None
    assert failed.usage.output_tokens == 5


async def test_the_text_of_a_whole_answer_that_fails_at_last_is_not_lost(web):
    Host(web, "a", unended("All"), unended("All is"))
    whole, policy = request(stream=False), Policy(attempts=2)
    deltas, error = await listen(
        route(), call=ProviderCall(), model_request=whole, policy=policy
    )
    assert text(deltas) == "All is"
    assert isinstance(error, ProviderDown)
    assert [d.output_tokens for d in deltas if isinstance(d, UsageDelta)] == [5]


async def test_the_cost_of_a_failed_attempt_is_recorded_with_it(web):
    spent = {"prompt_tokens": 7, "completion_tokens": 0}
    opening = frames({"id": "r1", "model": "m-7", "choices": [], "usage": spent})
    Host(web, "a", opening, text_stream("Hello"))
    call = ProviderCall()
    deltas, _ = await listen(route(), call=call, policy=THRICE)
    heard = [d for d in deltas if isinstance(d, UsageDelta)]
    assert [d.input_tokens for d in heard] == [10]
    start, finish = StartDelta("r2", "m-2"), FinishDelta("stop")
    first, last = retries.calls_made(call, start=start, usage=heard[0], finish=finish)
    assert (first.start.model, first.usage.input_tokens) == ("m-7", 7)
    assert (last.start, last.usage, last.finish) == (start, heard[0], finish)


async def test_closing_hangs_up_whatever_the_attempt(web):
    Host(web, "a", refuses(503), text_stream("Hel", "lo"))
    call = ProviderCall()
    stream = retries.stream([route()], request(), call, policy=THRICE, wait=Waits())
    async with aclosing(stream) as batches:
        async for _ in batches:
            break
    assert call.latency is not None
    assert call.attempt == 2


# Waiting


@given(st.integers(1, 9), st.floats(0, 1, exclude_max=True))
def test_waits_grow_up_to_a_limit_with_full_jitter(attempt: int, chance: float):
    policy = Policy(attempts=10, delay=0.5, max_delay=20.0)
    longest = min(0.5 * 2 ** (attempt - 1), 20.0)
    wait = policy.wait(attempt, ProviderDown(), chance=lambda: chance)
    assert wait == chance * longest


def test_the_wait_the_provider_requests_is_added():
    error = RateLimited(retry_after=12)
    assert THRICE.wait(1, error, chance=lambda: 0.5) == 12.25


def test_a_requested_wait_that_is_too_long_is_not_waited_for():
    assert THRICE.wait(1, RateLimited(retry_after=31)) is None


async def test_a_long_retry_after_goes_to_the_fallback_at_once(web):
    Host(web, "a", refuses(429, retry_after="3600"))
    Host(web, "b", text_stream("from b"))
    waits = Waits()
    deltas, _ = await listen(
        route(), route("b"), call=ProviderCall(), policy=THRICE, wait=waits
    )
    assert (text(deltas), waits) == ("from b", [])


# Fallbacks


async def test_another_model_answers_with_its_own_name_and_issuer(web):
    first = Host(web, "a", refuses(503))
    other = Host(web, "b", text_stream("from b"))
    call = ProviderCall()
    deltas, error = await listen(route(), route("b"), call=call)
    assert (text(deltas), error) == ("from b", None)
    assert (first.requests[0]["model"], other.requests[0]["model"]) == (
        "a-model",
        "b-model",
    )
    assert (call.earlier[0].route.name, call.route.name) == ("a", "b")


async def test_each_route_has_all_attempts(web):
    Host(web, "a", refuses(503), refuses(503))
    Host(web, "b", refuses(503), text_stream("at last"))
    call = ProviderCall()
    deltas, _ = await listen(route(), route("b"), call=call, policy=Policy(attempts=2))
    assert text(deltas) == "at last"
    assert [c.route.name for c in [*call.earlier, call]] == ["a", "a", "b", "b"]
    assert call.attempt == 4


@pytest.mark.parametrize("status", [401, 402, 404, 429, 500])
async def test_an_error_of_the_first_model_leads_to_the_fallback(web, status: int):
    Host(web, "a", refuses(status))
    Host(web, "b", text_stream("from b"))
    deltas, _ = await listen(route(), route("b"), call=ProviderCall())
    assert text(deltas) == "from b"


async def test_an_error_of_the_question_does_not(web):
    Host(web, "a", refuses(400))
    other = Host(web, "b")
    _, error = await listen(route(), route("b"), call=ProviderCall())
    assert isinstance(error, BadRequest)
    assert other.requests == []


async def test_a_fallback_gets_its_supported_options_and_reports_the_others(web):
    Host(web, "a", refuses(503))
    other = Host(web, "b", text_stream("from b"))
    plain = route("b", capabilities={"sampling": "never"})
    call = ProviderCall()
    await listen(route(), plain, call=call, model_request=request(temperature=0.5))
    assert "temperature" not in other.requests[0]
    assert call.degraded == ["temperature"]
    assert call.earlier[0].degraded == []


async def test_an_option_the_first_model_does_not_take_is_refused(web):
    plain = route("a", capabilities={"sampling": "never"})
    call = ProviderCall()
    _, error = await listen(plain, call=call, model_request=request(temperature=0.5))
    assert isinstance(error, BadRequest)
    assert error.param == "temperature"
    assert call.started_at == 0


def test_staff_options_of_one_model_do_not_apply_to_another():
    first = route("a", defaults={"temperature": 0.2, "extra": {"a": 1}, "retry": {}})
    other = route("b", defaults={"top_p": 0.5, "seed": 1}, max_output_tokens=100)
    original = request(temperature=0.2, extra={"a": 1}, seed=7)
    made_out = RequestBuilder(other).retarget(original, first)
    assert (made_out.temperature, made_out.extra, made_out.top_p) == (None, {}, 0.5)
    assert made_out.seed == 7
    assert made_out.max_output_tokens == 100
    assert made_out.issuer["route"] == "b:1"


def test_the_first_model_receives_the_unchanged_request():
    first = route("a", defaults={"temperature": 0.2})
    original = request(top_p=0.1)
    made_out = RequestBuilder(first).retarget(original, first)
    assert (made_out.temperature, made_out.top_p) == (None, 0.1)


async def test_a_fallback_without_tools_gets_them_prompted(web):
    tool = {"type": "function", "name": "now", "parameters": {"type": "object"}}
    Host(web, "a", refuses(503))
    other = Host(web, "b", text_stream('{"tool": "now", ', '"input": {}}'))
    plain = route("b", capabilities={"tools": False})
    call = ProviderCall()
    deltas, _ = await listen(
        route(), plain, call=call, model_request=request(tools=[tool])
    )
    assert "tools" not in other.requests[0]
    assert '{"tool": ' in other.requests[0]["messages"][0]["content"]
    assert text(deltas) == ""
    assert FinishDelta("tool_calls", "stop") in deltas
    assert call.degraded == ["tools (emulated by words)"]


# Structured answers

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
FORM = {"format": {"type": "json_schema", "name": "c", "schema": CITY}}
WORDS = {"json_schema": False, "tools": False}
TOOL = {"json_schema": False, "tools": True}


async def test_a_tool_replaces_a_schema(web):
    host = Host(web, "a", calls("final_answer", {"city": "Rome"}, before="Well: "))
    call = ProviderCall()
    deltas, error = await listen(
        route(capabilities=TOOL), call=call, model_request=request(text=FORM)
    )
    assert (text(deltas), error) == ('{"city":"Rome"}', None)
    assert FinishDelta("stop", "tool_calls") in deltas
    body = host.requests[0]
    assert body["tools"][0]["function"]["parameters"] == CITY
    assert body["tool_choice"]["function"]["name"] == "final_answer"
    assert "response_format" not in body
    assert call.degraded == ["text.format (emulated by a tool)"]


async def test_words_stand_in_where_no_tool_can(web):
    host = Host(web, "a", text_stream('Sure:\n```json\n{"city": "Rome"}\n```'))
    call = ProviderCall()
    deltas, _ = await listen(
        route(capabilities=WORDS), call=call, model_request=request(text=FORM)
    )
    assert text(deltas) == '{"city":"Rome"}'
    assert '"city"' in host.requests[0]["messages"][0]["content"]
    assert call.degraded == ["text.format (emulated by words)"]


async def test_an_answer_that_does_not_fit_is_corrected_once_in_its_own_call(web):
    host = Host(web, "a", text_stream('{"town": 1}'), text_stream('{"city": "Rome"}'))
    call = ProviderCall()
    deltas, error = await listen(
        route(capabilities=WORDS), call=call, model_request=request(text=FORM)
    )
    assert (text(deltas), error) == ('{"city": "Rome"}', None)
    *_, wrong, correction = host.requests[1]["messages"]
    assert wrong == {"role": "assistant", "content": '{"town": 1}'}
    assert '"city" is a required property' in correction["content"]
    assert [c.attempt for c in [*call.earlier, call]] == [1, 2]
    assert call.earlier[0].error.code == "E_LLM_BAD_RESPONSE"
    heard = next(d for d in deltas if isinstance(d, UsageDelta))
    assert (heard.input_tokens, heard.output_tokens) == (20, 10)
    assert [c.usage.input_tokens for c in [*call.earlier, call]] == [10, 10]


async def test_a_second_mismatch_is_published_and_fails(web):
    Host(web, "a", text_stream("no"), text_stream("never"))
    call = ProviderCall()
    deltas, error = await listen(
        route(capabilities=WORDS), call=call, model_request=request(text=FORM)
    )
    assert text(deltas) == "never"
    assert error.code == "E_LLM_BAD_RESPONSE"
    assert str(error).endswith("does not match the requested JSON Schema.")
    assert call.error is error


async def test_a_streamed_answer_of_the_model_itself_is_judged_at_its_end(web):
    Host(web, "a", text_stream('{"town"', ": 1}"))
    deltas, error = await listen(
        route(), call=ProviderCall(), model_request=request(text=FORM)
    )
    assert text(deltas) == '{"town": 1}'
    assert error.code == "E_LLM_BAD_RESPONSE"


async def test_an_answer_that_was_cut_off_or_calls_a_tool_is_not_judged(web):
    Host(web, "a", text_stream('{"ci', finish="length"), calls("now", {}))
    for _ in range(2):
        _, error = await listen(
            route(), call=ProviderCall(), model_request=request(text=FORM)
        )
        assert error is None


# What staff write


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], '"retry" must be an object, such as {"attempts": 3}.'),
        ({"tries": 3}, "\"retry\" has no 'tries'; there are attempts,"),
        ({"attempts": 0}, '"attempts" must be a whole number from 1 to 10.'),
        ({"attempts": True}, '"attempts" must be a whole number'),
        ({"on": "E_LLM_TIMEOUT"}, '"on" must be a list of error codes.'),
        ({"on": ["E_TIMEOUT"]}, "\"on\" has no 'E_TIMEOUT'; there are"),
        ({"delay": -1}, '"delay" must be seconds, from 0 to 600.'),
        ({"max_delay": float("inf")}, '"max_delay" must be seconds'),
    ],
)
def test_a_wrong_policy_is_explained(value: Any, message: str):
    with pytest.raises(ValueError, match=r"^\"") as caught:
        Policy.read(value)
    assert str(caught.value).startswith(message)
    with pytest.raises(ValidationError):
        LanguageModel(name="m", options={"retry": value}).clean()


def test_a_policy_is_read_as_it_is_written():
    written = {"attempts": 3, "on": ["E_LLM_TIMEOUT"], "delay": 1}
    LanguageModel(name="m", options={"retry": written}).clean()
    assert Policy.read(written) == Policy(
        attempts=3, on=frozenset({"E_LLM_TIMEOUT"}), delay=1.0
    )
    assert Policy.read(None) == Policy()
    assert (
        retry_policy.TRANSIENT_CODES < retry_policy.FALLBACK_CODES < retry_policy.CODES
    )


def test_a_policy_that_slipped_in_wrong_is_the_staffs_to_correct():
    with pytest.raises(BadRequest, match="ask the staff to correct it"):
        retries.policy_of(route(defaults={"retry": 3}))


# Rows


@pytest.mark.django_db
def test_fallbacks_are_those_that_can_be_used_now():
    groq = Provider.objects.create(name="Groq", kind="groq")
    groq.keys.create(secret="gsk-1")
    keyless = Provider.objects.create(name="OpenAI", kind="openai")
    first, second, off = (groq.models.create(name=name) for name in ("a", "b", "c"))
    first.fallbacks.add(keyless.models.create(name="gpt"), off, second)
    off.enabled = False
    off.save()
    routes = router.routes_of(router.route_of(first))
    assert [r.name for r in routes] == ["Groq/a", "Groq/b"]
    assert [r.name for r in router.routes_of(routes[1])] == ["Groq/b"]
    assert router.routes_of(route()) == [route()]


@pytest.mark.django_db(transaction=True)
async def test_each_attempt_is_a_row_of_its_own(web):
    from llm.models import ModelCall

    Host(web, "a", refuses(401), text_stream("Hello"))
    call = ProviderCall()
    policy_here = Policy(attempts=2, on=frozenset({InvalidKey.code}))
    await listen(route(), call=call, policy=policy_here)
    made = retries.calls_made(
        call, start=StartDelta(), usage=UsageDelta(), finish=FinishDelta("stop")
    )
    for each in made:
        record = sync_to_async(ModelCall.objects.record)
        await record(each, each.route, attempt=each.attempt, finish=each.finish)
    rows = [row async for row in ModelCall.objects.order_by("pk")]
    assert [(row.attempt, row.status) for row in rows] == [
        (1, "failed"),
        (2, "completed"),
    ]


# Tools of providers

SEARCH = {"type": "web_search"}


def at(kind: str, name: str, **fields: Any) -> Any:
    can = capabilities_of(
        kind, "a-model", {}, wire=all_providers()[kind].codec("").name
    )
    found = route_at(kind, capabilities=can.to_dict(), **fields)
    endpoint = replace(found.endpoint, base_url=f"https://{name}.test")
    return replace(found, endpoint=endpoint, name=name)


@pytest.mark.parametrize(
    ("kind", "expected", "degraded"),
    [
        ("openrouter", [{"type": "openrouter:web_search"}], []),
        ("deepseek", None, ["tools (without web_search)"]),
    ],
)
async def test_a_hosted_tool_is_encoded_for_the_fallback_or_reported(
    web, kind, expected, degraded
):
    Host(web, "a", refuses(503))
    host, call = Host(web, "b", text_stream("Found.")), ProviderCall()
    routes = at("openai", "a"), at(kind, "b")
    deltas, error = await listen(
        *routes, call=call, model_request=request(tools=[SEARCH])
    )
    assert (text(deltas), error) == ("Found.", None)
    assert host.requests[0].get("tools") == expected
    assert call.degraded == degraded


async def test_a_tool_that_only_the_fallback_has_is_given_to_it_alone(web):
    first = Host(web, "a", refuses(503))
    host, call = Host(web, "b", text_stream("Found.")), ProviderCall()
    other = at("openrouter", "b", hosted_tools=[SEARCH])
    await listen(at("deepseek", "a"), other, call=call)
    assert "tools" not in first.requests[0]
    assert host.requests[0]["tools"] == [{"type": "openrouter:web_search"}]
    assert call.degraded == []


async def test_sound_of_a_forwarded_answer_is_not_held_back_to_the_end(
    web: respx.MockRouter,
):
    """Its frames have no deltas; while they waited, a client got nothing at all."""
    head = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    sound = b'data: {"choices":[{"index":0,"delta":{"audio":{"data":"AA=="}}}]}\n\n'

    class Frames(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield head
            yield sound
            raise AssertionError("read on before the frames were passed on")

    Host(web, "a", httpx.Response(200, stream=Frames()))
    forwarded = ForwardedBody(
        api="openai_chat", fields={"messages": []}, convert=lambda route: None
    )
    route = route_at("openai", "openai_chat")
    request = Request(model="m", items=(), forwarded=forwarded)
    async with aclosing(retries.stream([route], request, ProviderCall())) as batches:
        deltas = await anext(batches)
    assert [d.data for d in deltas if isinstance(d, FrameDelta)] == [head, sound]
