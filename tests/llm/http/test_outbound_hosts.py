"""OUTBOUND_HOSTS: no request leaves for a host that it does not name."""

from __future__ import annotations

import httpx
import pytest

from llm.http import connections, fetch
from llm.http.outbound_hosts import HostNotListed, is_listed
from project.accounts.identities.guarded_session import AddressRefused, check_host
from tools import errors
from tools.http import guarded_client


@pytest.mark.parametrize(
    ("host", "listed", "is_allowed"),
    [
        ("api.example.org", [], True),
        ("api.example.org", ["api.example.org"], True),
        ("API.Example.org.", ["api.example.org"], True),
        ("example.org", ["api.example.org"], False),
        ("api.example.org.evil.net", ["api.example.org"], False),
        ("evilapi.example.org", ["api.example.org"], False),
        ("a.example.org", ["*.example.org"], True),
        ("a.b.example.org", ["*.example.org"], True),
        ("example.org", ["*.example.org"], False),
        ("evilexample.org", ["*.example.org"], False),
        ("[2001:db8::1]", ["2001:db8::1"], True),
        ("127.0.0.1", ["localhost"], False),
    ],
)
def test_the_list_names_whole_hosts(settings, host, listed, is_allowed):
    settings.OUTBOUND_HOSTS = listed
    assert is_listed(host) is is_allowed


async def resolve(host: str, port: int) -> list[str]:
    raise AssertionError("its name must not even be looked up")


async def test_every_way_out_heeds_it(settings):
    settings.OUTBOUND_HOSTS = ["api.example.org"]
    url = "https://other.example.net/v1"
    async with connections.public_web_client() as http:
        with pytest.raises(HostNotListed):
            await http.get(url)
    with pytest.raises(fetch.DownloadError, match="may not reach"):
        await fetch.fetch(url, max_size=10)
    with pytest.raises(errors.AddressRefused, match="may not reach"):
        await guarded_client.lookup(
            guarded_client.check_url(url), (), guarded_client.Limits(), resolve
        )
    with pytest.raises(AddressRefused):
        check_host("other.example.net", allow_private=True)
    transport = connections.transport(private=True)
    with pytest.raises(HostNotListed):
        await transport.handle_async_request(httpx.Request("GET", url))
