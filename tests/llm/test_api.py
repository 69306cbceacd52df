"""The library's public API, against the demo over ASGI and scripted hosts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
import respx
from asgiref.sync import sync_to_async
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from django.conf import settings
from django.contrib.auth.models import Group, User
from pydantic import BaseModel

from llm import api
from llm.demo.app import DemoApplication
from llm.demo.key import demo_key
from llm.errors import (
    BadRequest,
    BadResponse,
    ContentPolicy,
    InvalidKey,
    ModelNotAvailable,
    ProviderDown,
)
from llm.http import client, connections
from llm.models import LanguageModel, ModelCall, Provider
from llm.wire.items import function_call_output, user_message
from llm.wire.response_builder import TERMINAL

from .chat import DONE, chunk, frames
from .hosts import Host, breaks_off, calls, refuses, route, text_stream

TOOL = {
    "type": "function",
    "name": "weather_demo",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
KEYS = [
    *("provider", "model", "latency_ms", "ttft_ms", "input_tokens", "output_tokens"),
    *("total_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("model_ms", "tool_ms", "api_calls", "tool_rounds", "tool_calls"),
    *("response_id", "response_status"),
    *("provider_request_id", "cost", "degraded"),
]


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


@pytest.fixture
def demo(web: respx.MockRouter, transactional_db: None) -> LanguageModel:
    """The demo's fastest model, over ASGI."""
    served = httpx.ASGITransport(DemoApplication({"demo-fast": 0.0}))
    web.route(url__startswith=f"{settings.SELF_URL}/demo/").mock(
        side_effect=served.handle_async_request
    )
    provider = Provider.objects.create(name="Demo", kind="demo")
    provider.keys.create(secret=demo_key())
    return provider.models.create(name="demo-fast", is_default=True)


async def rows() -> list[ModelCall]:
    return [row async for row in ModelCall.objects.order_by("pk")]


# Generate


async def test_a_model_is_chosen_by_name_row_route_or_default(demo):
    for model in (None, "demo-fast", "Demo/demo-fast", demo):
        result = await api.generate(model, "Reply with exactly: 42")
        assert result.text == "42"


async def test_a_result_has_the_same_facts_for_every_answer(demo):
    result = await api.generate("demo-fast", "Reply with exactly: a b c")
    metadata = result.metadata
    assert list(metadata) == KEYS
    assert (metadata["provider"], metadata["model"]) == ("Demo", "demo-fast")
    assert (metadata["api_calls"], metadata["tool_rounds"]) == (1, 0)
    assert metadata["response_status"] == "completed"
    assert metadata["response_id"] == result.response["id"]
    assert metadata["output_tokens"] > 0
    assert metadata["total_tokens"] == result.response["usage"]["total_tokens"]
    assert 0 <= metadata["ttft_ms"] <= metadata["latency_ms"]
    assert metadata["degraded"] == []
    (row,) = await rows()
    assert (row.status, row.model_id) == ("completed", demo.pk)
    assert row.output_tokens == metadata["output_tokens"]


async def test_nothing_is_recorded_where_nothing_is_to_be(demo):
    await api.generate("demo-fast", "Hello", record=False)
    assert await rows() == []


async def test_items_go_on_from_where_they_stopped(demo):
    question = user_message("What is the weather in Paris?")
    first = await api.generate(None, [question], tools=[TOOL])
    (call,) = first.calls
    assert json.loads(call["arguments"]) == {"city": "Paris"}
    output = function_call_output(call["call_id"], "sunny, 21 °C")
    items = [question, *first.items, output]
    second = await api.generate(None, items, tools=[TOOL])
    assert "sunny, 21 °C" in second.text
    assert second.calls == []


async def test_proofs_come_with_the_items_they_belong_to(demo):
    result = await api.generate(None, "/think Hello")
    reasoning = result.items[0]
    assert reasoning["type"] == "reasoning"
    assert reasoning["provider_data"]["issuer"]["model"] == "demo-fast"
    assert "provider_data" not in result.response["output"][0]
    again = await api.generate(None, ["Hello", *result.items, "And now?"])
    assert again.text


async def test_short_forms_of_messages_are_understood(demo):
    expected = [
        {"role": "user", "content": "My name is Ada"},
        {"role": "assistant", "content": "Hello Ada"},
        "What is my name?",
    ]
    assert (await api.generate(None, expected)).text == "Your name is Ada."


@pytest.mark.parametrize(
    ("question", "error", "attempts"),
    [
        ("/fail 503", "E_LLM_PROVIDER_DOWN", 3),
        ("/fail stream", "E_LLM_PROVIDER_DOWN", 1),
    ],
)
async def test_a_failure_is_raised_and_each_attempt_recorded(
    demo, question: str, error: str, attempts: int
):
    with pytest.raises(Exception, match=r"\.$") as caught:
        await api.generate(None, question)
    assert caught.value.code == error
    made = await rows()
    assert {(row.status, row.error_code) for row in made} == {("failed", error)}
    assert sorted(row.attempt for row in made) == [*range(1, attempts + 1)]


async def test_a_model_is_not_found_by_users_who_may_not_use_it(demo):
    group = await Group.objects.acreate(name="few")
    await demo.groups.aadd(group)
    user = await User.objects.acreate(username="ada")
    with pytest.raises(ModelNotAvailable):
        await api.generate("demo-fast", "Hello", user=user)
    await user.groups.aadd(group)
    assert (await api.generate("demo-fast", "Hello", user=user)).text


async def test_an_unknown_option_raises_a_program_error():
    with pytest.raises(TypeError, match="no option 'temprature'; use"):
        await api.generate("m", "Hello", temprature=1)


async def test_an_empty_question_is_refused(demo):
    with pytest.raises(BadRequest, match="no message to answer"):
        await api.generate(None, "")


async def test_options_are_the_callers_then_the_staffs(web, transactional_db):
    host = Host(web, "a", text_stream("1"), text_stream("2"))
    wishes = {"temperature": 0.2, "seed": 7, "retry": {"attempts": 2}}
    model = route(defaults=wishes, max_output_tokens=100)
    await api.generate(model, "Hi", temperature=0.9, instructions="Be brief.")
    await api.generate(model, "Hi", seed=None)
    first, second = host.requests
    assert (first["temperature"], first["seed"]) == (0.9, 7)
    assert first["max_tokens"] == 100
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (second["temperature"], "seed" in second) == (0.2, False)


async def test_an_unsupported_option_is_refused_or_reported(web, transactional_db):
    Host(web, "a", text_stream("Hello"))
    plain = route(capabilities={"sampling": "never"})
    with pytest.raises(BadRequest, match="'temperature'"):
        await api.generate(plain, "Hi", temperature=1)
    result = await api.generate(plain, "Hi", temperature=1, ignore_invalid_options=True)
    assert result.metadata["degraded"] == ["temperature"]
    assert len(await rows()) == 1


async def test_attempts_and_fallbacks_are_counted_and_recorded(web, transactional_db):
    Host(web, "a", refuses(503), text_stream("Hello"))
    result = await api.generate(route(), "Hi", policy=api.Policy(attempts=2, delay=0.0))
    assert result.metadata["api_calls"] == 2
    assert result.metadata["input_tokens"] == 10
    assert result.metadata["provider_request_id"] == "req_2"
    recorded = [(row.attempt, row.status) for row in await rows()]
    assert recorded == [(1, "failed"), (2, "completed")]


async def test_a_models_fallback_answers_for_it(demo, web):
    provider = await Provider.objects.acreate(
        name="Down", kind="openai_compatible", base_url="https://a.test/v1"
    )
    await provider.keys.acreate(secret="sk-1")
    first = await provider.models.acreate(name="a-model")
    await first.fallbacks.aadd(demo)
    Host(web, "a", *[refuses(500)] * 3)
    result = await api.generate("a-model", "Reply with exactly: here")
    assert result.text == "here"
    assert (result.metadata["provider"], result.metadata["api_calls"]) == ("Demo", 4)


async def test_the_cost_is_that_of_all_calls(web, transactional_db):
    Host(web, "a", text_stream("no"), text_stream('{"city": "Rome"}'))
    priced = route(prices={"input": 1, "output": 2}, capabilities={"json_schema": True})
    for record in (True, False):
        Host(web, "a", text_stream("no"), text_stream('{"city": "Rome"}'))
        result = await api.generate(priced, "?", text=FORM, record=record)
        assert result.metadata["cost"] == pytest.approx(2 * (10 + 2 * 5) / 1_000_000)


# Stream


async def test_events_are_numbered_and_end_once(demo):
    async with aclosing(api.stream(None, "Count from 1 to 5")) as stream:
        events = [event async for event in stream]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [e["type"] for e in events if e["type"] in TERMINAL] == [
        "response.completed"
    ]
    assert events[0]["response"]["model"] == "Demo/demo-fast"
    assert stream.result.text == "1, 2, 3, 4, 5"
    assert events[-1]["response"] == stream.result.response


async def test_a_failing_stream_raises_and_keeps_its_text(web, transactional_db):
    Host(web, "a", breaks_off("Hel", "lo"))
    stream = api.stream(route(), "Hi")
    events = [event async for event in stream]
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert isinstance(stream.error, ProviderDown)
    assert stream.result.text == "Hello"
    assert stream.result.metadata["response_status"] == "failed"


async def test_an_invalid_question_raises(transactional_db):
    stream = api.stream("no-such-model", "Hi")
    with pytest.raises(ModelNotAvailable):
        await anext(stream)


async def test_a_stream_that_is_left_hangs_up_and_is_recorded(web, transactional_db):
    Host(web, "a", text_stream("Hel", "lo"))
    async with aclosing(api.stream(route(), "Hi")) as stream:
        async for event in stream:
            if event["type"] == "response.output_text.delta":
                break
    (row,) = await rows()
    assert row.status == "cancelled"
    with pytest.raises(RuntimeError, match="has not ended"):
        _ = stream.result


async def test_chunks_are_text_and_the_last_one_has_the_totals(web, transactional_db):
    Host(web, "a", text_stream("Hel", "lo"))
    chunks = [chunk async for chunk in api.text_chunks(api.stream(route(), "Hi"))]
    *texts, last = chunks
    assert "".join(chunk.text for chunk in texts) == "Hello"
    assert all(chunk == api.Chunk(chunk.text) and chunk.text for chunk in texts)
    assert (last.text, last.is_last, last.status) == ("", True, "completed")
    assert last.usage["total_tokens"] == 15
    assert last.request_id == "req_1"


async def test_chunks_of_an_empty_answer_are_the_last_alone(web, transactional_db):
    Host(web, "a", text_stream())
    chunks = [chunk async for chunk in api.text_chunks(api.stream(route(), "Hi"))]
    assert [chunk.is_last for chunk in chunks] == [True]


async def test_chunks_of_a_failing_answer_end_in_its_error(web, transactional_db):
    Host(web, "a", breaks_off("Hel"))
    pieces = api.text_chunks(api.stream(route(), "Hi"))
    assert await anext(pieces) == api.Chunk("Hel")
    with pytest.raises(ProviderDown):
        await anext(pieces)


async def test_collecting_a_stream_is_generating(web, transactional_db):
    Host(web, "a", text_stream("Hello"), refuses(401))
    stream = api.stream(route(), "Hi")
    await anext(stream)
    assert (await api.collect(stream)).text == "Hello"
    with pytest.raises(InvalidKey):
        await api.collect(api.stream(route(), "Hi"))


# JSON

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["city", "size"],
}
FORM = {
    "format": {
        "type": "json_schema",
        "name": "c",
        "schema": {"type": "object", "required": ["city"]},
    }
}


class City(BaseModel):
    city: str
    size: int


async def test_json_fits_the_schema_or_the_type(demo):
    value = await api.generate_json(None, "A city, please", CITY)
    assert isinstance(value["city"], str)
    assert isinstance(value["size"], int)
    assert isinstance(await api.generate_json(None, "A city, please", City), City)
    numbers = await api.generate_json(None, "Numbers, please", list[int])
    assert all(isinstance(number, int) for number in numbers)


async def test_a_model_without_schemas_calls_the_tool_instead(demo):
    demo.capabilities = {"json_schema": False}
    await demo.asave()
    result = await api.generate(None, "A city, please", text=FORM)
    assert result.metadata["degraded"] == ["text.format (emulated by a tool)"]
    assert result.parsed == json.loads(result.text)
    assert result.calls == []


async def test_a_types_own_rules_are_corrected_too(web, transactional_db):
    class Old(BaseModel):
        size: int

        def model_post_init(self, context: Any) -> None:
            if self.size < 1000:
                raise ValueError("too small")

    host = Host(web, "a", text_stream('{"size": 7}'), text_stream('{"size": 7000}'))
    assert (await api.generate_json(route(), "?", Old)).size == 7000
    assert "too small" in host.requests[1]["messages"][-1]["content"]
    assert [(row.attempt, row.status) for row in await rows()] == [
        (1, "failed"),
        (2, "completed"),
    ]


async def test_invalid_json_output_has_its_own_error(web, transactional_db):
    refusal = frames(chunk({"refusal": "I cannot."}), chunk(finish="stop"), DONE)
    cut = text_stream('{"ci', finish="length")
    Host(
        web,
        "a",
        refusal,
        cut,
        calls("weather_demo", {"city": "Rome"}),
        text_stream("no"),
        text_stream("no"),
    )
    with pytest.raises(ContentPolicy, match="refused"):
        await api.generate_json(route(), "?", CITY)
    with pytest.raises(BadResponse, match=r"cut off \(max_output_tokens\)"):
        await api.generate_json(route(), "?", CITY)
    with pytest.raises(BadResponse, match="called a tool"):
        await api.generate_json(route(), "?", CITY, tools=[TOOL])
    with pytest.raises(BadResponse, match="does not match"):
        await api.generate_json(route(), "?", CITY)


async def test_a_refusal_is_an_answer(web, transactional_db):
    refusal = frames(chunk({"refusal": "I cannot."}), chunk(finish="stop"), DONE)
    Host(web, "a", refusal)
    result = await api.generate(route(), "?", text=FORM)
    assert (result.text, result.refusal, result.parsed) == (
        "I cannot.",
        "I cannot.",
        None,
    )


# Contexts


def messages(host: Host) -> list[tuple[str, Any]]:
    return [(m["role"], m["content"]) for m in host.requests[-1]["messages"]]


async def test_contexts_precede_the_question_in_order(web, transactional_db):
    await User.objects.acreate(username="ada")

    def who(question: api.Question) -> str:
        return f"You talk to {User.objects.get().username}."

    async def found(question: api.Question) -> list[Any]:
        text = question.items[-1]["content"][0]["text"]
        return [
            {"role": "user", "content": f"About {text}?"},
            {"role": "assistant", "content": question.model},
        ]

    def nothing(question: api.Question) -> None:
        return None

    host = Host(web, "a", text_stream("Hello"))
    date = api.Context("It is Monday.", role="user")
    contexts = ["Be kind.", who, found, nothing, date]
    await api.generate(route(), "cats", contexts=contexts)
    assert messages(host) == [
        ("system", "Be kind."),
        ("system", "You talk to ada."),
        ("user", "About cats?"),
        ("assistant", "a"),
        ("user", "It is Monday."),
        ("user", "cats"),
    ]


async def test_a_failing_context_raises_unless_it_is_optional(
    web, transactional_db, caplog
):
    async def search(question: api.Question) -> str:
        raise LookupError("secret words")

    host = Host(web, "a", text_stream("Hello"))
    with pytest.raises(LookupError):
        await api.generate(route(), "Hi", contexts=[search])
    assert host.requests == []
    await api.generate(route(), "Hi", contexts=[api.Context(search, optional=True)])
    assert messages(host) == [("user", "Hi")]
    (record,) = (
        r for r in caplog.records if r.name == "llm.generation.context_messages"
    )
    assert "search: LookupError" in record.getMessage()
    assert "secret words" not in caplog.text


# Check


def of_demo(demo: LanguageModel) -> list[Any]:
    return [demo.provider, demo.provider.keys.get(), demo, "Demo/demo-fast"]


async def test_an_access_that_works_is_found_to_work(demo):
    for what in await sync_to_async(of_demo)(demo):
        (finding,) = await api.check(what)
        assert (finding.works, finding.problem) == (True, None)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (refuses(401), "bad key"),
        (refuses(404, "model_not_found"), "unknown model"),
        (refuses(429, "insufficient_quota"), "no quota"),
        (refuses(429), "rate limit"),
        (refuses(503), "outage"),
        (httpx.ConnectError("no route"), "unreachable"),
        (refuses(400), "other"),
    ],
)
async def test_errors_of_access_are_distinguished(
    web, transactional_db, answer: Any, problem: str
):
    provider = await Provider.objects.acreate(
        name="A", kind="openai_compatible", base_url="https://a.test/v1"
    )
    await provider.keys.acreate(secret="sk-1")
    model = await provider.models.acreate(name="a-model")
    Host(web, "a", answer)
    (finding,) = await api.check(model)
    assert (finding.works, finding.problem) == (False, problem)


async def test_there_may_be_nothing_to_check(transactional_db):
    provider = await Provider.objects.acreate(
        name="A", kind="openai_compatible", base_url="https://a.test/v1"
    )
    with pytest.raises(ModelNotAvailable, match="no model to test"):
        await api.check(provider)


# Twins


def test_plain_code_has_twins_of_all_that_is_awaited(demo):
    assert api.generate_sync(None, "Reply with exactly: 42").text == "42"
    assert api.generate_json_sync("demo-fast", "A city", City).city
    assert api.collect_sync(api.stream(demo, "Hello")).text
    assert api.check_sync(demo)[0].works
    assert ModelCall.objects.count() == 4
    assert len(connections.loop_transports) == 0


def test_a_twin_sees_the_rows_of_its_callers_transaction(web, db):
    provider = Provider.objects.create(
        name="A", kind="openai_compatible", base_url="https://a.test/v1"
    )
    provider.keys.create(secret="sk-1")
    provider.models.create(name="a-model")
    Host(web, "a", text_stream("Hello"))
    assert api.generate_sync("a-model", "Hi").text == "Hello"
    assert ModelCall.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_call_may_bring_its_own_key(web: respx.MockRouter, is_async: bool):
    """A fallback at another provider gets its own stored key."""
    first = await Provider.objects.acreate(
        name="first", kind="openai_compatible", base_url="https://first.test/v1"
    )
    second = await Provider.objects.acreate(
        name="second", kind="openai_compatible", base_url="https://second.test/v1"
    )
    await sync_to_async(second.keys.create)(secret="sk-stored-at-second")
    model = await first.models.acreate(name="m", options={"retry": {"attempts": 1}})
    await model.fallbacks.aadd(await second.models.acreate(name="m2"))
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((request.url.host, request.headers["Authorization"]))
        if request.url.host == "first.test":
            return refuses(503)
        content = text_stream("Hello.")
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, content=content, headers=headers)

    web.post(url__regex=r"^https://(first|second)\.test/").mock(side_effect=answer)
    users = []

    def get_access_token(user: Any) -> Any:
        users.append(user)
        token = "token-of-ada"
        return _later(token) if is_async else token

    ada = await User.objects.acreate(username="ada")
    result = await api.generate(
        "first/m", "Hi", user=ada, get_access_token=get_access_token
    )
    assert result.text == "Hello."
    assert users == [ada]
    assert sent == [
        ("first.test", "Bearer token-of-ada"),
        ("second.test", "Bearer sk-stored-at-second"),
    ]
    assert [row.key_source for row in await rows()] == ["call", "shared"]
    with pytest.raises(TypeError):
        await api.generate(
            "first/m", "Hi", api_key="sk-x", get_access_token=get_access_token
        )


@pytest.mark.django_db(transaction=True)
async def test_a_fallback_at_the_same_provider_gets_the_calls_key_too(
    web: respx.MockRouter,
):
    provider = await Provider.objects.acreate(
        name="first", kind="openai", base_url="https://first.test/v1"
    )
    model = await provider.models.acreate(name="m", options={"retry": {"attempts": 1}})
    await model.fallbacks.aadd(await provider.models.acreate(name="m2"))
    failing = web.post(url__startswith="https://first.test/").mock(
        side_effect=lambda request: refuses(503)
    )
    with pytest.raises(ProviderDown):
        await api.generate("first/m", "Hi", api_key="sk-of-the-call")
    sent = [each.request for each in failing.calls]
    assert [json.loads(each.content)["model"] for each in sent] == ["m", "m2"]
    assert {each.headers["Authorization"] for each in sent} == {"Bearer sk-of-the-call"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("value", [None, "", 5, b"key"])
@pytest.mark.parametrize("option", ["api_key", "get_access_token"])
async def test_a_call_that_brings_no_text_as_its_key_is_not_sent(
    web: respx.MockRouter, option: str, value: Any
):
    provider = await Provider.objects.acreate(
        name="first", kind="openai_compatible", base_url="https://first.test/v1"
    )
    await provider.models.acreate(name="m")
    if (option, value) == ("api_key", None):
        return  # as if it were left out
    given = value if option == "api_key" else lambda user: value
    options: dict[str, Any] = {option: given}
    with pytest.raises(InvalidKey, match=option):
        await api.generate("first/m", "Hi", **options)


GOOGLE = "https://oauth2.test/token"
ENTRA = "https://login.microsoftonline.com/contoso/oauth2/v2.0/token"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("option", ["api_key", "get_access_token"])
async def test_a_calls_service_account_is_exchanged_for_a_token(
    web: respx.MockRouter, option: str
):
    private = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    account = {"client_email": "a@b.test", "private_key": private.decode()}
    key = json.dumps({**account, "token_uri": GOOGLE}, indent=2)
    issued = {"access_token": "ya29.issued", "expires_in": 3600}
    web.post(GOOGLE).respond(200, json=issued)
    host = web.post(url__startswith="https://vertex.test/").respond(400)
    provider = await Provider.objects.acreate(
        name="first", kind="vertex", base_url="https://vertex.test/v1beta1/projects/p"
    )
    await provider.models.acreate(name="m")
    given = key if option == "api_key" else lambda user: key
    options: dict[str, Any] = {option: given}
    with pytest.raises(BadRequest):
        await api.generate("first/m", "Hi", **options)
    assert host.calls.last.request.headers["Authorization"] == "Bearer ya29.issued"
    options = {option: "ya29.own" if option == "api_key" else lambda user: "ya29.own"}
    with pytest.raises(BadRequest):
        await api.generate("first/m", "Hi", **options)
    assert host.calls.last.request.headers["Authorization"] == "Bearer ya29.own"


@pytest.mark.django_db(transaction=True)
async def test_at_entra_a_calls_key_is_a_secret_and_its_token_a_token(
    web: respx.MockRouter,
):
    issued = {"access_token": "issued", "expires_in": 3600}
    issuer = web.post(ENTRA).respond(200, json=issued)
    host = web.post(url__startswith="https://me.openai.azure.com/").respond(400)
    provider = await Provider.objects.acreate(
        name="first",
        kind="azure_openai",
        # As pasted: the address contains the deployment and the version.
        base_url="https://me.openai.azure.com/openai/deployments/d/chat/completions"
        "?api-version=2024-10-21",
        codec="openai_chat",
        options={"tenant": "contoso", "client_id": "app-1"},
    )
    await provider.models.acreate(name="m")
    with pytest.raises(BadRequest):
        await api.generate("first/m", "Hi", api_key="the-secret")
    assert b"client_secret=the-secret" in issuer.calls.last.request.content
    with pytest.raises(BadRequest):
        await api.generate("first/m", "Hi", get_access_token=lambda user: "given")
    assert issuer.call_count == 1
    tokens = [call.request.headers["Authorization"] for call in host.calls]
    assert tokens == ["Bearer issued", "Bearer given"]
    assert not any("api-key" in call.request.headers for call in host.calls)
    paths = {call.request.url.raw_path.decode() for call in host.calls}
    path = "/openai/deployments/d/chat/completions?api-version=2024-10-21"
    assert paths == {path}
    with pytest.raises(InvalidKey):
        await api.generate("first/m", "Hi", get_access_token=lambda user: "a\r\nb")
    assert host.call_count == 2


async def _later(value: str) -> str:
    return value
