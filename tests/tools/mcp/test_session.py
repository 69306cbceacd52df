from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db.backends.signals import connection_created

from tests.tools.mcp.servers import (
    LOOPBACK,
    TIME,
    Asking,
    Forgetful,
    Lavish,
    Refusing,
    Running,
    Versioned,
    everything,
    running,
)
from tools.errors import AddressRefused, AnswerTooLarge, ToolError
from tools.mcp import session as sessions
from tools.mcp.client import build_tool, close_all, get_session, temporary_session
from tools.mcp.connection_check import check_connection
from tools.mcp.errors import (
    CallFailed,
    ConnectionLost,
    McpConnectFailed,
    RenewalFailed,
    RenewalRefused,
    SignInFailed,
    ToolNotApproved,
)
from tools.mcp.server_spec import Program, ServerSpec
from tools.mcp.session import Session
from tools.mcp.tool_definition import ToolDefinition
from tools.models import Tool as Tools
from tools.models.mcp_server import McpServer
from tools.registry import Context, FormAnswer, RuntimeTool


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await close_all()


@pytest.fixture
async def ours() -> AsyncIterator[Running]:
    async with running(Running()) as server:
        yield server
        await close_all()


async def in_thread(act: Any, *arguments: Any) -> Any:
    return await sync_to_async(act)(*arguments)


async def tools_of(server: ServerSpec) -> dict[str, RuntimeTool]:
    return {
        each.name: build_tool(server, each)
        for each in await get_session(server).tools()
    }


async def call(
    server: ServerSpec, name: str, context: Context | None = None, **arguments: Any
):
    tool = (await tools_of(server))[name]
    return await tool.call(context or Context(), arguments)


# Tools and results


async def test_tools_are_listed_as_tools_of_ours(ours: Running):
    tool = (await tools_of(ours.spec()))["add"]
    assert tool.name == "ours__add"
    assert tool.description == "Add two numbers."
    assert tool.parameters["required"] == ["a", "b"]
    assert tool.replay == "safe"


async def test_a_result_includes_its_structure_only_once(
    ours: Running,
):
    assert await call(ours.spec(), "add", a=1, b=2) == "3"
    [picture] = await call(ours.spec(), "draw")
    assert picture["type"] == "input_image"
    assert picture["image_url"].startswith("data:image/png;base64,iVBOR")


async def test_a_failure_has_the_servers_message(ours: Running):
    with pytest.raises(ToolError, match="Error executing tool fail"):
        await call(ours.spec(), "fail")


async def test_progress_is_reported(ours: Running):
    messages: list[str] = []
    assert "there" in await call(ours.spec(), "walk", Context(progress=messages.append))
    assert messages == ["1 of 2: left", "2 of 2"]


async def test_a_cancelled_call_is_cancelled_at_the_server(ours: Running):
    task = asyncio.create_task(call(ours.spec(), "wait"))
    await ours.seen.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(ours.seen.cancelled.wait(), 60)
    assert "3" in await call(ours.spec(), "add", a=1, b=2)


async def test_tools_that_staff_do_not_allow_are_neither_listed_nor_called(
    ours: Running,
):
    server = ours.spec(allowed_tools=frozenset({"add"}))
    assert set(await tools_of(server)) == {"add"}
    with pytest.raises(ToolNotApproved):
        await get_session(server).call("draw", {}, Context())


async def test_a_listing_is_cached_until_the_server_reports_a_change(
    ours: Running,
):
    server = ours.spec()
    session = get_session(server)
    first = await session.tools()
    assert await session.tools() is first
    await call(server, "learn")
    while "learned" not in await tools_of(server):
        await asyncio.sleep(0)


class Heard:
    """A notice that records its messages."""

    def __init__(self) -> None:
        self.listings: asyncio.Queue[set[str]] = asyncio.Queue()
        self.failures: list[ToolError] = []

    async def report_listing(
        self,
        found: Sequence[ToolDefinition],
        about: Any,
        seconds: float | None = None,
    ) -> None:
        assert seconds is not None
        assert about["name"] == "ours"
        await self.listings.put({definition.name for definition in found})

    async def report_failure(self, failure: ToolError) -> None:
        self.failures.append(failure)

    async def report_failed_call(self, tool: str, failure: ToolError) -> None:
        self.failures.append(failure)


async def test_a_change_by_the_server_is_noticed_before_the_next_call(ours: Running):
    heard = Heard()
    session = get_session(ours.spec(notice=heard))
    await session.tools()
    assert "learned" not in await heard.listings.get()
    await session.call("learn", {}, Context())
    async with asyncio.timeout(60):
        while "learned" not in await heard.listings.get():
            pass


async def test_a_server_that_reports_a_change_upon_each_listing_is_listed_ever_less():
    pauses: list[float] = []
    enough = asyncio.Event()

    async def pause(seconds: float) -> None:
        """Long enough for the server to say once more that its tools changed."""
        pauses.append(seconds)
        if len(pauses) == 4:
            enough.set()
            await asyncio.Event().wait()
        listing = await session.tools()
        await session.call("learn", {}, Context())
        while await session.tools() is listing:
            await asyncio.sleep(0)

    async with running(Running()) as ours:
        session = Session(ours.spec(notice=Heard()), pause=pause)
        await session.call("learn", {}, Context())
        await asyncio.wait_for(enough.wait(), 60)
        await session.close()
    assert pauses == [1, 2, 4, 8]


async def test_why_no_session_can_be_opened_is_noticed():
    heard = Heard()
    server = ServerSpec(name="shut", url="http://127.0.0.1:1/mcp", notice=heard)
    with pytest.raises(AddressRefused):
        await get_session(server).tools()
    assert [type(each) for each in heard.failures] == [AddressRefused]


@pytest.mark.django_db(transaction=True)
async def test_a_session_writes_what_it_finds_into_its_row(ours: Running):
    row = await McpServer.objects.acreate(
        name="ours", url=ours.spec().url, networks="127.0.0.0/8"
    )
    session = get_session(row.spec)
    await session.tools()
    await row.arefresh_from_db()
    assert "add" in {each["name"] for each in row.listing}
    assert row.about["name"] == "ours"


async def test_a_changed_tool_is_blocked(ours: Running):
    session = get_session(ours.spec())
    with pytest.raises(ToolNotApproved, match="waits for the staff's approval"):
        await session.call("add", {"a": 1, "b": 2}, Context(), digest="another")
    with pytest.raises(ToolNotApproved, match="no longer offers this tool"):
        await session.call("gone", {}, Context(), digest="any")


@pytest.mark.django_db(transaction=True)
async def test_a_change_noticed_by_another_process_blocks_the_tool_at_once():
    async with running(Versioned()) as server:
        row = await McpServer.objects.acreate(
            name="ours", url=server.spec().url, networks="127.0.0.0/8"
        )
        await in_thread(check_connection, row)
        await in_thread(row.approve, ["pay"], None)

        async def used() -> RuntimeTool:
            return (await in_thread(Tools.objects.available, None))["ours__pay"]

        tool = await used()
        assert await tool.call(Context(), {}) == "version 1"

        server.version = 2  # and it reports no change
        await in_thread(check_connection, row)  # as staff do, in any other process
        with pytest.raises(ToolNotApproved, match="waits for the staff's approval"):
            await tool.call(Context(), {})
        with pytest.raises(ToolNotApproved):
            await (await used()).call(Context(), {})
        assert server.calls == 1

        await in_thread(row.approve, ["pay"], None)
        with pytest.raises(ToolNotApproved):  # of a turn that began before the approval
            await tool.call(Context(), {})
        # This session listed version 1 a moment ago, and lists again.
        assert await (await used()).call(Context(), {}) == "version 2"

        await in_thread(Tools.objects.filter(name="ours__pay").delete)
        with pytest.raises(ToolNotApproved, match="no longer allow this tool"):
            await tool.call(Context(), {})
        assert server.calls == 2


@pytest.mark.django_db(transaction=True)
async def test_a_call_opens_no_connection_to_the_database():
    opened: list[Any] = []

    def note(connection: Any, **_: Any) -> None:
        opened.append(connection)

    async with running(Versioned()) as server:
        row = await McpServer.objects.acreate(
            name="ours", url=server.spec().url, networks="127.0.0.0/8"
        )
        await in_thread(check_connection, row)
        await in_thread(row.approve, ["pay"], None)
        tool = (await in_thread(Tools.objects.available, None))["ours__pay"]
        await tool.call(Context(), {})
        connection_created.connect(note)
        try:
            for _ in range(3):
                await tool.call(Context(), {})
        finally:
            connection_created.disconnect(note)
    assert server.calls == 4
    assert not opened


# Sessions


async def test_calls_side_by_side_share_one_session(ours: Running):
    server = ours.spec(name="one")
    calls = [
        get_session(server).call("add", {"a": n, "b": 0}, Context()) for n in range(9)
    ]
    results = await asyncio.gather(*calls)
    assert [text.partition("\n")[0] for text in results] == [str(n) for n in range(9)]
    assert get_session(server) is get_session(ours.spec(name="one"))


async def test_another_spec_of_the_same_name_gets_a_session_of_its_own(ours: Running):
    old = get_session(ours.spec())
    await old.tools()
    new = get_session(ours.spec(headers={"X-Tenant": "b"}))
    await new.tools()
    assert new is not old
    assert ours.seen.headers[-1]["x-tenant"] == "b"
    await close_all()
    assert not old.is_open


async def test_an_edit_of_a_server_does_not_end_the_calls_that_run(ours: Running):
    old = get_session(ours.spec(timeout=20))
    begun = asyncio.create_task(old.call("wait", {}, Context()))
    await ours.seen.started.wait()
    new = get_session(ours.spec())
    assert "3" in await new.call("add", {"a": 1, "b": 2}, Context())
    ours.seen.may_end.set()
    assert await begun == "waited"
    while old.is_open:
        await asyncio.sleep(0)
    assert new.is_open


async def test_turns_from_before_and_after_an_edit_do_not_replace_their_sessions(
    ours: Running,
):
    old, new = ours.spec(timeout=20), ours.spec()
    sessions = [get_session(old), get_session(new)]
    assert [get_session(old), get_session(new)] == sessions
    for session in sessions:
        await session.tools()
    assert [get_session(old), get_session(new)] == sessions
    assert all(session.is_open for session in sessions)


async def test_another_label_shares_the_session(ours: Running):
    session = get_session(ours.spec(label="Old"))
    assert get_session(ours.spec(label="New")) is session
    assert session.server.title == "New"


async def test_headers_secret_ones_too_are_sent_and_are_in_no_repr(ours: Running):
    class Sealed:
        def reveal(self) -> str:
            return '{"Authorization": "Bearer hush"}'

    server = ours.spec(headers={"X-Plain": "1"}, secret_headers=Sealed())
    await get_session(server).tools()
    assert ours.seen.headers[-1]["authorization"] == "Bearer hush"
    assert ours.seen.headers[-1]["x-plain"] == "1"
    assert "hush" not in repr(server) + repr(await tools_of(server))


async def test_a_session_that_the_server_forgot_is_opened_anew_for_the_same_call():
    """As after its restart: it did nothing for a session that it does not know."""
    async with running(Forgetful()) as server:
        spec = server.spec()
        assert await call(spec, "hello") == "hello"
        server.forget()
        assert await call(spec, "hello") == "hello"
        assert server.greetings == 2


async def test_a_call_that_has_begun_is_not_sent_again_when_the_session_is_lost():
    async with running(Forgetful()) as server:
        session = get_session(server.spec())
        begun = asyncio.create_task(session.call("wait", {}, Context()))
        await server.waiting.wait()
        server.forget()
        assert await session.call("hello", {}, Context()) == "hello"
        with pytest.raises(ConnectionLost, match="may still take effect"):
            await begun
        assert server.waits == 1


async def test_a_call_whose_server_dies_fails_and_the_next_one_connects_again():
    async with running(Running()) as ours:
        session = get_session(ours.spec())
        task = asyncio.create_task(session.call("wait", {}, Context()))
        await ours.seen.started.wait()
        await ours.stop()
        with pytest.raises((ConnectionLost, CallFailed), match="may still take effect"):
            await task
        await ours.start()
        assert "3" in await session.call("add", {"a": 1, "b": 2}, Context())


async def test_a_server_that_cannot_be_reached_is_left_in_peace_for_a_growing_while():
    now = [0.0]
    async with running(Running()) as ours:
        session = Session(ours.spec(), clock=lambda: now[0])
        await ours.stop()
        for pause in (1, 2, 4):
            with pytest.raises(ToolError, match="cannot be reached"):
                await session.tools()
            with pytest.raises(McpConnectFailed, match=f"again in {pause} seconds"):
                await session.tools()
            now[0] += pause
        await ours.start()
        assert await session.tools()
        await session.close()


async def test_an_idle_session_is_closed_and_opened_again(
    ours: Running, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sessions, "IDLE_TIMEOUT", 0)
    session = get_session(ours.spec())
    await session.tools()
    while session.is_open:
        await asyncio.sleep(0)
    assert await session.tools()


async def test_a_closed_session_opens_no_more(ours: Running):
    async with temporary_session(ours.spec()) as session:
        assert await session.tools()
        assert (await session.about())["name"] == "ours"
    assert not session.is_open
    with pytest.raises(McpConnectFailed, match="shutting down"):
        await session.tools()


async def test_closing_ends_the_calls_that_run(ours: Running):
    session = get_session(ours.spec())
    task = asyncio.create_task(session.call("wait", {}, Context()))
    await ours.seen.started.wait()
    await close_all()
    with pytest.raises(ConnectionLost):
        await task


async def test_a_caller_that_gives_up_leaves_the_connecting_to_others(ours: Running):
    session = get_session(ours.spec())
    first, second = (asyncio.create_task(session.tools()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second


# Refusals


async def test_a_private_address_is_refused_unless_staff_allow_its_network(
    ours: Running,
):
    with pytest.raises(AddressRefused):
        await get_session(ours.spec(networks=())).tools()
    assert not ours.seen.headers


async def test_a_program_that_cannot_be_started_is_reported():
    server = ServerSpec(name="none", program=Program(command="/no/such/program"))
    with pytest.raises(McpConnectFailed, match="could not be started"):
        await get_session(server).tools()


# Others' servers


@pytest.mark.server
async def test_a_program_of_others_is_spoken_to_over_its_pipes():
    result = await call(TIME, "get_current_time", timezone="Europe/Paris")
    assert '"timezone": "Europe/Paris"' in result
    with pytest.raises(ToolError, match="Nowhere"):
        await call(TIME, "get_current_time", timezone="Nowhere")


@pytest.mark.server
async def test_everything_that_the_reference_server_returns_is_read():
    with everything() as server:
        assert (await get_session(server).about())["protocol"] == "2025-11-25"
        assert await call(server, "echo", message="hi") == "Echo: hi"
        kinds = [part["type"] for part in await call(server, "get-tiny-image")]
        assert kinds == ["input_text", "input_image", "input_text"]
        assert '"temperature"' in await call(
            server, "get-structured-content", location="Chicago"
        )
        assert "[Resource: " in await call(server, "get-resource-links", count=2)
        messages: list[str] = []
        context = Context(progress=messages.append)
        operation = {"duration": 0.1, "steps": 2}
        await call(server, "trigger-long-running-operation", context, **operation)
        assert messages == ["1 of 2", "2 of 2"]


@pytest.mark.server
async def test_a_question_of_the_server_is_put_to_the_person_whose_call_it_is():
    user_ids: list[int | None] = []

    async def answer_form(
        context: Context, message: str, schema: Mapping[str, Any]
    ) -> FormAnswer:
        assert message.startswith("everything asks: ")
        assert "name" in schema["properties"]
        user_ids.append(context.user_id)
        return FormAnswer("accept", {"name": f"user {context.user_id}"})

    with everything() as server:
        first, second, nobody = await asyncio.gather(
            call(
                server,
                "trigger-elicitation-request",
                Context(user_id=1, ask=answer_form),
            ),
            call(
                server,
                "trigger-elicitation-request",
                Context(user_id=2, ask=answer_form),
            ),
            call(server, "trigger-elicitation-request", Context(user_id=3)),
        )
    assert sorted(user_ids) == [1, 2]
    assert "Name: user 1" in first
    assert "Name: user 2" in second
    assert "cancelled" in nobody


async def test_a_question_that_names_no_call_is_put_to_nobody_beside_another_call():
    """It may belong to the call that has no user, or to a user who cannot answer."""

    async def accept(context: Context, message: str, schema: Any) -> FormAnswer:
        return FormAnswer("accept")

    async with running(Asking()) as server:
        session = get_session(server.spec())
        mine = Context(ask=accept)
        assert await session.call("hello", {}, mine) == "accept"
        beside = asyncio.create_task(session.call("wait", {}, Context()))
        await server.waiting.wait()
        assert await session.call("hello", {}, mine) == "cancel"
        server.may_end.set()
        await beside
        await close_all()


async def test_a_server_that_refuses_the_credentials_is_reported():
    from tests.tools.servers import answer, serving

    async with serving(answer("401 Unauthorized")) as web:
        server = ServerSpec(name="shut", url=web.url("/mcp"), networks=LOOPBACK)
        with pytest.raises(SignInFailed, match="HTTP 401"):
            await get_session(server).tools()


@pytest.mark.parametrize("in_events", [False, True])
async def test_a_result_of_too_many_values_is_refused_and_not_parsed(in_events: bool):
    async with running(Lavish(in_events=in_events)) as server:
        with pytest.raises(AnswerTooLarge, match="it has more than 250,000 values"):
            await call(server.spec(), "hello")
        assert "hello" in await tools_of(server.spec())
        await close_all()


async def test_calls_beside_an_answer_that_is_too_large_are_lost_and_not_too_large():
    async with running(Lavish()) as server:
        session = get_session(server.spec())
        begun = asyncio.create_task(session.call("wait", {}, Context()))
        await server.waiting.wait()
        with pytest.raises(AnswerTooLarge):
            await session.call("hello", {}, Context())
        with pytest.raises(ConnectionLost, match="may still take effect"):
            await begun


@pytest.mark.parametrize("status", [429, 500, 403])
async def test_a_refused_call_does_not_end_the_calls_beside_it(status: int):
    async with running(Refusing(status=status)) as server:
        session = get_session(server.spec())
        begun = asyncio.create_task(session.call("wait", {}, Context()))
        await server.waiting.wait()
        with pytest.raises(CallFailed, match=f"HTTP {status}"):
            await session.call("hello", {}, Context())
        server.may_end.set()
        assert await begun == "waited"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (503, "busy"),
        (200, "<h1>Please log in to the proxy</h1>"),
        (200, "{}"),
        (200, '{"access_token": "", "token_type": "Bearer"}'),
        (302, ""),
    ],
)
async def test_a_token_that_cannot_be_renewed_for_now_fails_only_its_own_call(
    status: int, answer: str
):
    server = Refusing(status=401, token_status=status, token_answer=answer)
    async with running(server):
        oauth = server.oauth()
        before = await oauth.store.load()
        session = get_session(server.spec(oauth=oauth))
        await session.tools()  # the SDK checks results by the listing
        begun = asyncio.create_task(session.call("wait", {}, Context()))
        await server.waiting.wait()
        with pytest.raises(RenewalFailed, match=f"HTTP {status}. Try again later"):
            await session.call("hello", {}, Context())
        server.may_end.set()
        assert await begun == "waited"
        assert await oauth.store.load() == before


async def test_a_renewal_that_fails_at_connect_is_reported_once():
    heard = Heard()
    async with running(Refusing()) as server:
        oauth = server.oauth(expires_at=1.0)
        session = get_session(server.spec(oauth=oauth, notice=heard))
        with pytest.raises(RenewalFailed):
            await session.call("hello", {}, Context())
    assert [type(each) for each in heard.failures] == [RenewalFailed]


@pytest.mark.parametrize("expires_at", [None, 1.0])
@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("invalid_client", "correct the client's id and secret"),
        ("unauthorized_client", "allow the client refresh tokens"),
        ("invalid_scope", "correct the scopes"),
        ("unsupported_grant_type", "Sign out and in again"),
        ("invalid_request", "check the OAuth client"),
    ],
)
async def test_a_refusal_that_staff_must_mend_says_so_and_is_not_asked_for_again(
    error: str, advice: str, expires_at: float | None
):
    """At a call in an open session, or at its connect."""
    now, heard = [0.0], Heard()
    answer = json.dumps({"error": error})
    server = Refusing(status=401, token_status=400, token_answer=answer)
    async with running(server):
        oauth = server.oauth(expires_at=expires_at)
        spec = server.spec(oauth=oauth, notice=heard)
        session = Session(spec, clock=lambda: now[0])
        with pytest.raises(RenewalRefused, match=advice):
            await session.call("hello", {}, Context())
        while session.is_open:
            await asyncio.sleep(0)
        with pytest.raises(McpConnectFailed, match=f"{advice}.*again in 300 seconds"):
            await session.call("hello", {}, Context())
        assert server.renewals == 1
        now[0] += 300
        with pytest.raises(RenewalRefused):  # staff may have mended it
            await session.call("hello", {}, Context())
        await session.close()
    assert server.renewals == 2
    assert {type(each) for each in heard.failures} == {RenewalRefused}
    assert (await oauth.store.load())["tokens"]["refresh_token"] == "r"
