"""MCP session that a dedicated owner task opens, keeps open and closes.

The SDK's client must be closed by the task that opened it, and fails as a whole when
one of its connections fails. So an owner task opens it for the first call and closes it
on request, after IDLE_TIMEOUT without a call, or after a failure; calls run in their
callers' tasks. The next call opens a closed session again: at once if it had worked,
else after a pause that doubles with each failure.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from llm.wire.sanitize import sanitize_text
from tools.errors import FetchError, ToolError
from tools.mcp.elicitation import elicit
from tools.mcp.errors import (
    ConnectionLost,
    McpConnectFailed,
    McpError,
    RenewalRefused,
    SignInNeeded,
    ToolNotApproved,
    to_connection_lost,
)
from tools.mcp.results import result_of
from tools.mcp.server_spec import ServerSpec
from tools.mcp.tool_definition import ToolDefinition
from tools.runtime_tool import Context, FormAnswer

if TYPE_CHECKING:  # it loads the SDK
    from mcp import Client

    from tools.mcp.http_transport import Health

logger = logging.getLogger(__name__)

IDLE_TIMEOUT = 5 * 60.0  # seconds without a call after which a session is closed
REFUSED_PAUSE = 5 * 60.0  # seconds after a refusal that only staff can mend
LISTING_LIFETIME = (
    5 * 60.0
)  # seconds for which a listing is valid, unless the server changes it
REPORT_PAUSE = 60.0  # seconds in which the same failure of a tool is reported once
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between attempts, and listings
END_GRACE = 10.0  # seconds that a session has to close

Result = TypeVar("Result")

#: The context of the call that is being sent. The SDK handles a server's question in
#: the context of the call that it belongs to, if the transport knows that call.
_caller: contextvars.ContextVar[Context | None] = contextvars.ContextVar(
    "caller", default=None
)


@dataclass(eq=False)
class _OpenConnection:
    """A connected client and its state."""

    client: Client
    health: Health
    owner: asyncio.Task[None]
    close_requested: asyncio.Event = field(
        default_factory=asyncio.Event
    )  # set to close it
    failure: ToolError | None = None  # why it failed
    listing: tuple[ToolDefinition, ...] | None = None
    listed_at: float = 0.0


class Session:
    """A session with one server, for one event loop. The user must `close` it.

    All methods but `close` raise ToolError.
    """

    def __init__(
        self,
        server: ServerSpec,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.server = server
        self._clock, self._pause = clock, pause
        self._owner: asyncio.Task[None] | None = None
        self._connecting: asyncio.Future[_OpenConnection] | None = None
        self._callers: list[Context | None] = []  # None: not for a call of a tool
        self._idle: asyncio.TimerHandle | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._last_failure: ToolError | None = None  # why it pauses
        self._connect_failure: ToolError | None = None  # of the last attempt to connect
        self._changes = 0  # number of change notifications from the server
        self._changes_listed = 0  # value of `_changes` at the last listing
        self._tools_changed = asyncio.Event()  # set by a change notification
        self._is_closed = False
        self._is_retired = False  # it closes after the calls that run
        self._reported: dict[tuple[str, str], float] = {}  # when a failure was, by kind

    @property
    def is_open(self) -> bool:
        return self._owner is not None and not self._owner.done()

    @property
    def is_in_use(self) -> bool:
        return self.is_open or bool(self._callers)

    async def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that staff allow, as the server lists them."""
        return await self._run_call(self._listing)

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context, digest: str = ""
    ) -> Any:
        """Call the tool; return what a Python tool would return.

        Raises ToolNotApproved if `digest` is not that of the tool's current definition.
        """
        if not self.server.allows(tool):
            raise ToolNotApproved("the staff no longer allow this tool.")

        async def call_tool(opened: _OpenConnection) -> Mapping[str, Any]:
            if digest:
                await self._verify(opened, tool, digest)
            return await _call(opened.client, tool, arguments, context)

        try:
            return result_of(await self._run_call(call_tool, context))
        except (McpError, FetchError) as exc:
            await self._report_failed_call(tool, exc)
            raise

    async def read(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource, in their wire format."""

        async def read_resource(opened: _OpenConnection) -> list[dict[str, Any]]:
            result = await opened.client.read_resource(uri)
            dumped = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
            contents: list[dict[str, Any]] = dumped["contents"]
            return contents

        return await self._run_call(read_resource, Context())

    async def about(self) -> dict[str, str]:
        """The server's name and version, and the protocol's revision."""

        async def describe(opened: _OpenConnection) -> dict[str, str]:
            return _about(opened.client)

        return await self._run_call(describe)

    def retire(self) -> None:
        """Close the session as soon as no call runs. A later call opens it again."""
        self._is_retired = bool(self._callers)
        if not self._is_retired:
            self._request_close()

    async def close(self) -> None:
        """Close the session for good and end its calls."""
        self._is_closed = True
        if self._idle:
            self._idle.cancel()
        if self._owner:
            self._request_close()
            await _wait_for_end(self._owner)

    # Calls, which run in the tasks of their callers

    async def _report_failed_call(self, tool: str, failure: ToolError) -> None:
        """Report it to staff, unless the same was reported a moment ago."""
        notice, kind = self.server.notice, (tool, type(failure).__name__)
        is_of_connect = (
            isinstance(failure, McpConnectFailed) or failure is self._connect_failure
        )
        if notice is None or is_of_connect:
            return  # why no session was opened is reported already
        now = self._clock()
        last = self._reported.get(kind)
        if last is None or now >= last + REPORT_PAUSE:
            self._reported[kind] = now
            await notice.report_failed_call(tool, failure)

    async def _run_call(
        self,
        act: Callable[[_OpenConnection], Awaitable[Result]],
        context: Context | None = None,
    ) -> Result:
        from tools.mcp.http_transport import watch_call

        with self._mark_busy(context):
            with watch_call() as health:
                try:
                    return await self._attempt(act, await self._connect(), health)
                except ToolError:
                    if not health.is_gone:
                        raise
            # The server did not know the session, so it has not run the call.
            with watch_call() as health:
                return await self._attempt(act, await self._connect(), health)

    async def _attempt(
        self,
        act: Callable[[_OpenConnection], Awaitable[Result]],
        opened: _OpenConnection,
        health: Health,
    ) -> Result:
        """`health` is that of this call."""
        try:
            return await act(opened)
        except ToolError:
            raise
        except Exception as exc:
            failure = await self._handle_failure(exc, opened, health)
            logger.warning(
                "MCP server %s: %s", self.server.name, type(failure).__name__
            )
            raise failure from exc

    async def _handle_failure(
        self, exc: Exception, opened: _OpenConnection, health: Health
    ) -> ToolError:
        """The error of a failed call. Closes a broken session."""
        from tools.mcp.error_conversion import convert_call_error

        failure = convert_call_error(exc, health.status)
        if isinstance(health.sign_in_failure, SignInNeeded):
            opened.close_requested.set()
        if isinstance(health.sign_in_failure, RenewalRefused):
            self.retire()
            self._pause_after(health.sign_in_failure, REFUSED_PAUSE)
        if health.sign_in_failure:
            return health.sign_in_failure
        is_lost = isinstance(failure, ConnectionLost)
        is_alone = len(self._callers) == 1
        if is_lost or health.is_gone or (is_alone and health.is_doubtful):
            opened.close_requested.set()
            await _wait_for_end(opened.owner)
        if not is_lost:
            return failure
        # A program's answers have one stream, which does not show whose is too large.
        too_large = health.too_large or (is_alone and opened.health.too_large)
        return too_large or opened.failure or failure

    @contextmanager
    def _mark_busy(self, context: Context | None) -> Iterator[None]:
        """Keep the session from idling out during a call."""
        if self._idle:
            self._idle.cancel()
        self._callers.append(context)
        token = _caller.set(context or Context())
        try:
            yield
        finally:
            _caller.reset(token)
            self._callers.remove(context)
            if not self._callers and not self._is_closed:
                self._end_when_idle()

    def _end_when_idle(self) -> None:
        timeout = 0 if self._is_retired else IDLE_TIMEOUT
        self._is_retired = False
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(timeout, self._request_close)

    async def _listing(self, opened: _OpenConnection) -> tuple[ToolDefinition, ...]:
        from tools.mcp.connection import list_tools

        now, changes = self._clock(), self._changes
        is_current = (
            changes == self._changes_listed
            and now < opened.listed_at + LISTING_LIFETIME
        )
        if opened.listing is None or not is_current:
            async with asyncio.timeout(self.server.timeout):
                opened.listing = await list_tools(opened.client, self.server)
            opened.listed_at, self._changes_listed = now, changes
            if self.server.notice:
                await self.server.notice.report_listing(
                    opened.listing, _about(opened.client), self._clock() - now
                )
        return opened.listing

    def _on_tools_changed(self) -> None:
        self._changes += 1
        self._tools_changed.set()

    async def _relist_on_change(self) -> None:
        """List the tools again after each change, so that staff see it early.

        The pause afterwards grows while changes keep coming: some servers report one
        upon each listing.
        """
        pause = FIRST_PAUSE
        while self.server.notice:
            await self._tools_changed.wait()
            self._tools_changed.clear()
            with suppress(ToolError):  # it is logged, and the next call raises it
                await self.tools()
            await self._pause(pause)
            is_changed = self._tools_changed.is_set()
            pause = min(pause * 2, LONGEST_PAUSE) if is_changed else FIRST_PAUSE

    async def _verify(self, opened: _OpenConnection, tool: str, digest: str) -> None:
        """Raises ToolNotApproved unless the listed tool has this digest."""
        cached = opened.listing
        listing = await self._listing(opened)
        if listing is cached and digest not in {each.digest for each in listing}:
            # The listing may be older than the staff's approval.
            opened.listing = None
            listing = await self._listing(opened)
        self._check(listing, tool, digest)

    def _check(
        self, listing: tuple[ToolDefinition, ...], tool: str, digest: str
    ) -> None:
        live = next((each for each in listing if each.name == tool), None)
        if live is not None and live.digest == digest:
            return
        logger.warning(
            "MCP server %s: a tool is held back, because it is %s",
            self.server.name,
            "changed" if live else "gone",
        )
        if live is None:
            raise ToolNotApproved("the tool's server no longer offers this tool.")
        raise ToolNotApproved

    async def _answer_question(self, question: Mapping[str, Any]) -> FormAnswer:
        """Ask the user whose call the question belongs to; with several possible
        calls, nobody, even if only one of them has a user who can answer."""
        if (context := _caller.get()) is None:
            calls = [each for each in self._callers if each]
            context = calls[0] if len(calls) == 1 else None
        return await elicit(self.server, context, question)

    # The owner task

    async def _connect(self) -> _OpenConnection:
        while self._owner and self._is_ending():
            await _wait_for_end(self._owner)
        if self._is_closed:
            raise McpConnectFailed("this server is shutting down.")
        if not self.is_open:
            self._raise_if_pausing()
            loop = asyncio.get_running_loop()
            self._connecting = loop.create_future()
            # An empty context, so that the owner's tasks belong to no caller.
            self._owner = loop.create_task(
                self._run_owner(self._connecting), context=contextvars.Context()
            )
        assert self._connecting
        # Shielded, because other callers may wait for the same future.
        return await asyncio.shield(self._connecting)

    def _is_ending(self) -> bool:
        return (
            self.is_open
            and (opened := self._current_connection()) is not None
            and (opened.close_requested.is_set())
        )

    def _current_connection(self) -> _OpenConnection | None:
        future = self._connecting
        if future is None or not future.done() or future.cancelled():
            return None
        return None if future.exception() else future.result()

    async def _run_owner(self, ready: asyncio.Future[_OpenConnection]) -> None:
        from tools.mcp.http_transport import Health

        health = Health()
        try:
            await self._keep_open(ready, health)
        except Exception as exc:
            failure = self._record_failure(exc, ready, health)
            if failure and self.server.notice:
                await self.server.notice.report_failure(failure)
        finally:
            ready.cancel()  # no effect if it already has a result

    async def _keep_open(
        self, ready: asyncio.Future[_OpenConnection], health: Health
    ) -> None:
        """Connect, then wait until the session shall close."""
        from tools.mcp.connection import connect, watch_tools

        owner = asyncio.current_task()
        assert owner
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self.server.timeout):
                client = await stack.enter_async_context(
                    connect(
                        self.server,
                        health,
                        self._answer_question,
                        self._on_tools_changed,
                    )
                )
            opened = _OpenConnection(client, health, owner)
            for each in (
                watch_tools(client, self._on_tools_changed),
                self._relist_on_change(),
            ):
                stack.push_async_callback(_cancel, asyncio.create_task(each))
            self._failures, self._last_failure = 0, None
            ready.set_result(opened)
            await opened.close_requested.wait()

    def _record_failure(
        self,
        exc: Exception,
        ready: asyncio.Future[_OpenConnection],
        health: Health,
    ) -> ToolError | None:
        """Record the failure; return it if no session was opened, else None."""
        from tools.mcp.error_conversion import convert_connect_error

        failure = convert_connect_error(exc, self.server, health.status)
        if opened := self._current_connection():
            opened.failure = to_connection_lost(failure)
            return None
        failure = health.explain(health.sign_in_failure or failure)
        self._failures, self._connect_failure = self._failures + 1, failure
        doublings = min(self._failures - 1, 20)  # 2**1024 is no float
        pause = min(FIRST_PAUSE * 2**doublings, LONGEST_PAUSE)
        is_refused = isinstance(failure, RenewalRefused)
        self._pause_after(failure, REFUSED_PAUSE if is_refused else pause)
        logger.warning(
            "MCP server %s cannot be connected to: %s",
            self.server.name,
            type(failure).__name__,
        )
        if not ready.done():
            ready.set_exception(failure)
            ready.exception()  # marks it as retrieved, if the caller is gone
        return failure

    def _pause_after(self, failure: ToolError, seconds: float) -> None:
        """Open no session for a while."""
        self._last_failure, self._retry_at = failure, self._clock() + seconds

    def _raise_if_pausing(self) -> None:
        left = self._retry_at - self._clock()
        if self._last_failure and left > 0:
            raise McpConnectFailed(
                f"{str(self._last_failure).removesuffix('.')}; it is tried again in"
                f" {left:.0f} seconds at the earliest."
            )

    def _request_close(self) -> None:
        if opened := self._current_connection():
            opened.close_requested.set()
        elif self._owner:
            self._owner.cancel()


async def _call(
    client: Client, tool: str, arguments: dict[str, Any], context: Context
) -> Mapping[str, Any]:
    async def on_progress(
        progress: float, total: float | None, message: str | None
    ) -> None:
        context.progress(_progress(progress, total, message))

    result = await client.call_tool(tool, arguments, progress_callback=on_progress)
    return result.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _about(client: Client) -> dict[str, str]:
    info = client.server_info
    return {
        "protocol": client.protocol_version,
        "name": sanitize_text(info.name) if info else "",
        "version": sanitize_text(info.version) if info else "",
    }


def _progress(progress: float, total: float | None, message: str | None) -> str:
    steps = f"{progress:g} of {total:g}" if total else f"{progress:g}"
    return f"{steps}: {message}" if message else steps


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _wait_for_end(owner: asyncio.Task[None]) -> None:
    """Wait for an owner task to end, and cancel it after END_GRACE seconds."""
    if (await asyncio.wait([owner], timeout=END_GRACE))[1]:
        owner.cancel()
        await asyncio.wait([owner], timeout=END_GRACE)
