"""Requests to identity providers reach the address that was checked, and no other."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from project.accounts.identities.guarded_session import (
    AddressRefused,
    GuardedSession,
    check_host,
)
from tests.tools.http.test_guarded_client import EMBEDDED_METADATA, certificate
from tests.tools.servers import answer as plain
from tests.tools.servers import ok, redirect, serving

NAME = "identity.test"


class Resolver:
    """Names of this test, each with the addresses of one look-up after the other."""

    def __init__(self) -> None:
        self.answers: dict[str, Iterator[str]] = {}
        self.several: dict[str, list[str]] = {}  # all of them at each look-up
        self._system = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host in self.several:
            found = self.several[host]
            return [self._system(each, port, *args, **options)[0] for each in found]
        if host in self.answers:
            host = next(self.answers[host])
        return self._system(host, port, *args, **options)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    return resolver


async def get(session: requests.Session, url: str, **options: Any) -> requests.Response:
    return await asyncio.to_thread(session.get, url, **options)


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Path, ssl.SSLContext, list[str | None]]:
    pem = certificate(tmp_path / "identity.pem", NAME)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    return pem, context, names


async def test_a_name_is_looked_up_once_and_tls_is_with_the_name(
    resolver: Resolver, tls: Any
):
    pem, context, names = tls
    resolver.answers[NAME] = iter(["127.0.0.1"])  # a second look-up would fail
    async with serving(ok(b"keys"), tls=context) as server:
        session = GuardedSession(frozenset({NAME}))
        url = server.url("/jwks", host=NAME, scheme="https")
        answer = await get(session, url, verify=str(pem))
    assert answer.content == b"keys"
    assert names == [NAME]
    assert f"Host: {NAME}:{server.port}" in server.requests[0]


async def test_a_certificate_of_another_name_is_refused(resolver: Resolver, tls: Any):
    pem, context, _names = tls
    resolver.answers["other.test"] = iter(["127.0.0.1"])
    async with serving(ok(b"keys"), tls=context) as server:
        session = GuardedSession(frozenset({"other.test"}))
        url = server.url(host="other.test", scheme="https")
        with pytest.raises(requests.exceptions.SSLError):
            await get(session, url, verify=str(pem))
    assert server.requests == []


async def test_a_redirect_is_checked_anew(resolver: Resolver):
    resolver.answers["elsewhere.test"] = iter(["10.0.0.1"])
    for target in ("https://elsewhere.test/", "http://elsewhere.test/"):
        async with serving(redirect(target)) as server:
            session = GuardedSession(frozenset({"127.0.0.1"}))
            with pytest.raises(AddressRefused):
                await get(session, server.url())


async def test_a_redirect_takes_no_cookie_to_another_host(resolver: Resolver):
    for name in (NAME, "other.test"):
        resolver.answers[name] = iter(["127.0.0.1"])
    async with serving(ok(b"there")) as there:
        target = there.url("/there", host="other.test")
        cookie = f"Location: {target}\r\nSet-Cookie: session=secret"
        async with serving(plain("302 Found", b"", cookie)) as here:
            session = GuardedSession(frozenset({NAME, "other.test"}))
            await get(session, here.url(host=NAME))
    assert session.cookies["session"] == "secret"
    assert "secret" not in there.requests[0]


async def test_the_next_address_is_tried_where_none_listens_at_the_first(
    resolver: Resolver,
):
    resolver.several[NAME] = ["127.0.0.99", "127.0.0.1"]
    async with serving(ok(b"keys")) as server:
        session = GuardedSession(frozenset({NAME}))
        answer = await get(session, server.url(host=NAME))
    assert answer.content == b"keys"


async def test_one_private_address_among_public_ones_is_refused(resolver: Resolver):
    resolver.several[NAME] = ["93.184.215.14", "10.0.0.1"]
    with pytest.raises(AddressRefused, match="private"):
        await get(GuardedSession(frozenset()), f"https://{NAME}/")


async def test_a_redirect_to_another_host_names_that_host(resolver: Resolver):
    for name in (NAME, "other.test"):
        resolver.answers[name] = iter(["127.0.0.1"])
    async with serving(ok(b"there")) as there:
        target = there.url("/there", host="other.test")
        async with serving(redirect(target)) as here:
            session = GuardedSession(frozenset({NAME, "other.test"}))
            answer = await get(session, here.url(host=NAME))
    assert answer.content == b"there"
    assert f"Host: other.test:{there.port}" in there.requests[0]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"]
)
async def test_a_private_address_is_refused(resolver: Resolver, address: str):
    resolver.answers[NAME] = iter([address])
    with pytest.raises(AddressRefused, match="private"):
        await get(GuardedSession(frozenset()), f"https://{NAME}/")


async def test_metadata_services_are_refused_to_every_host(resolver: Resolver):
    resolver.answers[NAME] = iter(["169.254.169.254"])
    with pytest.raises(AddressRefused, match="private"):
        await get(GuardedSession(frozenset({NAME})), f"https://{NAME}/")


async def test_plain_http_reaches_private_hosts_only(resolver: Resolver):
    resolver.answers["public.test"] = iter(["93.184.215.14"])
    with pytest.raises(AddressRefused, match="plain http"):
        await get(GuardedSession(frozenset()), "http://public.test/")


@pytest.mark.parametrize("address", EMBEDDED_METADATA)
def test_metadata_within_ipv6_is_refused_to_every_host(
    resolver: Resolver, address: str
):
    resolver.answers[NAME] = iter([address])
    with pytest.raises(AddressRefused, match="private"):
        check_host(NAME, allow_private=True)
