from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.serving import BASE
from tests.tools.servers import ok, serving
from tools.errors import InvalidTool
from tools.execute import CallOutcome, CallProgress, execute
from tools.python import isolated_call, sandbox, waiting_forms
from tools.registry import Context, FormAnswer, get_tool, tool

from . import isolated_tools as made
from .calls import call, happenings, outcome

pytestmark = pytest.mark.server  # each call starts a process

GUEST = {"name": "Ada", "born": "1815-12-10"}


@pytest.fixture
def limits_only(monkeypatch):
    """As on a system without user namespaces: processes have the numbers that are seen
    from here."""
    monkeypatch.setattr(sandbox, "is_available", lambda: False)


def is_there(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def have_ended(*pids: int) -> bool:
    deadline = time.monotonic() + 30
    while any(map(is_there, pids)) and time.monotonic() < deadline:
        os.sched_yield()
    return not any(map(is_there, pids))


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


# Arguments and outputs


async def test_typed_arguments_go_in_and_progress_and_a_result_come_out(limits_only):
    context = Context(user_id=7, turn_id="t")
    *progress, last = await happenings(
        [call("greet", guest=GUEST)], made.greet, context=context
    )
    assert last.state == "completed", last
    body = json.loads(last.output)
    pid = body.pop("pid")
    assert body == {"guest": GUEST, "is_date": True, "user": 7, "key": "t:c1"}
    assert pid != os.getpid()
    assert not is_there(pid)
    assert progress[-1].message == "2"


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("told", "there is no such thing; try another."),
        ("builtin", "fail failed: LookupError."),
        ("group", "fail failed: ExceptionGroup."),
        ("odd", "fail failed: OddError."),
        ("exit", "fail failed: SystemExit."),
        ("unusable", "its result, of type object, cannot be written as JSON."),
        ("leave", "its process exited with the code 7."),
        ("crash", "its process was ended by the signal SIGSEGV."),
    ],
)
async def test_errors_in_the_child_process_are_reported_as_local_ones(
    how, error, caplog
):
    with caplog.at_level(logging.ERROR):
        result = await outcome(made.fail, how=how)
    assert (result.state, result.error) == ("failed", error)
    assert how * 2 not in caplog.text
    if how in ("builtin", "odd"):
        assert "isolated_tools.py" in caplog.text  # where it went wrong


@pytest.mark.smoke
async def test_a_text_comes_back_as_a_function_of_ours_would_give_it():
    result = await outcome(made.fail, how="surrogate")
    assert result.output == "half \N{REPLACEMENT CHARACTER} an emoji"


async def test_a_result_beyond_all_measure_is_refused(monkeypatch):
    monkeypatch.setattr(isolated_call, "MAX_FRAME", 50)
    result = await outcome(made.fail, how="large")
    assert result.error == "its result is larger than 50 bytes."


async def test_work_that_goes_on_elsewhere_is_accepted():
    result = await outcome(made.later)
    assert result.state == "accepted"
    assert (result.accepted.token, result.accepted.poll_after) == ("job-7", 30)


async def test_a_person_can_be_asked_from_the_child_process():
    async def answer(context, message, schema):
        return FormAnswer("accept", {"to": message})

    *_, last = await happenings([call("ask")], made.ask, context=Context(ask=answer))
    assert last.output == "accept {'to': 'First?'} {'to': 'Second?'}"
    result = await outcome(made.ask)
    assert result.output == "cancel {} {}"


# The network


async def test_the_server_fetches_pages_for_it_many_at_once():
    page = ok(b"caf\xe9", content_type="text/plain; charset=latin-1")
    async with serving(page) as server:
        urls = [server.url(f"/{number}") for number in range(20)]
        result = await outcome(made.fetch_all, urls=[*urls, "http://10.0.0.1/"])
        assert sorted(head.split()[1] for head in server.requests) == sorted(
            f"/{number}" for number in range(20)
        )
        assert server.bodies == [b"\xff"] * 20
    *pages, refusal = json.loads(result.output)
    assert pages == ["café"] * 20
    assert refusal.startswith("AddressRefused(")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/", "the address leads into a private or reserved network"),
        ("/header", "'Host' is set by the server; remove it."),
    ],
)
async def test_it_reaches_no_address_that_is_not_public(path, error):
    async with serving(ok(b"secret")) as server:
        result = await outcome(made.fetch_public, url=server.url(path))
        assert server.requests == []
    assert result.state == "failed"
    assert error.lower() in result.error.lower()


@pytest.mark.parametrize(
    "frame",
    [
        {"fetch": 1},
        {"fetch": "1", "method": "GET", "url": "x", "headers": {}, "body": None},
        {"fetch": 1, "method": "GET", "url": "x", "headers": {"a": 1}, "body": None},
        {"fetch": 1, "method": "GET", "url": "x", "headers": {}, "body": "?"},
    ],
)
async def test_a_frame_that_is_no_request_ends_the_call(frame):
    result = await outcome(made.send_frames, frames=[frame])
    assert result.error == "its process sent what is no request."


async def test_a_request_that_hangs_ends_with_its_call():
    async def hang(reader, writer):
        begun.set()
        await reader.read()  # until the other side closes
        ended.set()

    begun, ended = asyncio.Event(), asyncio.Event()
    async with serving(hang) as server:
        calls = [call("fetch_all", urls=[server.url()])]
        tools = {"fetch_all": get_tool(made.fetch_all)}
        running = asyncio.ensure_future(collect(execute(calls, tools, Context())))
        await begun.wait()
        running.cancel()
        await ended.wait()
        await asyncio.gather(running, return_exceptions=True)


async def collect(events) -> list:
    return [each async for each in events]


def test_a_network_that_is_none_is_refused():
    with pytest.raises(InvalidTool, match="names a network that is none"):
        tool(networks=["10.0.0.0/99"])(made.fetch_all)


async def test_memory_is_limited():
    assert (await outcome(made.take_memory, mebibytes=1)).output == "1048576 bytes"
    result = await outcome(made.take_memory, mebibytes=500)
    assert result.error == "take_memory failed: MemoryError."


# Its end


async def test_at_its_timeout_it_is_killed_with_all_it_has_started(
    tmp_path, limits_only
):
    found = get_tool(made.hang)
    calls = [call("hang", folder=str(tmp_path))]
    events = []
    async for each in execute(calls, {"hang": replace(found, timeout=20)}, Context()):
        events.append(each)
    assert events[-1].state == "timed_out"
    assert have_ended(*pids(tmp_path))


async def test_cancelled_it_is_killed_at_once(tmp_path, limits_only):
    calls = [call("hang", folder=str(tmp_path))]
    running = execute(calls, {"hang": get_tool(made.hang)}, Context())
    async with aclosing(running):
        assert isinstance(await anext(running), CallProgress)
    assert have_ended(*pids(tmp_path))


async def test_grandchildren_are_killed_too(tmp_path, limits_only):
    assert (await outcome(made.leave_a_child, folder=str(tmp_path))).output == "done"
    assert have_ended(*pids(tmp_path))


async def test_no_more_than_so_many_run_at_once(monkeypatch):
    monkeypatch.setattr(isolated_call, "MAX_PROCESSES", 1)
    started = asyncio.Queue()
    start = isolated_call.IsolatedCall.start

    async def counted(self, *arguments):
        process = await start(self, *arguments)
        started.put_nowait(process)
        return process

    monkeypatch.setattr(isolated_call.IsolatedCall, "start", counted)
    calls = [call("fail", f"c{number}", how="x") for number in range(2)]
    found = await happenings(calls, made.fail)
    assert [each.state for each in found] == ["completed"] * 2
    first, second = started.get_nowait(), started.get_nowait()
    assert first.returncode is not None
    assert first.pid != second.pid


async def test_while_a_person_is_asked_others_may_run(monkeypatch):
    monkeypatch.setattr(isolated_call, "MAX_PROCESSES", 1)
    asked: set[str] = set()
    both = asyncio.Event()

    async def answer(context, message, schema):
        asked.add(context.call_id)
        if len(asked) == 2:
            both.set()
        await both.wait()
        return FormAnswer("accept")

    calls = [call("ask", f"c{number}") for number in range(2)]
    async with asyncio.timeout(60):
        found = await happenings(calls, made.ask, context=Context(ask=answer))
    outputs = [each.output for each in found if isinstance(each, CallOutcome)]
    assert outputs == ["accept {} {}"] * 2


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (
            "MAX_WAITING_OF_USER",
            "at most 1 forms of one user's isolated tools may be open",
        ),
        ("MAX_WAITING", "because too many forms of tools are open"),
    ],
)
async def test_only_so_many_processes_wait_for_a_form(limit, problem, monkeypatch):
    monkeypatch.setattr(waiting_forms, limit, 1)
    has_failed = asyncio.Event()

    async def answer(context, message, schema):
        await has_failed.wait()
        return FormAnswer("accept")

    tools = {"ask": get_tool(made.ask)}
    calls = [call("ask", f"c{number}") for number in range(2)]
    found = []
    async with asyncio.timeout(60):
        async for each in execute(calls, tools, Context(user_id=1, ask=answer)):
            found.append(each)
            has_failed.set()
    refused, answered = found
    assert (refused.state, answered.state) == ("failed", "completed")
    assert problem in refused.error
    again = await happenings([call("ask")], made.ask, context=Context(ask=answer))
    assert [each.state for each in again] == ["completed"]


async def test_a_process_does_not_wait_for_an_answer_for_ever(monkeypatch):
    monkeypatch.setattr(waiting_forms, "ANSWER_TIMEOUT", 0.6)
    is_withdrawn = asyncio.Event()

    async def answer(context, message, schema):
        try:
            await asyncio.Event().wait()
        finally:
            is_withdrawn.set()

    (failed,) = await happenings([call("ask")], made.ask, context=Context(ask=answer))
    assert failed.error == (
        "nobody filled in its form within 0.01 minutes; call it again when the user is"
        " there."
    )
    assert is_withdrawn.is_set()


PARENT = """
import asyncio, sys
import django
django.setup()
from tools.python import sandbox
sandbox.is_available = lambda: False
from tests.tools import isolated_tools as made
from tests.tools.calls import outcome
asyncio.run(outcome(made.hang, folder=sys.argv[1]))
"""


def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path):
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], cwd=BASE, env=environment
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pids").exists() and time.monotonic() < deadline:
            os.sched_yield()
        while len((tmp_path / "pids").read_text().split()) < 2:
            os.sched_yield()
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    found = pids(tmp_path)
    try:
        # Its child processes are killed with it.
        assert have_ended(*found)
    finally:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# The database


async def test_there_is_no_database_for_it():
    result = await outcome(made.count_users, add="ada")
    assert (result.state, result.error) == (
        "failed",
        "count_users failed: ImproperlyConfigured.",
    )


# What cannot be


def test_a_function_that_no_other_process_finds_is_refused():
    def inner() -> str:
        return ""

    with pytest.raises(InvalidTool, match="move it to the top of a module"):
        tool(isolate=True)(inner)


def test_memory_is_of_isolated_tools_and_above_nothing():
    with pytest.raises(InvalidTool, match="which needs isolate=True"):

        @tool(memory=5)
        def first() -> str:
            return ""

    with pytest.raises(InvalidTool, match="give MiB, 1 or more"):
        tool(isolate=True, memory=0)(made.count_users)
