"""The examples of docs/library.md, as they stand there, and what each must do.

As a program, in a project that has the apps and the demo: `python library_examples.py
docs/library.md`. It needs nothing of this repository's tests.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_BLOCKS = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_SETTINGS = "# settings.py\n"


def blocks_of(page: str, language: str) -> list[str]:
    return [code for name, code in _BLOCKS.findall(page) if name == language]


def settings_of(page: str) -> str:
    """What a project writes into its settings."""
    python = blocks_of(page, "python")
    return "".join(code for code in python if code.startswith(_SETTINGS))


def load(page: str) -> SimpleNamespace:
    """What the examples define, one after another."""
    names: dict[str, Any] = {"__name__": "library_docs"}
    for example in blocks_of(page, "python"):
        if not example.startswith(_SETTINGS):
            exec(compile(example, "docs/library.md", "exec"), names)
    return SimpleNamespace(**names)


async def ask(page: Any) -> None:
    assert await page.three_rivers() == "Loire, Rhine, Po"


def ask_without_await(page: Any) -> None:
    assert page.in_a_plain_view("Reply with exactly: yes") == "yes"


async def go_on(page: Any) -> None:
    assert "sunny, 21 °C" in await page.weather("What is the weather in Paris?")


async def stream(page: Any) -> None:
    types = await page.counted()
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    *pieces, last = await page.typed("Count from 1 to 3")
    assert "".join(pieces) == "1, 2, 3"
    assert re.fullmatch(r"\[\d+ tokens\]", last)


async def get_json(page: Any) -> None:
    assert isinstance(await page.city(), page.City)


async def run_tools(page: Any) -> None:
    assert "84" in await page.reckoned("What is 12 * 7? Also ask shipping_cost.")


def run_tools_without_await(page: Any) -> None:
    types = page.seen_in_a_plain_view("What is 6 * 7?")
    assert "parley:tool_call.completed" in types
    assert isinstance(page.city_of("Which city? Use weather_demo."), page.City)


async def give_context(page: Any) -> None:
    assert await page.informed()


async def meet_errors(page: Any) -> None:
    assert (await page.careful("/fail 503")).startswith("Later: ")
    assert (await page.careful("/fail quota")).startswith("No: ")


async def check_access(page: Any) -> None:
    assert await page.problems() == []


CHECKS = (
    ask,
    go_on,
    stream,
    get_json,
    run_tools,
    give_context,
    meet_errors,
    check_access,
)


async def run_all(page: Any) -> None:
    from llm.http import client

    try:
        for check in CHECKS:
            await check(page)
            print(f"{check.__name__}: ok", flush=True)
    finally:
        await client.aclose()


def main(path: str) -> None:
    import django

    django.setup()
    page = load(Path(path).read_text())
    page.set_up_openai("sk-not-a-real-one-but-long-enough")
    ask_without_await(page)
    run_tools_without_await(page)
    asyncio.run(run_all(page))


if __name__ == "__main__":
    main(sys.argv[1])
