"""Many requests of one user at once under a limit of use: over REST by session and by
token, Chat Completions and Responses. Forms, WebSockets and Messages take no part."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import httpx

from tests.integration.clients import NO_TLS, PATIENCE, Program, sign_in
from tests.serving import PASSWORD, ServerProcess


class Limited:
    """The admin, with a session and two tokens, and a limit of requests."""

    def __init__(self, servers: Sequence[ServerProcess]) -> None:
        self._servers = servers
        self._program = Program(servers[0])
        self._tokens = [servers[0].create_token("admin") for _ in range(2)]

    async def set_limit(self, requests: int) -> None:
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
                    "requests": str(requests),
                    "warn_at": "80",
                },
            )
            assert answer.status_code == 302, answer.text
        self._cookie = cookie
        self._conversation = await self._program.conversation()
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

    async def ask(self, count: int) -> list[int]:
        """The statuses of `count` requests at once, a quarter by each way; 0 for
        one that lost its server."""
        async with httpx.AsyncClient(timeout=PATIENCE, verify=NO_TLS) as http:
            asking = [self._ask(http, n) for n in range(count)]
            return await asyncio.gather(*asking)

    async def _ask(self, http: httpx.AsyncClient, number: int) -> int:
        server = self._servers[number % len(self._servers)]
        headers = {"Authorization": f"Bearer {self._tokens[number % 2]}"}
        turns = f"{server.url}/api/conversations/{self._conversation}/turns/"
        try:
            match number % 4:
                case 0:
                    answer = await self._by_session(http, server, turns)
                case 1:
                    answer = await http.post(
                        turns, json={"input": "/echo hi"}, headers=headers
                    )
                case 2:
                    answer = await http.post(
                        f"{server.url}/v1/chat/completions",
                        json={
                            "model": "demo/demo",
                            "messages": [
                                {"role": "user", "content": f"/echo {number}"}
                            ],
                        },
                        headers=headers,
                    )
                case _:
                    answer = await http.post(
                        f"{server.url}/v1/responses",
                        json={"model": "demo/demo", "input": f"/echo {number}"},
                        headers=headers,
                    )
        except httpx.TransportError:
            return 0
        return answer.status_code

    async def _by_session(
        self, http: httpx.AsyncClient, server: ServerProcess, turns: str
    ) -> httpx.Response:
        csrf = "c" * 32
        headers = {
            "Cookie": f"{self._cookie}; csrftoken={csrf}",
            "X-CSRFToken": csrf,
            "Origin": server.url,
        }
        return await http.post(turns, json={"input": "/echo hi"}, headers=headers)


def _csrf(page: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found, page
    return found[1]


def admitted(statuses: Sequence[int]) -> int:
    unexpected = {*statuses} - {0, 200, 202, 429}
    assert not unexpected, unexpected
    return sum(status in (200, 202) for status in statuses)
