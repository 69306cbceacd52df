"""Many requests of one user at once under a limit of use: over REST by session and by
token, by the form of the page, over its WebSocket, and at the three APIs of `/v1`."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx
import orjson
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Origin

from tests.integration.clients import NO_TLS, PATIENCE, Program, sign_in
from tests.serving import PASSWORD, ServerProcess

_TOKEN = "c" * 32  # of forms, in the cookie too
_ENDS = {"completed", "failed", "incomplete", "cancelled"}


class Limited:
    """The admin, with a session and two tokens, and a limit."""

    def __init__(self, servers: Sequence[ServerProcess]) -> None:
        self._servers = servers
        self._owner = Program(servers[0])
        self._tokens = [servers[0].create_token("admin") for _ in range(2)]

    async def set_limit(self, requests: int | None = None, **amounts: Any) -> None:
        """`amounts`: of other measures, as the admin's form has them."""
        if requests is not None:
            amounts["requests"] = requests
        async with httpx.AsyncClient(
            base_url=self._servers[0].url, timeout=PATIENCE, verify=NO_TLS
        ) as http:
            cookie = await sign_in(self._servers[0], "admin", PASSWORD)
            name, _, value = cookie.partition("=")
            http.cookies.set(name, value)
            page = "/admin/conversations/usagelimit/add/"
            token = _csrf((await http.get(page)).text)
            answer = await http.post(
                page,
                data={
                    "csrfmiddlewaretoken": token,
                    "period": "month",
                    "warn_at": "80",
                    **{name: str(amount) for name, amount in amounts.items()},
                },
            )
            assert answer.status_code == 302, answer.text
        self._cookie = cookie
        self._conversation = await self._owner.conversation()
        for server in self._servers:
            await self._until_limited(server)

    async def _until_limited(self, server: ServerProcess) -> None:
        """Other processes learn of a limit within seconds."""
        headers = {"Authorization": f"Bearer {self._tokens[0]}"}
        async with asyncio.timeout(PATIENCE):
            async with httpx.AsyncClient(timeout=PATIENCE, verify=NO_TLS) as http:
                url = f"{server.url}/api/limits/"
                while not (await http.get(url, headers=headers)).json()["results"]:
                    await asyncio.sleep(0)

    async def used(self, measure: str) -> float:
        """What the server says that is used of the limit."""
        headers = {"Authorization": f"Bearer {self._tokens[0]}"}
        async with httpx.AsyncClient(timeout=PATIENCE, verify=NO_TLS) as http:
            url = f"{self._servers[0].url}/api/limits/"
            rows = (await http.get(url, headers=headers)).json()["results"]
        [row] = [each for each in rows if each["measure"] == measure]
        return float(row["used"])

    async def wait_for_turns(self) -> None:
        """Until no message is queued or runs."""
        headers = {"Authorization": f"Bearer {self._tokens[0]}"}
        url = f"/api/conversations/{self._conversation}/turns/"
        async with (
            asyncio.timeout(PATIENCE),
            httpx.AsyncClient(
                base_url=self._servers[0].url, timeout=PATIENCE, verify=NO_TLS
            ) as http,
        ):
            while True:
                rows = (await http.get(url, headers=headers)).json()["results"]
                if {each["status"] for each in rows} <= _ENDS:
                    return
                await asyncio.sleep(0.1)

    async def ask(self, count: int) -> list[int]:
        """The statuses of `count` requests at once, as many by each way; 0 for one
        that lost its server."""
        async with httpx.AsyncClient(timeout=PATIENCE, verify=NO_TLS) as http:
            asking = [self._ask(http, n) for n in range(count)]
            return await asyncio.gather(*asking)

    async def _ask(self, http: httpx.AsyncClient, number: int) -> int:
        server = self._servers[number % len(self._servers)]
        ways: list[Callable[[httpx.AsyncClient, ServerProcess, int], Awaitable[int]]]
        ways = [
            self._by_session,
            self._by_token,
            self._by_chat,
            self._by_responses,
            self._by_messages,
            self._by_form,
            self._by_websocket,
        ]
        with suppress(httpx.TransportError, WebSocketException, OSError):
            return await ways[number % len(ways)](http, server, number)
        return 0

    def _turns(self, server: ServerProcess) -> str:
        return f"{server.url}/api/conversations/{self._conversation}/turns/"

    def _browser(self, server: ServerProcess) -> dict[str, str]:
        return {
            "Cookie": f"{self._cookie}; csrftoken={_TOKEN}",
            "X-CSRFToken": _TOKEN,
            "Origin": server.url,
        }

    def _program(self, number: int) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._tokens[number % 2]}"}

    async def _by_session(
        self, http: httpx.AsyncClient, server: ServerProcess, number: int
    ) -> int:
        url, headers = self._turns(server), self._browser(server)
        answer = await http.post(url, json={"input": "/echo hi"}, headers=headers)
        return answer.status_code

    async def _by_token(
        self, http: httpx.AsyncClient, server: ServerProcess, number: int
    ) -> int:
        url, headers = self._turns(server), self._program(number)
        answer = await http.post(url, json={"input": "/echo hi"}, headers=headers)
        return answer.status_code

    async def _by_chat(
        self, http: httpx.AsyncClient, server: ServerProcess, number: int
    ) -> int:
        said = [{"role": "user", "content": f"/echo {number}"}]
        answer = await http.post(
            f"{server.url}/v1/chat/completions",
            json={"model": "demo/demo", "messages": said},
            headers=self._program(number),
        )
        return answer.status_code

    async def _by_responses(
        self, http: httpx.AsyncClient, server: ServerProcess, number: int
    ) -> int:
        answer = await http.post(
            f"{server.url}/v1/responses",
            json={"model": "demo/demo", "input": f"/echo {number}"},
            headers=self._program(number),
        )
        return answer.status_code

    async def _by_messages(
        self, http: httpx.AsyncClient, server: ServerProcess, number: int
    ) -> int:
        said = [{"role": "user", "content": f"/echo {number}"}]
        answer = await http.post(
            f"{server.url}/v1/messages",
            json={"model": "demo/demo", "messages": said, "max_tokens": 99},
            headers=self._program(number),
        )
        return answer.status_code

    async def _by_form(
        self, http: httpx.AsyncClient, server: ServerProcess, number: int
    ) -> int:
        answer = await http.post(
            f"{server.url}/chat/{self._conversation}/",
            data={"text": "/echo hi", "csrfmiddlewaretoken": _TOKEN},
            headers=self._browser(server),
        )
        return 202 if answer.status_code == 302 else answer.status_code

    async def _by_websocket(
        self, http: httpx.AsyncClient, server: ServerProcess, number: int
    ) -> int:
        url = f"{server.url}/ws/conversations/{self._conversation}/"
        headers = self._browser(server)
        async with connect(
            url.replace("http", "ws", 1),
            additional_headers={"Cookie": headers["Cookie"]},
            origin=Origin(server.url),
        ) as socket:
            key = uuid.uuid4().hex  # one that came before would be the same message
            asked = {"type": "turn.create", "input": "/echo hi", "key": key}
            await socket.send(orjson.dumps(asked).decode())
            async for line in socket:
                heard = orjson.loads(line)
                if heard.get("key") == key:
                    is_refused = heard["type"] == "error"
                    if is_refused:
                        assert heard["error"]["code"] == "insufficient_quota", heard
                    return 429 if is_refused else 202
        return 0


def _csrf(page: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found, page
    return found[1]


def admitted(statuses: Sequence[int]) -> int:
    unexpected = {*statuses} - {0, 200, 202, 429}
    assert not unexpected, unexpected
    return sum(status in (200, 202) for status in statuses)
