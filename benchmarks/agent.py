"""CPU time of one agent loop, printed as JSON.

Usage: `python -m benchmarks.agent LOOP BASE_URL ROUNDS RUNS`. LOOP is `parley` or
a peer: `pydantic_ai`, `openai_agents`, each over Chat Completions and streamed. A run
makes ROUNDS tool rounds (a model call that calls a Python tool) and a final answer of
20 chunks.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple

Run = Callable[[], Awaitable[int]]


class Loop(NamedTuple):
    run: Run  # returns the number of events
    close: Callable[[], Awaitable[None]]


async def nothing() -> None: ...


WARM_UP = 5  # runs


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def parley(base_url: str, model: str) -> Loop:
    import django
    from django.conf import settings

    settings.configure(
        LLM_CONNECT_TIMEOUT=10.0,
        LLM_FIRST_BYTE_TIMEOUT=60.0,
        LLM_IDLE_TIMEOUT=60.0,
        LLM_TOTAL_TIMEOUT=60.0,
        LLM_MAX_CONNECTIONS=100,
        LLM_KEY_WAIT=60.0,
        TOOL_TIMEOUT=30.0,
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "llm",
            "tools",
        ],
    )
    django.setup()
    from llm import providers
    from llm.http import client
    from llm.provider import Endpoint, Route
    from tools import api

    provider = providers.all_providers()["openai_compatible"]
    endpoint = Endpoint(
        provider=provider,
        codec=provider.codecs["openai_chat"],
        base_url=base_url,
        api_key="x",
        allow_private_network=True,
    )
    route = Route(endpoint=endpoint, model=model, name=model)

    async def run() -> int:
        stream = api.stream(
            route,
            "What is 1+2?",
            instructions="Be brief.",
            tools=[add],
            max_iterations=100,
            record=False,
        )
        async with aclosing(stream):
            return len([event async for event in stream])

    return Loop(run, client.aclose)


def pydantic_ai(base_url: str, model: str) -> Loop:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=base_url, api_key="x")
    agent = Agent(OpenAIChatModel(model, provider=provider), instructions="Be brief.")
    agent.tool_plain(add)

    async def run() -> int:
        async with agent.run_stream_events("What is 1+2?") as events:
            return len([event async for event in events])

    return Loop(run, nothing)


def openai_agents(base_url: str, model: str) -> Loop:
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base_url, api_key="x")
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
    tools = [function_tool(add)]
    agent = Agent(name="a", instructions="Be brief.", model=chat, tools=tools)

    async def run() -> int:
        running = Runner.run_streamed(agent, "What is 1+2?", max_turns=100)
        return len([event async for event in running.stream_events()])

    return Loop(run, client.close)


LOOPS = {"parley": parley, "pydantic_ai": pydantic_ai, "openai_agents": openai_agents}


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(loop: str, base_url: str, rounds: int, runs: int) -> dict:
    run, close = LOOPS[loop](base_url, f"bench-c20-d0-r{rounds}")
    for _ in range(WARM_UP):
        events = await run()
    gc.collect()  # what the imports left is not part of a run
    before = cpu_seconds()
    for _ in range(runs):
        await run()
    used = (cpu_seconds() - before) / runs
    await close()
    return {"loop": loop, "ms": used * 1000, "events": events}


if __name__ == "__main__":
    loop, base_url, *numbers = sys.argv[1:]
    print(json.dumps(asyncio.run(measured(loop, base_url, *map(int, numbers)))))
