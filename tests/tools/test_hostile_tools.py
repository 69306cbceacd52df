"""What isolated tools cannot do that mean harm."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.admin import site

from project.startup import isolated_tools
from tools.admin.tool import ToolAdmin
from tools.builtin import calculator
from tools.execute import execute
from tools.models import Tool
from tools.python import isolated_call, sandbox
from tools.python.limits import MEMORY, OPEN_FILES, PROCESSES
from tools.registry import Context, get_tool

from . import hostile_tools as hostile
from .calls import call, outcome

pytestmark = pytest.mark.server  # each call starts a process

needs_sandbox = pytest.mark.skipif(
    not sandbox.is_available(), reason="this system has no user namespaces"
)
MARK = "key-of-this-test-0123456789"


@pytest.fixture(params=["sandbox", "limits"])
def isolation(request, monkeypatch):
    if request.param == "limits":
        monkeypatch.setattr(sandbox, "is_available", lambda: False)
    elif not sandbox.is_available():
        pytest.skip("this system has no user namespaces")
    return request.param


def have_ended(mark: str) -> bool:
    """Whether no process has this argument any more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not any(mark in line for line in command_lines()):
            return True
        os.sched_yield()
    return False


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_text(errors="replace")
        except OSError:
            continue


async def test_it_sees_no_setting_of_the_server(isolation, monkeypatch):
    for name in ("SECRET_KEY", "DATABASE_URL", "OPENAI_API_KEY", "FIELD_KEYS"):
        monkeypatch.setenv(name, MARK)
    seen = await outcome(hostile.look_around)
    assert MARK not in seen.output
    found = json.loads(seen.output)
    assert set(found["own"]) <= {
        *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH"),
        *("HOME", "TMPDIR", "PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_"),
    }
    assert found["files"] == []
    if isolation == "sandbox":
        assert found["readable"] == ["1"]  # itself
        assert found["sockets"] == []


async def test_its_folder_is_removed_with_all_in_it(isolation):
    seen = await outcome(hostile.look_around)
    folder = json.loads(seen.output)["folder"]
    assert not await asyncio.to_thread(os.path.lexists, folder)
    path = f"parley-{uuid.uuid4().hex}"
    assert (await outcome(hostile.write_file, path=path, mebibytes=1)).output == (
        "written"
    )
    assert path not in os.listdir("/tmp")


async def test_without_the_sandbox_it_fails_where_staff_demand_it(
    monkeypatch, settings
):
    settings.ISOLATED_REQUIRE_SANDBOX = True
    monkeypatch.setattr(sandbox, "is_available", lambda: False)
    assert (await outcome(hostile.open_files, count=1)).error == (
        "ISOLATED_REQUIRE_SANDBOX is on and the sandbox does not start; ask the staff."
    )


@needs_sandbox
async def test_the_data_folder_is_hidden_and_the_code_read_only(settings, tmp_path):
    base = Path(__file__).parent
    data = base / f"data-{uuid.uuid4().hex}"
    data.mkdir()
    try:
        (data / "db.sqlite3").write_text(MARK)
        dotenv = data.with_suffix(".env")
        dotenv.write_text(MARK)
        settings.ISOLATED_HIDDEN_PATHS = [data, dotenv]
        paths = [str(data / "db.sqlite3"), str(dotenv), f"{data}/../{dotenv.name}"]
        (tmp_path / "other").write_text(MARK)
        paths.append(str(tmp_path / "other"))
        seen = await outcome(hostile.read_files, paths=paths)
        assert MARK not in seen.output
        undone = await outcome(hostile.undo_the_sandbox, path=str(data))
        assert json.loads(undone.output) == ["refused"] * 4
    finally:
        (data / "db.sqlite3").unlink()
        data.rmdir()
        dotenv.unlink()
    path = str(Path(__file__).parent / "written-by-a-tool")
    written = await outcome(hostile.write_file, path=path, mebibytes=1)
    assert written.output == "OSError"
    assert not await asyncio.to_thread(os.path.lexists, path)


@needs_sandbox
async def test_it_has_no_network():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        seen = await outcome(hostile.connect, port=port)
    assert seen.output != "connected"


@needs_sandbox
async def test_it_can_kill_nobody_else():
    seen = await outcome(hostile.kill_the_parent)
    assert seen.output != "no sandbox"


@needs_sandbox
async def test_what_it_leaves_behind_ends_with_it():
    """Also processes that have left its group."""
    mark = uuid.uuid4().hex
    assert (await outcome(hostile.multiply, count=3, mark=mark)).output == "3"
    assert have_ended(mark)


@needs_sandbox
async def test_its_processes_are_few_and_end_with_it():
    mark = uuid.uuid4().hex
    count = 2 * PROCESSES
    seen = await outcome(hostile.multiply, count=count, mark=mark)
    assert have_ended(mark)
    if os.getuid():  # Linux counts no processes of root
        assert int(seen.output) < PROCESSES


async def test_memory_files_and_their_size_are_bounded(isolation, tmp_path):
    seen = await outcome(hostile.swallow, mebibytes=2 * MEMORY)
    assert seen.error == "swallow failed: MemoryError."
    assert int((await outcome(hostile.open_files, count=2000)).output) < OPEN_FILES
    written = await outcome(hostile.write_file, path="large", mebibytes=65)
    assert written.output == "OSError" or "SIGXFSZ" in written.error


async def test_endless_prints_end_the_call(isolation, monkeypatch, capfd):
    monkeypatch.setattr(isolated_call, "MAX_PRINTED", 2**20)
    seen = await outcome(hostile.print_forever)
    assert (seen.state, seen.error) == (
        "failed",
        "it printed more than 1,048,576 bytes.",
    )
    assert len(capfd.readouterr().err) < 2 * isolated_call.MAX_FORWARDED


@pytest.mark.parametrize("function", [hostile.return_many, hostile.report_many])
async def test_a_frame_of_many_values_is_not_parsed(isolation, function):
    seen = await outcome(function, count=3_000_000)
    assert (seen.state, seen.error) == (
        "failed",
        "its result has too many values: it has more than 250,000 values.",
    )


async def test_progress_is_text(isolation):
    seen = await outcome(hostile.report_many, count=3)
    assert seen.error == "its process sent progress that is no text."


async def test_an_invented_traceback_is_cut_for_the_log(isolation, caplog):
    seen = await outcome(hostile.invent_a_traceback, length=1_000_000)
    assert seen.error == "invent_a_traceback failed: KeyError."
    (record,) = [each for each in caplog.records if "xxxx" in each.getMessage()]
    assert len(record.getMessage()) < isolated_call.MAX_WHERE + 200


async def test_what_it_prints_cannot_pass_for_lines_of_the_log(isolation, capfd):
    assert (await outcome(hostile.forge_the_log)).output == "done"
    assert capfd.readouterr().err.splitlines() == [
        'forge_the_log: {"level": "ERROR", "message": "forged"}',
        "forge_the_log: half",
        'forge_the_log: {"level": ',
    ]


async def test_a_busy_loop_ends_at_the_timeout(isolation):
    found = replace(get_tool(hostile.spin), timeout=3)
    calls = [call("spin")]
    events = [each async for each in execute(calls, {"spin": found}, Context())]
    assert events[-1].state == "timed_out"


async def test_nonsense_in_the_pipe_is_an_error(isolation):
    seen = await outcome(hostile.send_nonsense)
    assert (seen.state, seen.error) == (
        "failed",
        "its process sent what is no result.",
    )


@pytest.mark.parametrize("is_sandboxed", [True, False])
def test_the_log_and_staff_read_which_isolation_is_in_force(
    is_sandboxed, monkeypatch, caplog
):
    tools = {"spin": get_tool(hostile.spin), "plain": get_tool(calculator.calculator)}
    monkeypatch.setattr(isolated_tools, "python_tools", lambda: tools)
    monkeypatch.setattr(sandbox, "is_available", lambda: is_sandboxed)
    with caplog.at_level(logging.INFO):
        isolated_tools.log_isolation()
    (record,) = caplog.records
    assert record.levelname == ("INFO" if is_sandboxed else "WARNING")
    text = record.getMessage()
    assert text == f"isolated tools (spin): {sandbox.describe()}"
    assert ("within reach" in text) is not is_sandboxed
    admin = ToolAdmin(Tool, site)
    rows = {
        name: SimpleNamespace(build_tool=lambda name=name: tools[name])
        for name in tools
    }
    assert admin.isolation(rows["spin"]) == sandbox.describe()
    assert admin.isolation(rows["plain"]).startswith("none")
