"""What the conformance scenarios do not show: tokens that outlive a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from tools.mcp.errors import RenewalFailed, SignInFailed, SignInNeeded
from tools.mcp.http_transport import Health
from tools.mcp.oauth.auth import build_auth, build_revocations
from tools.mcp.oauth.authorization_code import is_same_issuer
from tools.mcp.server_spec import AuthorizationCode, ClientCredentials, ServerSpec

URL = "https://host/mcp"
ISSUER = "https://login.host"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/oauth/token",
}


class Store:
    def __init__(self, **state: Any) -> None:
        self.state: Mapping[str, Any] = state

    async def load(self) -> Mapping[str, Any]:
        return self.state

    async def save(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)

    async def claim(self) -> bool:
        return True

    async def release(self) -> None:
        pass


def stored(expires_in: float) -> Store:
    return Store(
        tokens={"access_token": "old", "refresh_token": "r1", "token_type": "Bearer"},
        expires_at=time.time() + expires_in,
        client={"client_id": "c", "redirect_uris": ["https://us/back"]},
        metadata=METADATA,
        issuer=ISSUER,
    )


def auth_of(
    store: Store, health: Health | None = None, client_id: str = ""
) -> httpx2.Auth:
    oauth = AuthorizationCode(
        redirect_uri="https://us/back",
        store=store,
        by_user=health is not None,
        client_id=client_id,
    )
    auth = build_auth(ServerSpec(name="x", url=URL, oauth=oauth), health)
    assert auth
    return auth


def flow(store: Store, health: Health | None = None, client_id: str = "") -> Any:
    """The requests that are made for one request of Parley's."""
    auth = auth_of(store, health, client_id)
    return auth.async_auth_flow(httpx2.Request("POST", URL))


def refuse(request: httpx2.Request, status: int = 401) -> httpx2.Response:
    return httpx2.Response(status, request=request)


def renew(renewal: httpx2.Request, token: str) -> httpx2.Response:
    values = {"access_token": token, "token_type": "Bearer", "expires_in": 60}
    return httpx2.Response(200, json=values, request=renewal)


async def test_a_valid_token_is_used_by_the_next_session():
    requests = flow(stored(expires_in=60))
    request = await anext(requests)
    assert request.headers["authorization"] == "Bearer old"
    await requests.aclose()


async def test_a_token_that_ran_out_is_renewed_where_it_came_from():
    store = stored(expires_in=-1)
    requests = flow(store)
    renewal = await anext(requests)
    assert str(renewal.url) == f"{ISSUER}/oauth/token"
    assert b"refresh_token=r1" in renewal.content
    token = {"access_token": "new", "token_type": "Bearer", "expires_in": 60}
    request = await requests.asend(httpx2.Response(200, json=token, request=renewal))
    assert request.headers["authorization"] == "Bearer new"
    assert store.state["tokens"]["access_token"] == "new"
    assert store.state["tokens"]["refresh_token"] == "r1"
    assert store.state["expires_at"] > time.time()
    assert store.state["metadata"]["token_endpoint"] == METADATA["token_endpoint"]
    await requests.aclose()


async def test_a_request_does_not_wait_for_the_answer_to_another():
    auth = auth_of(stored(expires_in=60))
    flows = [auth.async_auth_flow(httpx2.Request("POST", URL)) for _ in range(2)]
    for each in flows:
        request = await asyncio.wait_for(anext(each), 60)
        assert request.headers["authorization"] == "Bearer old"
        # And none is left waiting after the first answer.
    for each in flows:
        with pytest.raises(StopAsyncIteration):
            await each.asend(httpx2.Response(200, request=request))


async def test_a_token_that_two_requests_are_refused_is_renewed_once():
    auth = auth_of(stored(expires_in=60))
    first, second = (
        auth.async_auth_flow(httpx2.Request("POST", URL)) for _ in range(2)
    )
    requests = [await anext(first), await anext(second)]
    renewal = await first.asend(refuse(requests[0]))
    assert b"refresh_token=r1" in renewal.content
    assert await first.asend(renew(renewal, "new")) is requests[0]
    assert await second.asend(refuse(requests[1])) is requests[1]
    assert {each.headers["authorization"] for each in requests} == {"Bearer new"}
    await first.aclose()
    await second.aclose()


async def test_client_credentials_are_exchanged_once_for_requests_side_by_side():
    oauth = ClientCredentials(client_id="c", issuer=ISSUER)
    auth = build_auth(ServerSpec(name="x", url=URL, oauth=oauth))
    assert auth
    first, second = (
        auth.async_auth_flow(httpx2.Request("POST", URL)) for _ in range(2)
    )
    requests = [await anext(first), await asyncio.wait_for(anext(second), 60)]
    sent = await first.asend(refuse(requests[0]))
    while b"client_credentials" not in sent.content:
        sent = await first.asend(answer_to(sent))
    assert await first.asend(renew(sent, "new")) is requests[0]
    assert await second.asend(refuse(requests[1])) is requests[1]
    assert {each.headers["authorization"] for each in requests} == {"Bearer new"}
    await first.aclose()
    await second.aclose()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, b"busy"),
        (429, b'{"error": "slow_down"}'),
        (401, b'{"error": "invalid_client"}'),
        (404, b""),
    ],
)
async def test_an_outage_of_the_authorization_server_does_not_end_a_sign_in(
    status: int, body: bytes
):
    store, health = stored(expires_in=-1), Health()
    requests = flow(store, health, "entered by staff")
    renewal = await anext(requests)
    with pytest.raises(StopAsyncIteration):  # and no request without a token
        await requests.asend(httpx2.Response(status, content=body, request=renewal))
    assert isinstance(health.sign_in_failure, RenewalFailed)
    assert f"HTTP {status}" in str(health.sign_in_failure)
    assert b"refresh_token=r1" in (await anext(flow(store, health))).content


async def test_a_renewal_is_redirected_on_its_host():
    requests = flow(stored(expires_in=-1), Health())
    renewal = await anext(requests)
    moved = httpx2.Response(307, headers={"Location": "/token"}, request=renewal)
    moved.next_request = httpx2.Request(
        "POST", f"{ISSUER}/token", content=renewal.content, headers=renewal.headers
    )
    renewal = await requests.asend(moved)
    assert str(renewal.url) == f"{ISSUER}/token"
    request = await requests.asend(renew(renewal, "new"))
    assert request.headers["authorization"] == "Bearer new"
    await requests.aclose()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "invalid_grant"),
        (200, "bad_refresh_token"),
        (200, "invalid_refresh_token"),
        (400, "interaction_required"),
        (400, "login_required"),
        (400, "consent_required"),
        (403, "access_denied"),
        (401, "invalid_token"),
    ],
)
async def test_a_refused_refresh_token_ends_a_sign_in(status: int, error: str):
    health = Health()
    requests = flow(stored(expires_in=-1), health)
    renewal = await anext(requests)
    refusal = httpx2.Response(status, json={"error": error}, request=renewal)
    request = await requests.asend(refusal)
    with pytest.raises(SignInNeeded):
        await requests.asend(refuse(request))
    assert isinstance(health.sign_in_failure, SignInNeeded)


async def test_a_client_that_registered_itself_is_forgotten_when_it_is_unknown():
    store, health = stored(expires_in=-1), Health()
    requests = flow(store, health)
    renewal = await anext(requests)
    refusal = httpx2.Response(401, json={"error": "invalid_client"}, request=renewal)
    with pytest.raises(SignInNeeded):
        await requests.asend(refuse(await requests.asend(refusal)))
    assert (store.state["client"], store.state["tokens"]) == (None, None)
    # A person may still sign out: there is nothing to revoke.
    store.state = {**stored(expires_in=60).state, "client": None}
    endpoint = {"revocation_endpoint": f"{ISSUER}/revoke"}
    store.state = {**store.state, "metadata": {**METADATA, **endpoint}}
    oauth = AuthorizationCode(redirect_uri="https://us/back", store=store)
    assert await build_revocations(ServerSpec(name="x", url=URL, oauth=oauth)) == []


async def test_a_client_of_a_newer_sign_in_is_not_forgotten():
    store = stored(expires_in=-1)
    requests = flow(store, Health())
    renewal = await anext(requests)
    newer = {**store.state, "client": {"client_id": "new", "redirect_uris": []}}
    await store.save(newer)
    refusal = httpx2.Response(401, json={"error": "invalid_client"}, request=renewal)
    await requests.asend(refusal)
    assert store.state == newer
    await requests.aclose()


async def test_a_sign_in_that_needs_a_person_is_reported_where_none_is_present():
    with pytest.raises(SignInFailed, match="a member of staff must sign in"):
        await carried_out(flow(stored(expires_in=60)))


async def carried_out(requests: Any) -> None:
    request = await anext(requests)
    while True:
        request = await requests.asend(answer_to(request))


def answer_to(request: httpx2.Request) -> httpx2.Response:
    """As a server does that takes our token no more."""
    if "oauth-protected-resource" in request.url.path:
        about = {"resource": URL, "authorization_servers": [ISSUER]}
        return httpx2.Response(200, json=about, request=request)
    if "oauth-authorization-server" in request.url.path:
        return httpx2.Response(200, json=METADATA, request=request)
    return httpx2.Response(401, request=request)


async def test_tokens_stored_by_an_older_release_are_ignored():
    requests = flow(Store(tokens={"access": 1}, client=[], metadata={"issuer": 5}))
    request = await anext(requests)
    assert "authorization" not in request.headers
    await requests.aclose()


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://login.host", "https://login.host/", True),
        ("https://login.host/a", "https://login.host/a", True),
        ("https://login.host/a", "https://login.host/a/", False),
        ("https://login.host", "https://login.hosts/", False),
        ("https://login.host", "http://login.host", False),
    ],
)
def test_issuers_are_the_same_but_for_the_slash_after_the_host(one, other, is_same):
    assert is_same_issuer(one, other) == is_same
    assert is_same_issuer(other, one) == is_same
