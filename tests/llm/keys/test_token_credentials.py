"""Tokens: how they are requested, when, how often, and the errors."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
import respx
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from llm.errors import (
    BadRequest,
    BadResponse,
    InvalidKey,
    LLMError,
    ProviderDown,
    ProviderTimeout,
    RateLimited,
)
from llm.http import client
from llm.keys.token_credentials import (
    RENEWAL_MARGIN,
    EntraCredentials,
    ServiceAccountCredentials,
    compact_key,
    with_service_account,
)
from llm.provider import Endpoint
from llm.providers import all_providers
from llm.wire.items import user_message
from llm.wire.request import Request

SECRET = "planted-secret~of.a-client"
LIFE = 3600  # seconds
ENTRA = EntraCredentials(tenant="contoso", client_id="app-1", secret=SECRET)
TOKEN_URL = "https://login.microsoftonline.com/contoso/oauth2/v2.0/token"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`clock.now` changes only when the test sets it."""
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = clock.time = lambda: clock.now
    monkeypatch.setattr("llm.keys.token_credentials.time", clock)
    return clock


class Issuer:
    """Issues "token-1", "token-2", …; `replies` are its replies in their place."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.replies: list[LLMError | tuple[int, bytes]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, url: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        self.requests.append((url, dict(form)))
        number = len(self.requests)
        await self.open.wait()
        reply = self.replies.pop(0) if self.replies else None
        if isinstance(reply, LLMError):
            raise reply
        body = {"access_token": f"token-{number}", "expires_in": LIFE}
        return reply or (200, json.dumps(body).encode())


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


async def until(reached: Any) -> None:
    while not reached():
        await asyncio.sleep(0)


# The token request


async def test_entra_id_issues_a_token_for_the_clients_secret(issuer: Issuer):
    assert await ENTRA.token(issuer) == "token-1"
    assert issuer.requests == [
        (
            TOKEN_URL,
            {
                "grant_type": "client_credentials",
                "client_id": "app-1",
                "client_secret": SECRET,
                "scope": "https://cognitiveservices.azure.com/.default",
            },
        )
    ]


async def test_sovereign_clouds_have_an_authority_and_a_scope_of_their_own(
    issuer: Issuer,
):
    credentials = EntraCredentials(
        tenant="t/../x",
        client_id="app-1",
        secret=SECRET,
        authority="https://login.microsoftonline.us/",
        scope="https://cognitiveservices.azure.us/.default",
    )
    await credentials.token(issuer)
    [(url, form)] = issuer.requests
    assert url == "https://login.microsoftonline.us/t%2F..%2Fx/oauth2/v2.0/token"
    assert form["scope"] == "https://cognitiveservices.azure.us/.default"


def pem_of(private_key: Any) -> str:
    return private_key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    ).decode()


PRIVATE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SERVICE_ACCOUNT = {
    "type": "service_account",
    "private_key_id": "key-7",
    "private_key": pem_of(PRIVATE_KEY),
    "client_email": "parley@project.iam.gserviceaccount.com",
    "token_uri": "https://oauth2.googleapis.com/token",
}


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


async def test_google_is_shown_a_statement_that_the_private_key_has_signed(
    issuer: Issuer, clock: SimpleNamespace
):
    key = json.dumps(SERVICE_ACCOUNT, indent=2)
    assert await ServiceAccountCredentials(key=key).token(issuer) == "token-1"
    [(url, form)] = issuer.requests
    assert url == "https://oauth2.googleapis.com/token"
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    head, claims, signature = form["assertion"].split(".")
    PRIVATE_KEY.public_key().verify(
        decoded(signature), f"{head}.{claims}".encode(), PKCS1v15(), SHA256()
    )
    assert json.loads(decoded(head)) == {"alg": "RS256", "typ": "JWT", "kid": "key-7"}
    assert json.loads(decoded(claims)) == {
        "iss": "parley@project.iam.gserviceaccount.com",
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "aud": "https://oauth2.googleapis.com/token",
        "iat": 1000,
        "exp": 4600,
    }


@pytest.mark.parametrize(
    "key",
    [
        "{",
        "[]",
        "7",
        "{}",
        json.dumps({**SERVICE_ACCOUNT, "private_key": "planted"}),
        json.dumps({**SERVICE_ACCOUNT, "private_key": None}) + " ",
        json.dumps(
            {
                **SERVICE_ACCOUNT,
                "private_key": pem_of(ec.generate_private_key(ec.SECP256R1())),
            }
        ),
    ],
)
async def test_an_invalid_service_account_key_is_reported_without_being_shown(
    issuer: Issuer, key: str
):
    with pytest.raises(InvalidKey, match="not the JSON file") as caught:
        await ServiceAccountCredentials(key=key).token(issuer)
    assert "planted" not in f"{caught.value!r}{caught.value.detail}"
    assert issuer.requests == []


def test_a_json_key_is_stored_in_one_line_with_the_same_meaning():
    word = compact_key(json.dumps(SERVICE_ACCOUNT, indent=2))
    assert word.isascii()
    assert not any(letter.isspace() for letter in word)
    assert json.loads(word) == SERVICE_ACCOUNT


@pytest.mark.parametrize("key", ["sk-1", "two words", '"text"', "[1, 2]", "123", ""])
def test_any_other_key_stays_as_it_is(key: str):
    assert compact_key(key) == key


def test_a_key_at_google_cloud_may_be_a_token_or_a_service_accounts():
    host = all_providers()["openai_compatible"]
    known = {"provider": host, "codec": host.codec()}
    token = Endpoint(**known, api_key="ya29.token")
    assert with_service_account(token) is token
    account = with_service_account(Endpoint(**known, api_key="{}"))
    assert account.credentials == ServiceAccountCredentials(key="{}")


# When a token is requested


async def test_a_token_is_cached_and_renewed_before_it_expires(
    issuer: Issuer, clock: SimpleNamespace
):
    assert await ENTRA.token(issuer) == "token-1"
    clock.now += LIFE - RENEWAL_MARGIN - 1
    assert await ENTRA.token(issuer) == "token-1"
    clock.now += 1
    assert await ENTRA.token(issuer) == "token-2"
    assert len(issuer.requests) == 2


async def test_a_short_life_is_half_used(issuer: Issuer, clock: SimpleNamespace):
    issuer.replies = [(200, b'{"access_token": "short", "expires_in": "60"}')]
    await ENTRA.token(issuer)
    clock.now += 29
    assert await ENTRA.token(issuer) == "short"
    clock.now += 1
    assert await ENTRA.token(issuer) == "token-2"


async def test_concurrent_callers_share_one_token_request(issuer: Issuer):
    issuer.open.clear()
    calls = [asyncio.create_task(ENTRA.token(issuer)) for _ in range(20)]
    await until(lambda: issuer.requests)
    issuer.open.set()
    assert set(await asyncio.gather(*calls)) == {"token-1"}
    assert len(issuer.requests) == 1


async def test_no_caller_waits_for_a_renewal_while_the_old_token_is_valid(
    issuer: Issuer, clock: SimpleNamespace
):
    await ENTRA.token(issuer)
    clock.now += LIFE - RENEWAL_MARGIN
    issuer.open.clear()
    renewing = asyncio.create_task(ENTRA.token(issuer))
    await until(lambda: len(issuer.requests) == 2)
    assert await ENTRA.token(issuer) == "token-1"
    issuer.open.set()
    assert await renewing == "token-2"


async def test_a_cancelled_caller_leaves_the_token_request_to_the_next(issuer: Issuer):
    issuer.open.clear()
    first, second = (asyncio.create_task(ENTRA.token(issuer)) for _ in range(2))
    await until(lambda: issuer.requests)
    first.cancel()
    issuer.open.set()
    assert await second == "token-2"
    assert first.cancelled()


async def test_equal_accounts_share_a_token_and_others_do_not(issuer: Issuer):
    twin = EntraCredentials(tenant="contoso", client_id="app-1", secret=SECRET)
    other = EntraCredentials(tenant="contoso", client_id="app-1", secret="newer")
    tokens = [await each.token(issuer) for each in (ENTRA, twin, other)]
    assert tokens == ["token-1", "token-1", "token-2"]


def test_every_event_loop_requests_its_own_token():
    issuers = [Issuer(), Issuer()]
    tokens = [asyncio.run(ENTRA.token(each)) for each in issuers]
    assert tokens == ["token-1", "token-1"]


async def test_a_refused_token_is_replaced_once(issuer: Issuer):
    await ENTRA.token(issuer)
    ENTRA.forget("token-1")
    assert await ENTRA.token(issuer) == "token-2"
    ENTRA.forget("token-1")  # the late answer to another request
    assert await ENTRA.token(issuer) == "token-2"


# Errors


async def test_waiting_callers_share_the_failure_and_the_next_tries_again(
    issuer: Issuer,
):
    issuer.replies = [ProviderDown(detail="gone")]
    issuer.open.clear()
    calls = [asyncio.create_task(ENTRA.token(issuer)) for _ in range(5)]
    await until(lambda: issuer.requests)
    issuer.open.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {ProviderDown}
    assert {error.detail for error in errors} == {"gone"}
    assert len(set(map(id, errors))) == 5
    assert len(issuer.requests) == 1
    assert await ENTRA.token(issuer) == "token-2"


async def test_an_outage_is_waited_out_with_the_old_token(
    issuer: Issuer, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
):
    await ENTRA.token(issuer)
    clock.now += LIFE - RENEWAL_MARGIN
    issuer.replies = [ProviderTimeout(), ProviderTimeout()]
    assert await ENTRA.token(issuer) == "token-1"
    assert await ENTRA.token(issuer) == "token-1"
    assert len(issuer.requests) == 2  # not at every call
    assert "the token of Entra ID could not be renewed" in caplog.text
    assert SECRET not in caplog.text
    clock.now += RENEWAL_MARGIN
    with pytest.raises(ProviderTimeout):
        await ENTRA.token(issuer)
    assert await ENTRA.token(issuer) == "token-4"


async def test_a_secret_that_is_withdrawn_ends_the_old_token_too(
    issuer: Issuer, clock: SimpleNamespace
):
    await ENTRA.token(issuer)
    clock.now += LIFE - RENEWAL_MARGIN
    issuer.replies = [(401, b'{"error": "invalid_client"}')]
    with pytest.raises(InvalidKey):
        await ENTRA.token(issuer)


WRONG_SECRET = (
    "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in"
    " the request is the client secret value.\r\nTrace ID: 1\r\nTimestamp: 2"
)


@pytest.mark.parametrize(
    ("status", "body", "ours"),
    [
        (401, {"error": "invalid_client"}, InvalidKey),
        (400, {"error": "unauthorized_client"}, InvalidKey),
        (400, {"error": "invalid_request"}, InvalidKey),  # no such tenant
        (400, {"error": "invalid_grant"}, InvalidKey),  # Google: a key withdrawn
        (429, {"error": "too_many"}, RateLimited),
        (400, {"error": "temporarily_unavailable"}, ProviderDown),
        (503, None, ProviderDown),
        (404, None, BadResponse),
        (302, None, BadResponse),
        (200, {}, BadResponse),
        (200, {"access_token": 7}, BadResponse),
        (200, {"access_token": "two\nlines"}, BadResponse),
        (200, None, BadResponse),
    ],
)
async def test_each_answer_that_is_no_token_has_its_class(
    issuer: Issuer, status: int, body: Any, ours: type[LLMError]
):
    issuer.replies = [(status, json.dumps(body).encode() if body else b"<html>")]
    with pytest.raises(ours) as caught:
        await ENTRA.token(issuer)
    assert type(caught.value) is ours
    assert SECRET not in f"{caught.value!r}{caught.value.detail}"
    assert caught.value.host_report == {}  # no host answered


async def test_the_issuers_message_is_stored_for_staff_without_its_ids(
    issuer: Issuer,
):
    body = {"error": "invalid_client", "error_description": WRONG_SECRET}
    issuer.replies = [(401, json.dumps(body).encode())]
    with pytest.raises(InvalidKey) as caught:
        await ENTRA.token(issuer)
    assert str(caught.value) == (
        "Entra ID refused the client; ask the staff to check the tenant, client id and"
        " secret."
    )
    assert caught.value.detail.startswith("Entra ID: 401 invalid_client AADSTS7000215")
    assert "Trace" not in caught.value.detail
    assert caught.value.upstream_code == "invalid_client"


@pytest.mark.parametrize("life", ["soon", None, [1], {}])
async def test_an_unreadable_lifetime_is_a_short_one(
    issuer: Issuer, clock: SimpleNamespace, life: Any
):
    body = {"access_token": "odd", "expires_in": life}
    issuer.replies = [(200, json.dumps(body).encode())]
    assert await ENTRA.token(issuer) == "odd"
    clock.now += 150
    assert await ENTRA.token(issuer) == "token-2"


def test_secrets_are_hidden_from_reprs():
    assert SECRET not in repr(ENTRA)
    assert "planted" not in repr(ServiceAccountCredentials(key='{"a": "planted"}'))


# Through the client

HOST = all_providers()["azure_openai"]
URL = "https://me.openai.azure.com/openai/v1/responses"
DONE = (
    b'{"id": "resp_1", "object": "response", "status": "completed", "model": "m",'
    b' "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status":'
    b' "completed", "content": [{"type": "output_text", "text": "OK",'
    b' "annotations": []}]}]}'
)


def endpoint(**fields: Any) -> Endpoint:
    return Endpoint(
        provider=HOST,
        codec=HOST.codec(),
        api_key=SECRET,
        base_url="https://me.openai.azure.com/openai/v1",
        credentials=ENTRA,
        **fields,
    )


async def call_model(endpoint: Endpoint) -> None:
    request = Request(model="m", items=[user_message("Hello")], stream=False)
    async with aclosing(client.stream(endpoint, request)) as batches:
        _ = [batch async for batch in batches]


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as router:
        yield router


def tokens(web: respx.MockRouter) -> respx.Route:
    """The issuer's address; its tokens are numbered."""
    numbers = iter(range(1, 100))
    return web.post(TOKEN_URL).mock(
        side_effect=lambda request: httpx.Response(
            200, json={"access_token": f"token-{next(numbers)}", "expires_in": LIFE}
        )
    )


async def test_the_host_is_shown_the_token_and_never_the_secret(
    web: respx.MockRouter,
):
    issued, route = tokens(web), web.post(URL).respond(200, content=DONE)
    await call_model(endpoint())
    await call_model(endpoint())
    assert issued.call_count == 1
    assert (
        dict(parse_qsl(issued.calls.last.request.content.decode()))
        == (ENTRA.token_request()[1])
    )
    for call in route.calls:
        assert call.request.headers["Authorization"] == "Bearer token-1"
        assert "api-key" not in call.request.headers
        assert SECRET not in f"{call.request.headers}{call.request.content!r}"


async def test_after_a_401_the_next_call_gets_another_token(web: respx.MockRouter):
    tokens(web)
    route = web.post(URL)
    route.side_effect = [httpx.Response(401), httpx.Response(200, content=DONE)]
    with pytest.raises(InvalidKey):
        await call_model(endpoint())
    await call_model(endpoint())
    assert route.calls.last.request.headers["Authorization"] == "Bearer token-2"


async def test_an_issuer_that_is_unreachable_is_as_a_provider_that_is_down(
    web: respx.MockRouter,
):
    web.post(TOKEN_URL).mock(side_effect=httpx.ConnectError("no such host"))
    with pytest.raises(ProviderDown) as caught:
        await call_model(endpoint())
    assert caught.value.provider == "azure_openai"


async def test_a_refusal_by_the_issuer_never_reaches_the_host(web: respx.MockRouter):
    refused = {"error": "invalid_client", "error_description": WRONG_SECRET}
    web.post(TOKEN_URL).respond(401, json=refused)
    route = web.post(URL)
    with pytest.raises(InvalidKey):
        await call_model(endpoint())
    assert not route.called


async def test_no_token_is_requested_from_a_private_network():
    inside = EntraCredentials(
        tenant="t", client_id="c", secret=SECRET, authority="http://10.0.0.7"
    )
    with pytest.raises(BadRequest, match="private network"):
        await call_model(
            Endpoint(
                provider=HOST,
                codec=HOST.codec(),
                base_url="https://me.openai.azure.com/openai/v1",
                credentials=inside,
            )
        )


async def test_vertex_is_shown_a_token_for_its_service_accounts_key(
    web: respx.MockRouter,
):
    issued = web.post(SERVICE_ACCOUNT["token_uri"]).respond(
        200, json={"access_token": "ya29.token", "expires_in": LIFE}
    )
    vertex_route = web.post(url__startswith="https://vertex.test/").respond(400)
    vertex = all_providers()["vertex"]
    account = Endpoint(
        provider=vertex,
        codec=vertex.codec(),
        api_key=compact_key(json.dumps(SERVICE_ACCOUNT)),
        base_url="https://vertex.test/v1beta1/projects/p/locations/global",
    )
    with pytest.raises(BadRequest):
        await call_model(vertex.connect(account))
    assert issued.call_count == 1
    sent = vertex_route.calls.last.request
    assert sent.headers["Authorization"] == "Bearer ya29.token"
    assert "PRIVATE" not in f"{sent.headers}{sent.content!r}"
