"""Registry of the tools that are defined in code, and the `@tool` decorator.

`@tool` describes a typed function and returns it unchanged. The registry finds the
tools in `tools/builtin/` and in the `tools.py` of each installed app. Rows of
`tools.models.tool.Tool` say which tools are enabled.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from inspect import isfunction
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args, overload

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from tools import builtin
from tools.errors import InvalidTool
from tools.python.isolated_call import IsolatedCall
from tools.python.thread_pool import MAX_THREADS, ToolThreadPool
from tools.schema import Signature, signature_of

Replay = Literal["safe", "idempotent", "once"]
Function = TypeVar("Function", bound=Callable[..., Any])

AskForm = Callable[["Context", str, Mapping[str, Any]], Awaitable["FormAnswer"]]

NAME = re.compile(r"\A[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")  # accepted by every provider

_MARK = "__tool__"
_SIGNATURE = "__tool_signature__"
_threads = ToolThreadPool(MAX_THREADS)


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """A person's answer to a form."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A tool returns this when an external system goes on with its work.

    The result is posted to the context's `callback_url`, or Parley calls the tool's
    `poll` every `poll_after` seconds; the first result counts.
    """

    token: str = ""  # identifies the work to `poll`
    poll_after: float | None = None  # seconds; None: not polled, the result is posted


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """When a person must agree before a call runs."""

    policy: Literal["always", "first", "rule"]
    #: JSON Schema: arguments that fit it need approval. Only for the policy "rule".
    rule: Mapping[str, Any] | None = None
    group_id: int | None = None  # who may agree; None: the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The user, conversation and turn of a call, and callbacks for progress and forms.

    A tool's function receives it in a parameter that is annotated `Context`.
    """

    user_id: int | None = None
    conversation_id: str = ""
    #: False if the call comes from a program that may not read the user's chats.
    may_read_chats: bool = True
    turn_id: str = ""
    call_id: str = ""
    #: The same in every attempt of one call; pass it to external services.
    idempotency_key: str = ""
    #: Reports progress: `progress("3 of 10 pages")`. Callable from any thread.
    progress: Callable[[str], None] = field(default=lambda message: None)
    #: Shows a form and returns the answer, for `asking`; None if no person can answer.
    ask: AskForm | None = None
    #: Where an external system posts its result; "" if PUBLIC_URL is not set.
    callback_url: str = ""
    #: Called with the id of a call that was given up but cannot be stopped.
    abandoned: Callable[[str], None] = field(default=lambda call_id: None)

    async def asking(self, message: str, schema: Mapping[str, Any]) -> FormAnswer:
        """Shows a form to the user and waits for the answer.

        `schema` is the JSON Schema of a flat object. The answer is "cancel" if no
        person can answer.
        """
        if self.ask is None:
            return FormAnswer("cancel")
        return await self.ask(self, message, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeTool:
    """A tool as a turn uses it."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON Schema of an object
    #: Returns text, content parts or anything JSON; raises anything to fail. Its
    #: arguments have been checked against `parameters`.
    call: Callable[[Context, dict[str, Any]], Awaitable[Any]]
    timeout: float | None = None  # seconds; None for settings.TOOL_TIMEOUT
    replay: Replay = "once"  # what a crash may repeat
    #: False: the model continues at once and receives the result when it is ready.
    blocking: bool = True
    #: Whether a new row for this tool is enabled; staff can change it later.
    enabled: bool = True
    #: Called with the token of an `Accepted`; returns the result or `Accepted` again.
    poll: Callable[[Context, str], Awaitable[Any]] | None = None
    approval: Approval | None = None
    label: str = ""  # for users; defaults to the name
    source: str = ""  # where the code is, for staff
    _definition: dict[str, Any] | None = field(
        default=None, init=False, compare=False, repr=False
    )

    @property
    def definition(self) -> dict[str, Any]:
        """The definition that models receive, in the Responses shape.

        Built once for all turns that use the tool, and never changed.
        """
        if self._definition is None:
            definition = {
                "type": "function",
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
                "strict": False,
            }
            object.__setattr__(self, "_definition", definition)
        assert self._definition is not None
        return self._definition


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    timeout: float | None = None,
    replay: Replay = "once",
    blocking: bool = True,
    enabled: bool = True,
    poll: Callable[[Context, str], Awaitable[Any]] | None = None,
    approval: Approval | None = None,
    label: str = "",
    isolate: bool = False,
    memory: int | None = None,
) -> Callable[[Function], Function]: ...


def tool(function: Any = None, /, **settings: Any) -> Any:
    """Makes a function callable by models. Name and description come from the function,
    the schema of its parameters from their types.

    `isolate` runs the function in a separate process that is killed at the timeout;
    `memory` limits what that process may allocate, in MiB.

    Raises InvalidTool if the function cannot be described to a model.
    """
    if function is None:
        return partial(_mark, **settings)
    return _mark(function, **settings)


def get_tool(function: Callable[..., Any]) -> RuntimeTool:
    """The tool that `@tool` created for a function."""
    found: RuntimeTool = getattr(function, _MARK)
    return found


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

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        values = self.signature.bind(arguments)
        if parameter := self.signature.context:
            values[parameter] = context
        if self.signature.is_async:
            return await self.function(**values)
        return await _threads.run(
            partial(self.function, **values),
            self.name,
            on_abandoned=partial(context.abandoned, context.call_id),
        )


def function_signature(function: Callable[..., Any]) -> Signature:
    """The signature that `@tool` stored on a function."""
    found: Signature = getattr(function, _SIGNATURE)
    return found


def _mark(
    function: Function,
    /,
    *,
    name: str = "",
    description: str = "",
    isolate: bool = False,
    memory: int | None = None,
    **settings: Any,
) -> Function:
    signature = signature_of(function, Context)
    name = name or function.__name__
    source = f"{function.__module__}.{function.__qualname__}"
    _check(source, name, **settings)
    call: Any = _PythonCall(function, signature, name)
    if isolate:
        call = _build_isolated_call(function, source, memory)
    elif memory is not None:
        raise InvalidTool(f"{source} limits its memory; that takes isolate=True.")
    new_tool = RuntimeTool(
        name=name,
        description=description or signature.description,
        parameters=signature.parameters,
        call=call,
        source=source,
        **settings,
    )
    setattr(function, _MARK, new_tool)
    setattr(function, _SIGNATURE, signature)
    return function


def _build_isolated_call(
    function: Callable[..., Any], source: str, memory: int | None
) -> IsolatedCall:
    if "<" in function.__qualname__ or function.__module__ == "__main__":
        raise InvalidTool(
            f"{source} is isolated, so another process must find it by its name: move"
            " it to the top of a module."
        )
    if memory is not None and memory < 1:
        raise InvalidTool(f"{source} has the memory {memory!r}; give MiB, 1 or more.")
    return IsolatedCall(function.__module__, function.__qualname__, memory)


def _check(
    source: str,
    name: str,
    timeout: float | None = None,
    replay: Replay = "once",
    **settings: Any,
) -> None:
    if not NAME.match(name):
        raise InvalidTool(
            f"{source} is named {name!r}; a tool's name has up to 64 letters, digits,"
            " '_' and '-', and begins with no digit."
        )
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InvalidTool(
            f"{source} has the timeout {timeout!r}; give seconds above 0."
        )
    if replay not in get_args(Replay):
        options = ", ".join(map(repr, get_args(Replay)))
        raise InvalidTool(f"{source} has the replay {replay!r}; use one of {options}.")


def _modules() -> Iterator[ModuleType]:
    """Yields the built-in modules, then those of the apps in INSTALLED_APPS order."""
    for name in sorted(info.name for info in pkgutil.iter_modules(builtin.__path__)):
        yield import_module(f"{builtin.__name__}.{name}")
    for app in apps.get_app_configs():
        if app.name != __package__ and module_has_submodule(app.module, "tools"):
            yield import_module(f"{app.name}.tools")


def _find_tools(module: ModuleType) -> Iterator[RuntimeTool]:
    for value in list(vars(module).values()):
        if isfunction(value) and isinstance(
            found := vars(value).get(_MARK), RuntimeTool
        ):
            yield found
