"""Why a program of an MCP server does not start, in its own words, for staff."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.tools.mcp.test_pipes import SAY, SERVER
from tools.mcp.client import temporary_session
from tools.mcp.connection_check import check_connection
from tools.mcp.errors import ConnectionLost, McpConnectFailed
from tools.mcp.server_spec import Program, ServerSpec
from tools.mcp.startup_output import MAX_OUTPUT, StartupOutput
from tools.models import McpServer
from tools.registry import Context

SECRET = "planted-secret-0123456789"
FAILS = """
import os, sys
sys.stderr.write("x" * 1_000_000 + "\\n")
sys.exit(f"<b>No database at {os.environ['SHOP_URL']}</b>")
"""


def output_of(text: str, **program: Any) -> str:
    output = StartupOutput(Program(command="shop", **program))
    output.add(text.encode())
    return output.text


@pytest.mark.server
@pytest.mark.django_db(transaction=True)
def test_staff_see_what_a_program_wrote_that_ended_at_its_start(
    tmp_path: Path, settings: Any, admin_client: Client
):
    path = tmp_path / "server.py"
    path.write_text(FAILS)
    settings.MCP_STDIO_SERVERS = {
        "shop": {
            "command": sys.executable,
            "args": [str(path)],
            "env": {"SHOP_URL": SECRET},
        }
    }
    McpServer.objects.sync()
    row = McpServer.objects.get()
    assert check_connection(row)
    row.refresh_from_db()
    assert f"No database at {'*' * len(SECRET)}" in row.startup_output
    assert len(row.startup_output) <= MAX_OUTPUT
    assert SECRET not in row.startup_output + row.error
    page = reverse("admin:tools_mcpserver_health", args=[row.pk])
    text = admin_client.get(page).text
    assert "&lt;b&gt;No database at" in text
    path.write_text(SERVER.format(answer=SAY))
    assert not check_connection(row)
    row.refresh_from_db()
    assert row.startup_output == ""
    assert "No database" not in admin_client.get(page).text


@pytest.mark.server
async def test_what_a_program_writes_during_calls_is_discarded(tmp_path: Path):
    """And read, however much it is: it would block."""
    answer = f"""
def answer(number):
    sys.stderr.write("{SECRET}" * 100_000)
    sys.stderr.flush()
    os._exit(1)
"""
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(answer=answer))
    program = Program(command=sys.executable, arguments=(str(path),))
    async with temporary_session(ServerSpec(name="shop", program=program)) as session:
        with pytest.raises(ConnectionLost) as caught:
            await session.call("t", {}, Context())
    assert SECRET not in str(vars(caught.value))


@pytest.mark.server
async def test_models_see_none_of_it():
    arguments = ("-c", "import sys; sys.exit('No shop')")
    program = Program(command=sys.executable, arguments=arguments)
    async with temporary_session(ServerSpec(name="shop", program=program)) as session:
        with pytest.raises(McpConnectFailed) as caught:
            await session.tools()
    assert "No shop" not in str(caught.value)
    assert caught.value.startup_output == "No shop"


def test_nothing_is_kept_after_the_first_answer():
    output = StartupOutput(Program(command="shop"))
    output.add(b"Starting")
    assert output.text == "Starting"
    output.end()
    output.add(b"Alice asks")
    assert output.text == ""


@pytest.mark.parametrize(
    "program",
    [
        {"environment": {"ANY": SECRET}},
        {"arguments": ("--api-key", SECRET)},
        {"arguments": (f"--token={SECRET}",)},
        {"arguments": (f"postgres://shop:{SECRET}@host/db",)},
        {"arguments": (SECRET,)},
    ],
)
def test_values_that_may_be_keys_are_masked(program: dict[str, Any]):
    text = output_of(f"Cannot sign in with {SECRET}.", **program)
    assert text == f"Cannot sign in with {'*' * len(SECRET)}."


@pytest.mark.parametrize(
    "key", ["sk-proj-abcdefghijklmno", "ghp_abcdefghijklmnop", "Bearer abcdefgh"]
)
def test_known_kinds_of_keys_are_masked(key: str):
    assert output_of(f"header {key} refused") == f"header {'*' * len(key)} refused"


def test_ordinary_arguments_are_not_masked():
    text = "No module named mcp_server_time"
    arguments = ("-m", "mcp_server_time", "--local-timezone", "UTC")
    assert output_of(text, arguments=arguments) == text


@pytest.mark.parametrize("rest", range(len(SECRET) + 1))
def test_the_cut_leaves_no_part_of_a_secret(rest: int):
    text = f"{SECRET}{'x' * (MAX_OUTPUT - rest)}"
    for program in ({"environment": {"ANY": SECRET}}, {}):
        shown = output_of(f"Bearer {text}", **program)
        assert set(shown) <= {"*", "x"}
