"""The tools that code offers; rows of `tools.models.Tool` say which are on.

`@tool` describes a typed function and leaves it as it is. Found are those in
`tools/builtin/` and in the `tools.py` of any installed app.
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
from tools.isolated import IsolatedCall
from tools.schema import Signature, signature_of
from tools.threads import MAX_THREADS, Threads

Replay = Literal["safe", "idempotent", "once"]
Function = TypeVar("Function", bound=Callable[..., Any])

Ask = Callable[["Context", str, Mapping[str, Any]], Awaitable["Answer"]]

NAME = re.compile(r"\A[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")  # what every provider takes

_MARK = "__tool__"
_SIGNATURE = "__tool_signature__"
_threads = Threads(MAX_THREADS)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person made of a form."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A tool's word that its work goes on elsewhere.

    The result is posted to the context's `callback_url`, or asked for by the tool's
    `poll` every `poll_after` seconds, whichever comes first.
    """

    token: str = ""  # what `poll` needs to find the work again
    poll_after: float | None = None  # seconds; None: nobody asks, it will be posted


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """When a person must agree before a call runs."""

    policy: Literal["always", "first", "rule"]
    #: JSON Schema: arguments that fit it need approval. Of the policy "rule".
    rule: Mapping[str, Any] | None = None
    group_id: int | None = None  # who may agree; None: the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who calls and why; a tool's function gets it by annotating a parameter with
    it."""

    user_id: int | None = None
    conversation_id: str = ""
    #: False where a program calls that may not read the user's chats.
    may_read_chats: bool = True
    turn_id: str = ""
    call_id: str = ""
    #: The same in every try of one call; give it to the world outside.
    idempotency_key: str = ""
    #: Tell how far the work is: `progress("3 of 10 pages")`. From any thread.
    progress: Callable[[str], None] = field(default=lambda message: None)
    #: How `asking` gets its answer; None where nobody can be asked.
    ask: Ask | None = None
    #: Where the result of work that goes on elsewhere is to be posted; "" where this
    #: server does not know its own address.
    callback_url: str = ""
    #: Told the id of a call that was given up and that nothing can end.
    abandoned: Callable[[str], None] = field(default=lambda call_id: None)

    async def asking(self, message: str, schema: Mapping[str, Any]) -> Answer:
        """Show the person who waits a form and wait for their answer.

        `schema`: of a flat object. Where nobody can be asked the answer is "cancel".
        """
        if self.ask is None:
            return Answer("cancel")
        return await self.ask(self, message, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as a turn uses it."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON Schema of an object
    #: Returns text, content parts or anything JSON; raises anything to fail. Its
    #: arguments have been checked against `parameters`.
    call: Callable[[Context, dict[str, Any]], Awaitable[Any]]
    timeout: float | None = None  # seconds; None for settings.TOOL_TIMEOUT
    replay: Replay = "once"  # what a crash may repeat
    #: Not blocking: the model goes on at once, and is told the result when it is there.
    blocking: bool = True
    #: Whether its row is switched on when it is first made; staff have the last word.
    enabled: bool = True
    #: Asks how work goes on that `call` answered with `Accepted`; with its token.
    poll: Callable[[Context, str], Awaitable[Any]] | None = None
    approval: Approval | None = None
    label: str = ""  # what people see; defaults to the name
    source: str = ""  # where its code is, for staff
    _definition: dict[str, Any] | None = field(
        default=None, init=False, compare=False, repr=False
    )

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as a model is told of it, in the Responses shape.

        Made once, for all turns that use the tool, and never changed.
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
    """Offer a function to models: name and description from the function itself, and
    its parameters from their types.

    `isolate` runs it in a process of its own that is killed at the timeout; there
    `memory` is what it may take, in MiB.

    Raises InvalidTool where a model could not be told how to call it.
    """
    if function is None:
        return partial(_mark, **settings)
    return _mark(function, **settings)


def tool_of(function: Callable[..., Any]) -> Tool:
    """The tool that `@tool` made of a function."""
    found: Tool = getattr(function, _MARK)
    return found


@cache
def python_tools() -> dict[str, Tool]:
    """All that installed code offers, by name. Raises InvalidTool."""
    return discover(_modules())


def discover(modules: Iterable[ModuleType]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for module in modules:
        for each in _marked(module):
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
            abandoned=partial(context.abandoned, context.call_id),
        )


def function_signature(function: Callable[..., Any]) -> Signature:
    """What `@tool` found out about a function."""
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
        call = _isolated(function, source, memory)
    elif memory is not None:
        raise InvalidTool(f"{source} limits its memory; that takes isolate=True.")
    made = Tool(
        name=name,
        description=description or signature.description,
        parameters=signature.parameters,
        call=call,
        source=source,
        **settings,
    )
    setattr(function, _MARK, made)
    setattr(function, _SIGNATURE, signature)
    return function


def _isolated(
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
    """Ours first, then those of the apps, in the order of INSTALLED_APPS."""
    for name in sorted(info.name for info in pkgutil.iter_modules(builtin.__path__)):
        yield import_module(f"{builtin.__name__}.{name}")
    for app in apps.get_app_configs():
        if app.name != __package__ and module_has_submodule(app.module, "tools"):
            yield import_module(f"{app.name}.tools")


def _marked(module: ModuleType) -> Iterator[Tool]:
    for value in list(vars(module).values()):
        if isfunction(value) and isinstance(found := vars(value).get(_MARK), Tool):
            yield found
