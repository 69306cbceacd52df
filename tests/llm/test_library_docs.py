"""The examples of docs/library.md, as they stand there, one after another."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from django.conf import settings

import llm.conf
import tools.api
import tools.conf
from llm import api
from llm.demo.app import DemoApplication
from llm.demo.key import demo_key
from llm.generation import retry_policy
from llm.generation.result import Metadata
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.models import LanguageModel, ModelCall, Provider
from llm.router import resolve
from tests.llm import library_examples
from tests.llm.library_examples import (
    CHECKS,
    ask_without_await,
    meet_errors,
    run_tools_without_await,
)
from tools.agent.options import RunOptions

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text()


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def page(transactional_db: None) -> Iterator[Any]:
    """The names that the examples define, with the demo as provider."""
    provider = Provider.objects.create(name="Demo", kind="demo")
    provider.keys.create(secret=demo_key())
    provider.models.create(name="demo")
    served = httpx.ASGITransport(DemoApplication({"demo": 0.0}))
    with respx.mock(using="parley", assert_all_called=False) as web:
        web.route(url__startswith=f"{settings.SELF_URL}/demo/").mock(
            side_effect=served.handle_async_request
        )
        yield library_examples.load(PAGE)


def test_every_name_of_the_page_is_part_of_the_interface():
    named = set(re.findall(r"\bapi\.([A-Za-z_]+)", PAGE)) - {"py"}
    assert {"generate", "stream_sync", "McpServer", "Policy"} <= named
    assert named <= {*tools.api.__all__, *api.__all__}
    for module in (api, tools.api):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_an_example_does_what_the_page_says(page: Any, check: Any):
    await check(page)


def test_asking_without_await(page: Any):
    ask_without_await(page)


def test_running_tools_without_await(page: Any):
    run_tools_without_await(page)


async def test_what_the_examples_leave_in_log_and_rows(page: Any, caplog: Any):
    await page.informed()
    assert "left out search: TimeoutError" in caplog.text
    await meet_errors(page)
    failed = ModelCall.objects.filter(status="failed")
    assert await failed.acount() == 4  # three attempts, and one


def test_a_provider_is_set_up_by_code(page: Any):
    page.set_up_openai("sk-not-a-real-one-but-long-enough")
    default = LanguageModel.objects.get(is_default=True)
    assert (default.full_name, default.alias) == ("OpenAI/gpt-4.1-mini", "fast")
    assert resolve("fast").model == "gpt-4.1-mini"


def test_every_setting_is_listed_with_its_default():
    row = re.compile(r"^\| `([A-Z_]+)` \| (.+?) \|", re.MULTILINE)
    listed = dict(row.findall(PAGE))
    defaults = {**llm.conf.DEFAULTS, **tools.conf.DEFAULTS}
    assert listed.pop("ENCRYPTION_KEYS").startswith("derived")
    assert set(listed) == set(defaults)
    for name, default in listed.items():
        assert eval(default.strip("`")) == defaults[name], name


def test_the_tables_are_whole():
    options = api.Options.__optional_keys__ | RunOptions.__optional_keys__
    for key in [*Metadata.__annotations__, *options]:
        if key not in api.RequestOptions.__optional_keys__:
            assert f"`{key}`" in PAGE
    (written,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    policy = Policy.read(json.loads(written)["retry"])
    assert policy.attempts == 3
    for name in Policy.__slots__:
        assert f"`{name}`" in PAGE
    assert f"at most {retry_policy.MAX_ATTEMPTS}" in PAGE
