"""Stdio transport for MCP servers: one message on each line, limited as over HTTP.

The SDK's own stdio transport accepts lines of any length, joins them again with every
chunk, and parses them on the event loop without a limit. Loads the SDK: import it late.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from tools.errors import AnswerTooLarge
from tools.mcp.http_transport import (
    MAX_MESSAGE,
    Health,
    check_message,
    too_large,
)
from tools.mcp.server_spec import Program
from tools.mcp.startup_output import StartupOutput

FLUSH_GRACE = 0.5  # seconds for pending messages, in and out
END_GRACE = 2.0  # seconds that the program has after stdin's end, and after SIGTERM
_POLL = 0.01  # seconds between checks whether the program has ended
_CHUNK_SIZE = 16 * 1024  # bytes of one read
_PIPE_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectReceiveStream[SessionMessage]


@asynccontextmanager
async def connect_stdio(program: Program, health: Health) -> AsyncGenerator[Any, None]:
    """Run the program; yield the SDK's two message streams. Raises OSError."""
    process = await _start(program)
    health.startup_output = output = StartupOutput(program)
    # No await before the tasks start: a cancellation would leave the program running.
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    write_done, read_done, errors_done = anyio.Event(), anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_read_messages, process, incoming, health, read_done)
        group.start_soon(_write_messages, process, outgoing, incoming, write_done)
        group.start_soon(_read_errors, process, output, errors_done)
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                read.close()
                write.close()
                with anyio.move_on_after(FLUSH_GRACE):
                    await write_done.wait()
                await _end(process, 0 if health.too_large else END_GRACE)
                with anyio.move_on_after(FLUSH_GRACE):
                    await read_done.wait()  # another program may hold the pipe
                    await errors_done.wait()
            group.cancel_scope.cancel()


async def _start(program: Program) -> Process:
    return await anyio.open_process(
        [program.command, *program.arguments],
        env=get_default_environment() | dict(program.environment),
        cwd=program.folder,
        start_new_session=True,  # its own process group, to kill all of it
    )


async def _read_errors(
    process: Process, output: StartupOutput, errors_done: anyio.Event
) -> None:
    """Read stderr to its end: a program would block on a full pipe."""
    assert process.stderr
    with suppress(anyio.EndOfStream, *_PIPE_CLOSED):
        while True:
            await anyio.lowlevel.checkpoint()
            output.add(await process.stderr.receive(_CHUNK_SIZE))
    errors_done.set()


async def _read_messages(
    process: Process, incoming: Incoming, health: Health, read_done: anyio.Event
) -> None:
    """Pass the program's messages on, until its output ends or one is too large."""
    try:
        async with incoming, aclosing(_lines(process)) as lines:
            async for line in lines:
                await check_message(line)
                await incoming.send(_parse_message(line))
    except AnswerTooLarge as exc:
        health.too_large = exc
    except _PIPE_CLOSED:
        pass  # the session or the program has ended
    # Keep reading: a program that blocks on a full pipe would not see stdin's end.
    with suppress(anyio.EndOfStream, *_PIPE_CLOSED):
        while True:
            await _read_chunk(process)
    read_done.set()


async def _lines(process: Process) -> AsyncGenerator[bytes, None]:
    """Yield the lines that are not blank. Raises AnswerTooLarge."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in _chunks(process):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if size + len(end) > MAX_MESSAGE:
                raise too_large()
            line = b"".join([*chunks, end])
            chunks, size = [], 0
            if line.strip():
                yield line
        chunks.append(rest)
        size += len(rest)
        if size > MAX_MESSAGE:
            raise too_large()


async def _chunks(process: Process) -> AsyncIterator[bytes]:
    with suppress(anyio.EndOfStream):
        while True:
            yield await _read_chunk(process)


async def _read_chunk(process: Process) -> bytes:
    assert process.stdout
    await anyio.lowlevel.checkpoint()  # lets other tasks run if data is always ready
    return await process.stdout.receive(_CHUNK_SIZE)


def _parse_message(line: bytes) -> SessionMessage | Exception:
    """The parsed message; for an invalid one the exception, which the SDK handles."""
    try:
        return SessionMessage(
            types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        )
    except ValueError as exc:
        return exc


async def _write_messages(
    process: Process, outgoing: Outgoing, incoming: Incoming, write_done: anyio.Event
) -> None:
    assert process.stdin
    try:
        async with outgoing:
            async for message in outgoing:
                text = message.message.model_dump_json(
                    by_alias=True, exclude_unset=True
                )
                await process.stdin.send(text.encode() + b"\n")
    except _PIPE_CLOSED:
        incoming.close()  # the program is gone: end all waits for answers
    finally:
        write_done.set()


async def _end(process: Process, grace: float) -> None:
    """End the program and its child processes, in the order that MCP requires. Those
    of a program that has ended, such as a launcher, may still run."""
    assert process.stdin
    with suppress(*_PIPE_CLOSED):
        await process.stdin.aclose()
    await _has_ended(process, grace)
    await _end_group(process.pid)
    await _has_ended(process, END_GRACE)


async def _end_group(group: int) -> None:
    """SIGTERM to all processes of the group, and SIGKILL to those that still run."""
    if not _signal_group(group, signal.SIGTERM):
        return
    with anyio.move_on_after(END_GRACE):
        while _signal_group(group, 0):  # noqa: ASYNC110  (no event exists)
            await anyio.sleep(_POLL)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    """Whether the group exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # as macOS says of a process that has ended
        return True
    return True


async def _has_ended(process: Process, within: float) -> bool:
    """Poll `returncode`, because `wait` also waits until the pipes are closed."""
    with anyio.move_on_after(within):
        while process.returncode is None:  # noqa: ASYNC110  (no event exists)
            await anyio.sleep(_POLL)
    return process.returncode is not None
