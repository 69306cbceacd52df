"""The examples of docs/library.md, as they stand there, one after another."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import respx
from django.conf import settings

from llm import api
from llm.demo.app import DemoApplication
from llm.demo.key import demo_key
from llm.generation import retry_policy
from llm.generation.result import Metadata
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.models import ModelCall, Provider

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def page(transactional_db: None) -> Iterator[Any]:
    """What the examples define, with the demo to ask."""
    provider = Provider.objects.create(name="Demo", kind="demo")
    provider.keys.create(secret=demo_key())
    provider.models.create(name="demo-fast")
    served = httpx.ASGITransport(DemoApplication({"demo-fast": 0.0}))
    names: dict[str, Any] = {"__name__": "library_docs"}
    for example in EXAMPLES:
        exec(compile(example, "docs/library.md", "exec"), names)
    with respx.mock(using="httpx", assert_all_called=False) as web:
        web.route(url__startswith=f"{settings.SELF_URL}/demo/").mock(
            side_effect=served.handle_async_request
        )
        yield SimpleNamespace(**names)


async def test_asking(page: Any, capsys: Any):
    assert await page.three_rivers() == "Loire, Rhine, Po"
    assert re.match(r"\d+ ", capsys.readouterr().out)


def test_asking_without_await(page: Any):
    assert page.in_a_plain_view("Reply with exactly: yes") == "yes"


async def test_going_on(page: Any):
    assert "sunny, 21 °C" in await page.weather("What is the weather in Paris?")


async def test_streaming(page: Any):
    types = await page.counted()
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    *pieces, last = await page.typed("Count from 1 to 3")
    assert "".join(pieces) == "1, 2, 3"
    assert re.fullmatch(r"\[\d+ tokens\]", last)


async def test_json(page: Any):
    assert isinstance(await page.city(), page.City)


async def test_contexts(page: Any, caplog: Any):
    assert await page.informed()
    assert "left out search: TimeoutError" in caplog.text


async def test_errors(page: Any):
    assert (await page.careful("/fail 503")).startswith("Later: ")
    assert (await page.careful("/fail quota")).startswith("No: ")
    failed = ModelCall.objects.filter(status="failed")
    assert await failed.acount() == 4  # three attempts, and one


async def test_checking(page: Any):
    assert await page.problems() == []


def test_the_tables_are_whole():
    for key in [*Metadata.__annotations__, *api.Options.__optional_keys__]:
        if key not in api.RequestOptions.__optional_keys__:
            assert f"`{key}`" in PAGE
    (written,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    policy = Policy.read(json.loads(written)["retry"])
    assert policy.attempts == 3
    for name in Policy.__slots__:
        assert f"`{name}`" in PAGE
    assert f"at most {retry_policy.MAX_ATTEMPTS}" in PAGE
