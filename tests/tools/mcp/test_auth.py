"""What the conformance scenarios do not show: tokens that outlive a session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from tools.mcp.errors import SignInFailed
from tools.mcp.oauth import build_auth, is_same_issuer
from tools.mcp.server_spec import AuthorizationCode, ServerSpec

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


def flow(store: Store) -> Any:
    """The requests that are made for one request of ours."""
    oauth = AuthorizationCode(redirect_uri="https://us/back", store=store)
    auth = build_auth(ServerSpec(name="x", url=URL, oauth=oauth))
    assert auth
    return auth.async_auth_flow(httpx2.Request("POST", URL))


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
