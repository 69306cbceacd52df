"""Context sources: texts added to a turn's prompt, read before the model is called.

A source is a row (`conversations.models.preset.ContextSource`): a text, an HTTP
request, an MCP resource, or a function that `@context_source` marks in the `context.py`
of an installed app. All sources of a turn are read concurrently, each with its own
timeout. A source that fails is left out and its reason is reported; it never fails the
turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib import import_module
from inspect import isfunction
from types import ModuleType
from typing import Any, TypeVar

from django.apps import apps

from llm.db.encrypted_field import Secret, SecretUnavailable
from llm.db.revealable_secret import reveal_headers
from llm.http.addresses import Network
from tools.errors import FetchError, InvalidTool, ToolError
from tools.execute import format_trace
from tools.execution.output import render_output
from tools.http.exchange import Limits
from tools.http.request_template import RequestTemplate, build_request
from tools.http.result import ReadOptions, result_of, texts_to_mask
from tools.json_schema.function_schema import signature_of
from tools.mcp.errors import McpError
from tools.mcp.server_spec import ServerSpec
from tools.python.thread_pool import ToolThreadPool
from tools.registry import has_submodule

logger = logging.getLogger(__name__)

MAX_THREADS = 16  # for synchronous functions
MAX_CACHED_TEXTS = 1000  # texts, in the memory of this process
MODULE = "context"  # the module of an app that is searched for functions

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__context_source__"
_threads = ToolThreadPool(MAX_THREADS)
abandoned_reads: set[asyncio.Future[Any]] = set()  # timed-out reads that have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The user and conversation that a source is read for. A function receives it by
    annotating a parameter with this class."""

    user_id: int | None = None
    username: str = ""
    conversation_id: str = ""


#: Names that a URL may contain in braces.
PLACEHOLDERS = tuple(field.name for field in fields(Reader))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSource:
    """A context source, loaded from its row and ready to be read."""

    name: str
    title: str
    #: Returns text or anything JSON; raises anything to fail.
    read: Callable[[Reader], Awaitable[Any]]
    max_size: int  # bytes of its text
    timeout: float  # seconds
    cache_seconds: float = 0.0
    version: str = ""  # changes with each change of the row
    varies: Collection[str] = PLACEHOLDERS  # fields of Reader that its text depends on
    on_demand: bool = False  # not in the prompt: the model reads it with a tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The result of reading one source. `reason` is a sentence, "" on success."""

    source: LoadedSource
    text: str = ""
    reason: str = ""
    advice: str = ""  # for staff
    seconds: float = 0.0


async def render(sources: Sequence[LoadedSource], reader: Reader) -> list[Rendering]:
    """Read the sources concurrently; the results are in the order of `sources`. Raises
    nothing but CancelledError."""
    return await asyncio.gather(*(_render_source(source, reader) for source in sources))


async def _render_source(source: LoadedSource, reader: Reader) -> Rendering:
    started = time.monotonic()
    key = _key(source, reader)
    if (cached := text_cache.get(key)) is not None:
        return Rendering(source=source, text=cached)
    done = partial(Rendering, source=source)
    try:
        text = _text(await _read_in_time(source, reader), source.max_size)
    except ToolError as exc:
        advice = exc.advice if isinstance(exc, FetchError | McpError) else ""
        done = partial(done, reason=str(exc), advice=advice)
        logger.warning("context source %s: %s", source.name, type(exc).__name__)
    except (Exception, SystemExit, BaseExceptionGroup) as exc:
        # Without the message: it may contain secrets.
        done = partial(done, reason=f"it failed: {type(exc).__name__}.")
        logger.error("context source %s failed: %s", source.name, format_trace(exc))
    else:
        done = partial(done, text=text)
        text_cache.put(key, text, source.cache_seconds)
    return done(seconds=time.monotonic() - started)


async def _read_in_time(source: LoadedSource, reader: Reader) -> Any:
    """A read that ignores its cancellation is abandoned, not waited for."""
    task = asyncio.ensure_future(source.read(reader))
    try:
        done, _ = await asyncio.wait([task], timeout=source.timeout)
    finally:
        if not task.done():
            _abandon(task)
    if not done:
        raise ToolError(f"it took longer than {source.timeout:g} seconds.")
    if task.cancelled():  # the source cancelled itself
        raise ToolError("it was cancelled.")
    return task.result()


def _abandon(task: asyncio.Future[Any]) -> None:
    abandoned_reads.add(task)
    task.add_done_callback(_discard_abandoned)
    task.cancel()


def _discard_abandoned(task: asyncio.Future[Any]) -> None:
    abandoned_reads.discard(task)
    if not task.cancelled():
        task.exception()  # otherwise asyncio logs it as never retrieved


def _text(value: Any, max_size: int) -> str:
    """The value as text. Raises ToolError where it is not text or too large."""
    result = render_output(value)
    if not isinstance(result.output, str):
        raise ToolError("its result is not text.")
    text = result.output if result.full_text is None else result.full_text
    if len(text.encode()) > max_size:
        raise ToolError(f"it is larger than {max_size:,} bytes.")
    return text


# Cache of texts


class TextCache:
    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._texts: OrderedDict[Hashable, tuple[float, str]] = OrderedDict()

    def get(self, key: Hashable) -> str | None:
        until, text = self._texts.get(key, (0.0, ""))
        return text if until > self._clock() else None

    def put(self, key: Hashable, text: str, seconds: float) -> None:
        if seconds <= 0:
            return
        self._texts[key] = (self._clock() + seconds, text)
        self._texts.move_to_end(key)
        while len(self._texts) > self._limit:
            self._texts.popitem(last=False)

    def clear(self) -> None:
        self._texts.clear()


text_cache = TextCache(MAX_CACHED_TEXTS)


def _key(source: LoadedSource, reader: Reader) -> Hashable:
    values = tuple(getattr(reader, name) for name in source.varies)
    return (source.name, source.version, values)


# Kinds


@dataclass(frozen=True, slots=True)
class TextRead:
    text: str

    async def __call__(self, reader: Reader) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRead:
    """Fetches one URL through the guarded client."""

    definition: RequestTemplate
    reading: ReadOptions
    limits: Limits
    networks: Collection[Network] = ()
    secret_headers: Secret | None = None  # JSON

    async def __call__(self, reader: Reader) -> Any:
        from tools.http.guarded_client import fetch  # loads the HTTP libraries

        secret_headers = _reveal_headers(self.secret_headers)
        named = set(self.definition.placeholders)
        request = build_request(
            self.definition,
            {name: getattr(reader, name) for name in PLACEHOLDERS if name in named},
            secret_headers=secret_headers,
        )
        fetched = await fetch(request, allow=self.networks, limits=self.limits)
        if fetched.status >= 300:  # the body may contain internal details
            raise ToolError(f"the web server answered {fetched.status}.")
        return result_of(fetched, self.reading, texts_to_mask(secret_headers))


def _reveal_headers(secret: Secret | None) -> dict[str, str]:
    try:
        return reveal_headers(secret)
    except SecretUnavailable as exc:
        raise ToolError(
            "its secret headers cannot be decrypted; ask the staff to enter them again."
        ) from exc


@dataclass(frozen=True, slots=True)
class FunctionRead:
    path: str

    async def __call__(self, reader: Reader) -> Any:
        if (function := source_functions().get(self.path)) is None:
            raise ToolError("its code no longer exists.")
        return await function(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRead:
    """Reads a resource of an MCP server."""

    server: ServerSpec | None  # None where it was deleted or disabled
    uri: str
    shared: bool = True  # use the session shared by turns, or a new one

    async def __call__(self, reader: Reader) -> str:
        from tools.mcp.client import get_session, temporary_session

        if self.server is None:
            raise ToolError("its MCP server was deleted or is switched off.")
        if self.shared:
            return _texts(await get_session(self.server).read(self.uri))
        async with temporary_session(self.server) as session:
            return _texts(await session.read(self.uri))


def _texts(contents: Sequence[Mapping[str, Any]]) -> str:
    if any("text" not in each for each in contents):
        raise ToolError("its result is not text.")
    return "\n\n".join(each["text"] for each in contents)


# Functions


class InvalidSource(TypeError):
    """This function cannot be a context source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFunction:
    path: str  # "shop.context.customer"
    call: Callable[..., Any]
    parameter: str  # the parameter that takes the Reader; "" for none
    is_async: bool
    description: str = ""

    async def __call__(self, reader: Reader) -> Any:
        values = {self.parameter: reader} if self.parameter else {}
        if self.is_async:
            return await self.call(**values)
        return await _threads.run(partial(self.call, **values), "context")


def context_source(function: Function) -> Function:
    """Register a function as a context source that staff can select. It takes no
    parameter or one `Reader`, and returns text or any JSON value.

    Raises InvalidSource where it takes other parameters.
    """
    path = f"{function.__module__}.{function.__qualname__}"
    try:
        signature = signature_of(function, Reader)
    except InvalidTool as exc:
        raise InvalidSource(str(exc)) from exc
    if others := ", ".join(signature.parameters["properties"]):
        raise InvalidSource(
            f"{path} takes {others}; a context source takes at most one parameter,"
            " annotated Reader."
        )
    source_function = SourceFunction(
        path=path,
        call=function,
        parameter=signature.context,
        is_async=signature.is_async,
        description=signature.description,
    )
    setattr(function, _MARK, source_function)
    return function


@cache
def source_functions() -> dict[str, SourceFunction]:
    """All context-source functions of installed apps, by path. Raises InvalidSource."""
    return discover(
        import_module(f"{app.name}.{MODULE}")
        for app in apps.get_app_configs()
        if has_submodule(app.module, MODULE)
    )


def discover(modules: Iterable[ModuleType]) -> dict[str, SourceFunction]:
    found = {}
    for module in modules:
        for value in list(vars(module).values()):
            if isfunction(value) and isinstance(
                source_function := vars(value).get(_MARK), SourceFunction
            ):
                found[source_function.path] = source_function
    return found


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Call `function` in a thread, and close the database connections it opened."""
    return await _threads.run(function, "context")
