"""Registry of the tools that are defined in code, and the `@tool` decorator.

`@tool` describes a typed function and returns it unchanged. The registry finds the
tools in `tools/builtin/`, in each installed app and in its `tools.py`. Rows of
`tools.models.tool.Tool` say which tools are enabled.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import isfunction
from types import ModuleType
from typing import Any, TypeVar, get_args, overload

from django.apps import apps

from llm.http.addresses import Network, parse_network
from tools import builtin
from tools.errors import InvalidTool
from tools.execution.call_metrics import show_threads
from tools.http.guarded_client import fetch
from tools.json_schema.function_schema import Signature, signature_of
from tools.python.function_marks import (
    find_tool,
    function_signature,
    get_tool,
    mark_function,
)
from tools.python.isolated_call import IsolatedCall
from tools.python.thread_pool import MAX_THREADS, ToolThreadPool
from tools.runtime_tool import (
    NAME,
    Accepted,
    Approval,
    AskForm,
    Context,
    FormAnswer,
    Replay,
    Risk,
    RuntimeTool,
)

#: What authors of tools import from here, wherever it is defined.
__all__ = [
    "NAME",
    "Accepted",
    "Approval",
    "AskForm",
    "Context",
    "FormAnswer",
    "Replay",
    "Risk",
    "RuntimeTool",
    "discover",
    "function_signature",
    "get_tool",
    "python_tools",
    "tool",
    "tool_of",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_threads = ToolThreadPool(MAX_THREADS)
show_threads(abandoned=lambda: _threads.abandoned, waiting=lambda: _threads.waiting)


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    timeout: float | None = None,
    replay: Replay = "once",
    risk: Risk | None = None,
    runs_after_untrusted: bool = False,
    blocking: bool = True,
    enabled: bool = True,
    only_in_presets: bool = False,
    poll: Callable[[Context, str], Awaitable[Any]] | None = None,
    approval: Approval | None = None,
    label: str = "",
    isolate: bool = False,
    memory: int | None = None,
    networks: Sequence[str] = (),
) -> Callable[[Function], Function]: ...


def tool(function: Any = None, /, **settings: Any) -> Any:
    """Make a function callable by models. Name and description come from the function,
    the schema of its parameters from their types.

    `isolate` runs the function in a separate process, without database and, where the
    system has a sandbox, without network; it is killed at the timeout.
    `memory` limits what that process may allocate, in MiB. `networks` are private
    networks, such as "10.1.0.0/16", that `Context.fetch` may reach.

    Raises InvalidTool if the function cannot be described to a model.
    """
    if function is None:
        return partial(_mark, **settings)
    return _mark(function, **settings)


@cache
def python_tools() -> dict[str, RuntimeTool]:
    """All tools in installed code, by name. Raises InvalidTool."""
    return discover(_modules())


def discover(modules: Iterable[ModuleType]) -> dict[str, RuntimeTool]:
    found: dict[str, RuntimeTool] = {}
    for module in modules:
        for each in _find_tools(module):
            known = found.setdefault(each.name, each)
            if known is not each:
                raise InvalidTool(
                    f"two tools are named {each.name!r}: {known.source} and"
                    f" {each.source}."
                )
    return found


@dataclass(frozen=True, slots=True)
class _PythonCall:
    function: Callable[..., Any]
    signature: Signature
    name: str
    networks: Sequence[Network] = ()

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        values = self.signature.bind(arguments)
        if parameter := self.signature.context:
            values[parameter] = self._with_networks(context)
        if self.signature.is_async:
            return await self.function(**values)
        return await _threads.run(
            partial(self.function, **values),
            self.name,
            on_abandoned=partial(context.abandoned, context.call_id),
            pause_timer=context.pause_timer,
        )

    def _with_networks(self, context: Context) -> Context:
        if not self.networks:
            return context
        return replace(context, send_request=partial(fetch, allow=self.networks))


def tool_of(function: Callable[..., Any]) -> RuntimeTool:
    """The tool of a function, which need not be marked with `@tool`. Raises
    InvalidTool."""
    return (isfunction(function) and find_tool(function)) or _build_unmarked(function)


def _mark(function: Function, /, **settings: Any) -> Function:
    new_tool, signature = _build(function, **settings)
    mark_function(function, new_tool, signature)
    return function


@lru_cache(maxsize=1000)
def _build_unmarked(function: Callable[..., Any]) -> RuntimeTool:
    return _build(function)[0]


def _build(
    function: Callable[..., Any],
    /,
    *,
    name: str = "",
    description: str = "",
    isolate: bool = False,
    memory: int | None = None,
    networks: Sequence[str] = (),
    **settings: Any,
) -> tuple[RuntimeTool, Signature]:
    signature = signature_of(function, Context)
    name = name or function.__name__
    source = f"{function.__module__}.{function.__qualname__}"
    _check(source, name, **settings)
    allowed = _read_networks(source, networks)
    call: Any = _PythonCall(function, signature, name, allowed)
    if isolate:
        call = _build_isolated_call(function, source, memory, allowed)
    elif memory is not None:
        raise InvalidTool(f"{source} limits its memory, which needs isolate=True.")
    new_tool = RuntimeTool(
        name=name,
        description=description or signature.description,
        parameters=signature.parameters,
        call=call,
        source=source,
        **settings,
    )
    return new_tool, signature


def _read_networks(source: str, networks: Sequence[str]) -> tuple[Network, ...]:
    try:
        return tuple(map(parse_network, networks))
    except ValueError as exc:
        text = f"{source} names a network that is none: {exc}; write it as 10.1.0.0/16."
        raise InvalidTool(text) from exc


def _build_isolated_call(
    function: Callable[..., Any],
    source: str,
    memory: int | None,
    networks: Sequence[Network],
) -> IsolatedCall:
    if "<" in function.__qualname__ or function.__module__ == "__main__":
        raise InvalidTool(
            f"{source} is isolated, so another process must find it by its name: move"
            " it to the top of a module."
        )
    if memory is not None and memory < 1:
        raise InvalidTool(f"{source} has the memory {memory!r}; give MiB, 1 or more.")
    return IsolatedCall(function.__module__, function.__qualname__, memory, networks)


def _check(
    source: str,
    name: str,
    timeout: float | None = None,
    replay: Replay = "once",
    risk: Risk | None = None,
    **settings: Any,
) -> None:
    if not NAME.match(name):
        raise InvalidTool(
            f"{source} is named {name!r}; a tool's name has up to 64 letters, digits,"
            " '_' and '-', and does not begin with a digit."
        )
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InvalidTool(
            f"{source} has the timeout {timeout!r}; give seconds above 0."
        )
    if replay not in get_args(Replay):
        options = ", ".join(map(repr, get_args(Replay)))
        raise InvalidTool(f"{source} has the replay {replay!r}; use one of {options}.")
    if risk is not None and risk not in get_args(Risk):
        options = ", ".join(map(repr, get_args(Risk)))
        raise InvalidTool(f"{source} has the risk {risk!r}; use one of {options}.")


def _modules() -> Iterator[ModuleType]:
    """Yield the built-in modules, then those of the apps in INSTALLED_APPS order: the
    app itself, which may be a module of tools, and its `tools.py`."""
    for name in sorted(info.name for info in pkgutil.iter_modules(builtin.__path__)):
        yield import_module(f"{builtin.__name__}.{name}")
    for app in apps.get_app_configs():
        if app.name == __package__:
            continue
        if app.module is not None:
            yield app.module
        if has_submodule(app.module, "tools"):
            yield import_module(f"{app.name}.tools")


def has_submodule(module: ModuleType | None, name: str) -> bool:
    """True for a package with this submodule, which is not imported."""
    if module is None or not hasattr(module, "__path__"):
        return False
    return find_spec(f"{module.__name__}.{name}") is not None


def _find_tools(module: ModuleType) -> Iterator[RuntimeTool]:
    for value in list(vars(module).values()):
        if isfunction(value) and (found := find_tool(value)):
            yield found
