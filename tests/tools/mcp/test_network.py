from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.tools.mcp.servers import LOOPBACK
from tests.tools.servers import answer, ok, redirect, serving
from tools.errors import AddressRefused, AnswerTooLarge, BrokenAnswer, Unreachable
from tools.mcp import http_transport
from tools.mcp.http_transport import Health, http_client, watch_call
from tools.mcp.server_spec import ServerSpec


async def public(host: str, port: int) -> list[str]:
    return ["93.184.215.14", "127.0.0.1"]


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def client(networks=LOOPBACK, resolve=loopback, **values) -> httpx2.AsyncClient:
    server = ServerSpec(name="x", url="http://x/", networks=networks, **values)
    return http_client(server, Health(), resolve=resolve)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://10.0.0.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://name.test/",
        "http://user:pw@name.test/",
    ],
)
async def test_a_private_or_odd_address_is_refused(url: str):
    async with client(networks=()) as http:
        with pytest.raises(AddressRefused):
            await http.get(url)


async def test_a_name_with_one_private_address_is_refused_as_a_whole():
    async with client(networks=(), resolve=public) as http:
        with pytest.raises(AddressRefused):
            await http.get("http://name.test/")


async def test_the_connection_goes_to_the_address_that_was_checked():
    looked_up: list[str] = []

    async def once(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    async with serving(ok(b"hello")) as server, client(resolve=once) as http:
        found = await http.get(server.url(host="name.test"))
    assert found.text == "hello"
    assert looked_up == ["name.test"]
    assert "host: name.test" in server.requests[0].lower()


async def test_proxies_of_the_environment_do_not_exist(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with serving(ok(b"hello")) as server, client() as http:
        assert (await http.get(server.url())).text == "hello"


async def test_a_redirect_is_not_followed():
    async with serving(redirect("http://127.0.0.1:1/")) as server, client() as http:
        assert (await http.get(server.url())).status_code == 302


async def test_an_endless_answer_is_cut_off_unless_it_is_a_stream_of_events(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(http_transport, "MAX_MESSAGE", 100)
    async with serving(ok(b"x" * 101)) as server, client() as http:
        with pytest.raises(AnswerTooLarge):
            await http.get(server.url())
    events = b"data: 1\n\n" * 20
    async with serving(ok(events, "text/event-stream")) as server, client() as http:
        assert (await http.get(server.url())).content == events


async def test_an_endless_event_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_transport, "MAX_MESSAGE", 100)
    event = b"data: " + b"x" * 100
    async with serving(ok(event, "text/event-stream")) as server, client() as http:
        with pytest.raises(AnswerTooLarge):
            await http.get(server.url())


async def test_an_unrequested_content_encoding_is_refused():
    packed = answer("200 OK", b"bomb", "Content-Encoding: gzip")
    async with serving(packed) as server, client() as http:
        with pytest.raises(BrokenAnswer, match="compressed"):
            await http.get(server.url())
    assert "accept-encoding: identity" in server.requests[0].lower()


async def test_an_unreachable_server_is_reported_without_its_address():
    async with client() as http:
        with pytest.raises(Unreachable) as caught:
            await http.get("http://127.0.0.1:1/")
        assert "127" not in str(caught.value)
    async with serving(b"nonsense\r\n\r\n") as server, client() as http:
        with pytest.raises(BrokenAnswer):
            await http.get(server.url())


async def test_a_lost_session_shows_in_the_health():
    server, health = (
        ServerSpec(name="x", url="http://x/", networks=LOOPBACK),
        Health(),
    )
    async with (
        serving(answer("404 Not Found")) as web,
        http_client(server, health) as http,
    ):
        asks: dict[str, Any] = {"json": {"method": "tools/call", "id": 1}}
        await http.post(web.url(), **asks)
        assert (health.status, health.is_gone) == (404, False)
        asks["headers"] = {"Mcp-Session-Id": "s"}
        await http.post(web.url(), **{**asks, "json": {"result": {}, "id": 1}})
        assert not health.is_gone  # the call has begun that asks the user
        with watch_call() as of_call:
            await http.post(web.url(), **asks)
        assert (of_call.is_gone, health.is_gone) == (True, False)
        await http.post(web.url(), **asks)
        assert health.is_gone
