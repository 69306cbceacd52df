"""A tool as a turn uses it, the context of its calls, and what they may return."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llm.wire.json_schema.validation import compile_schema

Replay = Literal["safe", "idempotent", "once"]
#: Replay classes of calls that may run again after a crash.
REPEATABLE: frozenset[str] = frozenset({"safe", "idempotent"})
AskForm = Callable[["Context", str, Mapping[str, Any]], Awaitable["FormAnswer"]]

NAME = re.compile(r"\A[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")  # accepted by every provider


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

    def applies_to(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments needs approval. By the policy "first" a
        person may have agreed to all further calls."""
        if self.policy != "rule":
            return True
        return compile_schema(self.rule or {}).is_valid(arguments)


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
        """Show a form to the user and wait for the answer.

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
    #: Awaited before each call, outside its timeout; raises ToolError to refuse it.
    permit: Callable[[Context, dict[str, Any]], Awaitable[None]] | None = None
    timeout: float | None = None  # seconds; None for settings.TOOL_TIMEOUT
    replay: Replay = "once"  # what a crash may repeat
    #: False: the model continues at once and receives the result when it is ready.
    blocking: bool = True
    #: Whether a new row for this tool is enabled; staff can change it later.
    enabled: bool = True
    #: Whether a new row is for conversations alone whose preset names the tool.
    only_in_presets: bool = False
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
