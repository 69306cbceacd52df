from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from mcp.server import MCPServer

from conversations import context
from conversations.context import (
    FunctionRead,
    InvalidSource,
    LoadedSource,
    Reader,
    SourceFunction,
    TextRead,
    context_source,
    discover,
    render,
)
from conversations.models.preset import ContextSource
from tests.tools.mcp.servers import OnLoopback, running
from tests.tools.servers import answer, ok, redirect, serving
from tools.errors import ToolError
from tools.mcp.client import close_all, get_session
from tools.models.mcp_server import McpServer

ADA = Reader(user_id=1, username="ada", conversation_id="conv_1")
PAGE = Path(__file__).parents[3] / "docs" / "context.md"


@pytest.fixture(autouse=True)
def _empty_cache():
    context.text_cache.clear()


def source(read, **fields) -> LoadedSource:
    defaults = {"name": "s", "title": "S", "max_size": 1000, "timeout": 60}
    return LoadedSource(**{**defaults, "read": read, **fields})


def http(url: str, *, local: bool = True, **fields) -> ContextSource:
    networks = "127.0.0.0/8" if local else ""
    form_data = {"name": "web", "title": "Web", "kind": "http", "networks": networks}
    return ContextSource(**{**form_data, "url": url, **fields})


async def one(source: LoadedSource, reader: Reader = ADA):
    [done] = await render([source], reader)
    return done


async def describe_reader(reader):
    return f"for {reader.username}"


# Side by side, and never fatal


async def test_sources_are_read_concurrently_and_included_in_order():
    both = asyncio.Barrier(2)

    async def wait(reader):
        await both.wait()
        return "met"

    done = await render([source(wait, name="a"), source(wait, name="b")], ADA)
    assert [(each.source.name, each.text) for each in done] == [
        ("a", "met"),
        ("b", "met"),
    ]


async def test_a_failing_source_does_not_stop_the_others(caplog):
    async def broken(reader):
        raise RuntimeError(f"about {reader.username}")

    async def refused(reader):
        raise ToolError("the shop is closed.")

    done = await render([source(broken), source(refused), source(describe_reader)], ADA)
    assert [each.reason for each in done] == [
        "it failed: RuntimeError.",
        "the shop is closed.",
        "",
    ]
    assert done[2].text == "for ada"
    assert "about ada" not in caplog.text


async def test_one_that_takes_too_long_is_left_to_itself():
    may_end = asyncio.Event()

    async def stubborn(reader):
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    done = await one(source(stubborn, timeout=0.01))
    assert done.reason == "it took longer than 0.01 seconds."
    assert len(context.abandoned_reads) == 1
    may_end.set()
    while context.abandoned_reads:
        await asyncio.sleep(0)


async def test_cancelling_the_turn_cancels_the_sources():
    stopped = asyncio.Event()

    async def wait(reader):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(render([source(wait)], ADA))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stopped.wait()


async def test_a_text_beyond_its_limit_is_left_out_whole():
    assert (await one(source(TextRead("é" * 5), max_size=10))).text == "é" * 5
    done = await one(source(TextRead("é" * 6), max_size=10))
    assert (done.text, done.reason) == ("", "it is larger than 10 bytes.")


async def test_a_source_may_be_longer_than_a_tools_output():
    text = "x" * 60_000
    assert (await one(source(TextRead(text), max_size=100_000))).text == text


async def test_json_values_are_included_as_json_and_pictures_are_not():
    async def rows(reader):
        return [{"id": 1}]

    async def picture(reader):
        return [{"type": "input_image", "image_url": "data:,"}]

    assert (await one(source(rows))).text == '[{"id":1}]'
    assert (await one(source(picture))).reason == "its result is not text."


# Cached texts


async def test_a_cached_text_serves_only_its_reader_and_version():
    runs = []

    async def count(reader):
        runs.append(reader.user_id)
        return f"{len(runs)}"

    cached = source(count, cache_seconds=60)
    assert [(await one(cached)).text for _ in range(2)] == ["1", "1"]
    assert (await one(cached, Reader(user_id=2))).text == "2"
    changed = source(count, cache_seconds=60, version="2")
    assert (await one(changed)).text == "3"
    shared = source(count, cache_seconds=60, varies=(), name="shared")
    assert (await one(shared)).text == (await one(shared, Reader())).text == "4"


async def test_a_failed_read_is_not_cached():
    runs = []

    async def recover(reader):
        runs.append(1)
        if len(runs) == 1:
            raise ToolError("not yet.")
        return "now"

    cached = source(recover, cache_seconds=60)
    assert (await one(cached)).reason == "not yet."
    assert (await one(cached)).text == "now"


def test_texts_are_cached_for_a_time_and_up_to_a_number():
    now = [0.0]
    cached = context.TextCache(2, clock=lambda: now[0])
    cached.put("a", "A", 10)
    now[0] = 9.9
    assert cached.get("a") == "A"
    now[0] = 10
    assert cached.get("a") is None
    for key in "bcd":
        cached.put(key, key, 10)
    assert [cached.get(key) for key in "bcd"] == [None, "c", "d"]
    cached.put("e", "e", 0)
    assert cached.get("e") is None


# Functions


async def test_functions_take_nothing_or_a_reader_and_may_block(monkeypatch):
    @context_source
    def plain():
        """Tell the rules."""
        return "rules"

    @context_source
    def mine(reader: Reader) -> str:
        return reader.username

    @context_source
    async def waiting(who: Reader) -> str:
        return who.conversation_id

    module = ModuleType("shop.context")
    vars(module).update(plain=plain, mine=mine, waiting=waiting, other=len)
    found = discover([module])
    monkeypatch.setattr(context, "source_functions", lambda: found)
    done = await render([source(FunctionRead(path)) for path in found], ADA)
    assert [each.text for each in done] == ["rules", "ada", "conv_1"]
    assert plain() == "rules"
    missing = await one(source(FunctionRead("shop.context.gone")))
    assert missing.reason == "its code no longer exists."


def test_a_function_that_wants_more_is_refused_when_it_is_imported():
    def greedy(reader: Reader, city: str): ...

    with pytest.raises(InvalidSource, match="takes city; a context source takes"):
        context_source(greedy)
    with pytest.raises(InvalidSource):
        context_source(lambda *args: "")


def test_installed_code_is_looked_through():
    context.source_functions.cache_clear()
    assert all(
        isinstance(each, SourceFunction) for each in context.source_functions().values()
    )


async def test_the_example_of_the_docs_works(monkeypatch):
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    module = ModuleType("shop.context")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    lines = [line.removeprefix("  ") for line in example.splitlines()]
    text = "from __future__ import annotations\n" + "\n".join(lines)
    exec(compile(text, str(PAGE), "exec"), vars(module))
    monkeypatch.setattr(context, "source_functions", lambda: discover([module]))
    done = await one(source(FunctionRead("shop.context.orders")))
    assert done.text == '["tea","a teapot"]'


# HTTP


async def test_an_address_is_filled_in_and_headers_are_sent():
    async with serving(ok(b'{"data": {"name": "Ada"}}', "application/json")) as web:
        row = http(web.url("/users/{username}"), pointer="/data/name")
        row.set_secret_headers({"Authorization": "Bearer s3cret-token"})
        row.clean()
        done = await one(row.to_source(), Reader(username="a/d a"))
    assert (done.text, done.reason) == ("Ada", "")
    assert "GET /users/a%2Fd%20a HTTP/1.1" in web.requests[0]
    assert "Bearer s3cret-token" in web.requests[0]


async def test_a_secret_that_comes_back_is_masked():
    async with serving(ok(b"token was s3cret-token")) as web:
        row = http(web.url("/echo"))
        row.set_secret_headers({"X-Key": "s3cret-token"})
        done = await one(row.to_source())
    assert "s3cret-token" not in done.text


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://2130706433/",
    ],
)
async def test_private_addresses_are_refused(url):
    done = await one(http(url, local=False).to_source())
    assert done.text == ""
    assert "not allowed" in done.reason or "unusual notation" in done.reason
    assert done.advice
    assert "127.0.0.1" not in done.reason


async def test_a_redirect_into_a_private_network_is_refused():
    async with serving(redirect("http://10.0.0.1/")) as web:
        done = await one(http(web.url()).to_source())
    assert "not allowed" in done.reason


async def test_an_http_error_of_a_source_is_reported_without_its_body():
    async with serving(answer("500 Oops", b"database password: x")) as web:
        done = await one(http(web.url()).to_source())
    assert done.reason == "the web server answered 500."


async def test_a_large_answer_is_left_out():
    async with serving(ok(b"x" * 101)) as web:
        done = await one(http(web.url(), max_size=100).to_source())
    assert "larger than 100 bytes" in done.reason


async def test_a_slow_web_server_runs_out_of_the_sources_time():
    gate = asyncio.Event()

    async def wait(reader, writer):
        await gate.wait()

    async with serving(wait) as web:
        done = await one(http(web.url(), timeout=0.1).to_source())
        gate.set()
    assert done.reason == "it took longer than 0.1 seconds."


# MCP


@dataclass
class Notes(OnLoopback):
    def app(self):
        server = MCPServer("notes")

        @server.resource("notes://all")
        def everything() -> str:
            return "Buy tea."

        @server.resource("notes://picture", mime_type="image/png")
        def picture() -> bytes:
            return b"\x89PNG"

        return server.streamable_http_app()


@pytest.fixture
async def notes():
    async with running(Notes()) as server:
        yield McpServer(
            name="notes",
            url=f"http://127.0.0.1:{server.port}/mcp",
            networks="127.0.0.0/8",
        )
        await close_all()


def resource(server, uri="notes://all"):
    row = ContextSource(name="m", title="M", kind="mcp", uri=uri, timeout=30)
    row.mcp_server = server
    return row


async def test_a_resource_is_read_in_the_session_of_turns_or_in_one_of_its_own(notes):
    assert (await one(resource(notes).to_trial_source())).text == "Buy tea."
    assert not get_session(notes.spec).is_open
    assert (await one(resource(notes).to_source())).text == "Buy tea."
    assert get_session(notes.spec).is_open


async def test_a_resource_that_is_no_text_or_not_there_is_left_out(notes):
    picture = await one(resource(notes, "notes://picture").to_source())
    assert picture.reason == "its result is not text."
    missing = await one(resource(notes, "notes://none").to_source())
    assert missing.reason
    assert not missing.text


async def test_a_deleted_or_disabled_server_is_reported(notes):
    notes.enabled = False
    for server in (notes, None):
        done = await one(resource(server).to_source())
        assert done.reason == "its MCP server was deleted or is switched off."


async def test_an_mcp_server_in_a_private_network_is_refused(notes):
    notes.networks = ""
    done = await one(resource(notes).to_source())
    assert done.reason
    assert not done.text
    assert done.advice
