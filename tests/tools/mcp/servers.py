"""Real MCP servers: one of our own on the SDK, and others' that npm brings."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.types import ToolAnnotations
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.programs import need_program, unavailable
from tests.serving import BASE, Deadline, free_port
from tools.mcp.row_access import MemoryTokenStore
from tools.mcp.server_spec import AuthorizationCode, Program, ServerSpec

LOOPBACK = (ip_network("127.0.0.0/8"),)
TIME = ServerSpec(
    name="time",
    program=Program(command=sys.executable, arguments=("-m", "mcp_server_time")),
)
#: One pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)


class Name(BaseModel):
    name: str = "nobody"


class UnsignalledServer(uvicorn.Server):
    """Leaves the signals of the test run alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Seen:
    """What became of calls, on the server's side."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    headers: list[dict[str, str]] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)


def our_server(seen: Seen) -> MCPServer:
    server = MCPServer("ours")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def fail() -> str:
        raise ValueError("the moon is full")

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    def draw() -> Image:
        return Image(data=PNG, format="png")

    @server.tool()
    async def walk(context: Context) -> str:
        await context.report_progress(1, 2, "left")
        await context.report_progress(2, 2)
        return "there"

    @server.tool()
    async def ask(context: Context) -> str:
        answer = await context.elicit("Who are you?", Name)
        return f"{answer.action}: {getattr(answer, 'data', None)}"

    @server.tool()
    async def wait() -> str:
        seen.started.set()
        try:
            await seen.may_end.wait()
        except asyncio.CancelledError:
            seen.cancelled.set()
            raise
        return "waited"

    @server.tool()
    async def learn(context: Context) -> str:
        server.add_tool(lambda: "new", name="learned", description="A new one.")
        await context.notify_tools_changed()
        return "learned"

    return server


@dataclass
class OnLoopback:
    """An application on loopback, which can be ended and started again in its place."""

    port: int = field(default_factory=free_port)
    _task: asyncio.Task[None] | None = None
    _server: uvicorn.Server | None = None

    def app(self) -> Any:
        raise NotImplementedError

    def spec(self, **changes: Any) -> ServerSpec:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return ServerSpec(
            **{"name": "ours", "url": url, "networks": LOOPBACK, **changes}
        )

    async def start(self) -> None:
        config = uvicorn.Config(
            self.app(),
            port=self.port,
            log_config=None,
            timeout_graceful_shutdown=0,
            ws="none",
        )
        self._server = UnsignalledServer(config)
        self._task = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0)

    async def stop(self) -> None:
        if self._server and self._task:
            self._server.should_exit = True
            await self._task
            self._server = self._task = None


@dataclass
class Running(OnLoopback):
    seen: Seen = field(default_factory=Seen)

    def app(self) -> Any:
        app = our_server(self.seen).streamable_http_app()

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                head = {k.decode(): v.decode() for k, v in scope["headers"]}
                self.seen.headers.append(head)
            await app(scope, receive, send)

        return noting


@dataclass
class Forgetful(OnLoopback):
    """A server of an older revision that can forget its sessions."""

    greetings: int = 0
    known: set[str] = field(default_factory=set)
    waits: int = 0  # calls of the tool "wait"
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> Any:
        return Starlette(
            routes=[Route("/mcp", self.answer, methods=["POST", "DELETE", "GET"])]
        )

    async def answer(self, request: Request) -> Response:
        if request.method == "GET":
            return self.open_stream()
        message = await request.json() if request.method == "POST" else {}
        match message.get("method"):
            case "initialize":
                return self._greet(message)
            case _ if request.headers.get("mcp-session-id") not in self.known:
                return Response("unknown session", 404)
            case "tools/list":
                schema = {"type": "object"}
                tools = [{"name": n, "inputSchema": schema} for n in ("hello", "wait")]
                return _json_rpc_reply(message, {"tools": tools})
            case "tools/call" if _is_wait(message):
                self.waits += 1
                self.waiting.set()
                await self.may_end.wait()
                return _json_rpc_reply(
                    message, {"content": [{"type": "text", "text": "waited"}]}
                )
            case "tools/call":
                return await self.greet_caller(message)
        return Response(status_code=202)

    def open_stream(self) -> Response:
        return Response(status_code=405)

    async def greet_caller(self, message: dict[str, Any]) -> Response:
        return _json_rpc_reply(
            message, {"content": [{"type": "text", "text": "hello"}]}
        )

    def _greet(self, message: dict[str, Any]) -> Response:
        self.greetings += 1
        self.known.add(session := f"session{self.greetings}")
        greeting = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "forgetful", "version": "1"},
        }
        return _json_rpc_reply(message, greeting, {"Mcp-Session-Id": session})

    def forget(self) -> None:
        self.known.clear()


@dataclass
class Versioned(Forgetful):
    """A server that changes what its tool does, without a word."""

    version: int = 1
    calls: int = 0

    async def answer(self, request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        match message.get("method"):
            case "tools/list":
                tool = {
                    "name": "pay",
                    "description": f"Version {self.version}.",
                    "inputSchema": {"type": "object"},
                }
                return _json_rpc_reply(message, {"tools": [tool]})
            case "tools/call":
                self.calls += 1
                text = f"version {self.version}"
                return _json_rpc_reply(
                    message, {"content": [{"type": "text", "text": text}]}
                )
        return await super().answer(request)


@dataclass
class Lavish(Forgetful):
    """A server whose tool returns more values than are parsed."""

    in_events: bool = False

    async def greet_caller(self, message: dict[str, Any]) -> Response:
        values = [[]] * 300_000
        answer = _json_rpc_reply(
            message, {"content": [], "structuredContent": {"a": values}}
        )
        if not self.in_events:
            return answer
        body = b"event: message\ndata: " + bytes(answer.body) + b"\n\n"
        return Response(body, media_type="text/event-stream")


@dataclass
class Refusing(Forgetful):
    """A server that refuses calls, and says so in HTTP only. Its authorization server
    is out of order, or renews nothing."""

    status: int = 429
    token_status: int = 503
    token_answer: str = "busy"
    renewals: int = 0  # that were asked for

    def app(self) -> Any:
        app = super().app()
        app.add_route("/token", self._refuse_token, ["POST"])
        return app

    def oauth(self, **tokens: Any) -> AuthorizationCode:
        """With a sign-in at it, by a client that staff entered."""
        origin = f"http://127.0.0.1:{self.port}"
        known = {"access_token": "a", "refresh_token": "r", "token_type": "Bearer"}
        metadata = {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
        }
        state = {"tokens": known, "metadata": metadata, **tokens}
        return AuthorizationCode(
            redirect_uri="https://us/back",
            store=MemoryTokenStore(state),
            client_id="c",
            by_user=True,
        )

    def _refuse_token(self, _request: Request) -> Response:
        self.renewals += 1
        return Response(self.token_answer, self.token_status)

    async def greet_caller(self, message: dict[str, Any]) -> Response:
        return Response("no", self.status)


@dataclass
class Asking(Forgetful):
    """A server that asks on the session's own stream, which names no call."""

    questions: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    actions: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def answer(self, request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if "result" in message:
            await self.actions.put(message["result"]["action"])
        return await super().answer(request)

    def open_stream(self) -> Response:
        return StreamingResponse(self._ask(), media_type="text/event-stream")

    async def _ask(self) -> AsyncIterator[str]:
        while True:
            question = json.dumps(await self.questions.get())
            yield f"event: message\ndata: {question}\n\n"

    async def greet_caller(self, message: dict[str, Any]) -> Response:
        schema = {"type": "object", "properties": {}}
        params = {"message": "Sure?", "requestedSchema": schema}
        question = {"id": 7, "method": "elicitation/create", "params": params}
        await self.questions.put({"jsonrpc": "2.0", **question})
        text = await self.actions.get()
        return _json_rpc_reply(message, {"content": [{"type": "text", "text": text}]})


def _is_wait(message: dict[str, Any]) -> bool:
    return bool(message["params"]["name"] == "wait")


def _json_rpc_reply(
    message: dict[str, Any],
    result: dict[str, Any],
    headers: dict[str, str] | None = None,
) -> Response:
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return JSONResponse(answer, headers=headers)


Kind = TypeVar("Kind", bound=OnLoopback)


@asynccontextmanager
async def running(server: Kind) -> AsyncIterator[Kind]:
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


# Others' servers, and the tool that tests clients

PACKAGES = {
    "bun": "1.4.5",
    "oidc-provider": "8.8.1",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/server-everything": "2026.8.31",
}


def installed(*names: str) -> Path:
    """The folder of node_modules with these packages, in `.tools/`."""
    npm = need_program("npm")
    with _locked_folder() as folder:
        if not all(_is_there(folder, name) for name in names):
            # All at once: npm would move the packages that others use meanwhile.
            _install(npm, folder, [n for n in PACKAGES if not _is_there(folder, n)])
    return folder / "node_modules"


@contextmanager
def _locked_folder() -> Iterator[Path]:
    """`.tools/mcp`, in which no other process of the tests installs meanwhile."""
    folder = BASE / ".tools" / "mcp"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _install(npm: str, folder: Path, missing: list[str]) -> None:
    if missing:
        wanted = [f"{name}@{PACKAGES[name]}" for name in missing]
        done = subprocess.run(
            [npm, "install", "--prefix", folder, "--ignore-scripts", *wanted],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            unavailable(f"npm cannot install {', '.join(missing)}")


def javascript() -> str:
    """Node 22 or later, or bun."""
    if (node := shutil.which("node")) and _major(node) >= 22:
        return node
    bun = installed("bun") / "bun"
    program = bun / "bin" / "bun.exe"
    installs = [need_program("node"), "install.js"]
    with _locked_folder():
        # Its installer replaces the program, which another process of the tests may be
        # about to start: so it runs once.
        if not _answers(program):
            subprocess.run(installs, cwd=bun, check=False, capture_output=True)
        if not _answers(program):
            unavailable("node is older than 22, and bun cannot be installed")
    return str(program)


def _answers(program: Path) -> bool:
    """The package holds a file of this name that only says what to do."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


@contextmanager
def everything() -> Iterator[ServerSpec]:
    """`@modelcontextprotocol/server-everything` over streamable HTTP."""
    package = installed("@modelcontextprotocol/server-everything")
    program = package / "@modelcontextprotocol" / "server-everything/dist/index.js"
    port = free_port()
    with subprocess.Popen(
        [need_program("node"), str(program), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        with Deadline(process):
            _wait_for(process, port)
        yield ServerSpec(
            name="everything", url=f"http://127.0.0.1:{port}/mcp", networks=LOOPBACK
        )
        process.kill()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    """Until it answers; the deadline kills it if it never does."""
    while process.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
        except httpx.TransportError:
            continue
        return
    raise AssertionError("the server did not start")


def _is_there(folder: Path, name: str) -> bool:
    package = folder / "node_modules" / name / "package.json"
    return package.exists() and f'"version": "{PACKAGES[name]}"' in package.read_text()


def _major(node: str) -> int:
    completed = subprocess.run(
        [node, "--version"], capture_output=True, text=True, check=True
    )
    return int(completed.stdout.removeprefix("v").partition(".")[0])
