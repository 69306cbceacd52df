"""A tool as a turn uses it, the context of its calls, and what they may return."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from llm.wire.json_schema.validation import may_fit
from tools.http.exchange import FetchedResponse, OutgoingRequest
from tools.json_schema.defaults import UnclearDefaults, fill_defaults
from tools.json_schema.form_schema import is_form

logger = logging.getLogger(__name__)

Replay = Literal["safe", "idempotent", "once"]
#: Replay classes of calls that may run again after a crash.
REPEATABLE: frozenset[str] = frozenset({"safe", "idempotent"})
#: What a call may do: read content that others wrote, change or send something, both,
#: or neither. Such content may hold instructions to the model ("prompt injection").
Risk = Literal["none", "reads", "changes", "both"]
AskForm = Callable[["Context", str, Mapping[str, Any]], Awaitable["FormAnswer"]]
SendRequest = Callable[[OutgoingRequest], Awaitable[FetchedResponse]]

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
    is_strict: bool = False  # staff chose the policy: the user cannot waive it

    def applies_to(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments needs approval: also if a rule takes too
        long to be judged, or is not a JSON Schema. By the policy "first" a person may
        have agreed to all further calls."""
        return self.policy != "rule" or may_fit(self.rule or {}, arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSignIn:
    """A server at which each user signs in before its tools run for this user."""

    server_id: int
    title: str
    #: Whether the user of the turn is signed in there.
    is_done: Callable[[], bool] = field(default=bool, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The user, conversation and turn of a call, and callbacks for progress and forms.

    A tool's function receives it in a parameter that is annotated `Context`.
    """

    user_id: int | None = None
    conversation_id: str = ""
    #: False if the call comes from a program that may not read the user's chats.
    may_read_chats: bool = True
    #: The access token of the program whose request makes the call; None for a person.
    access_token_id: int | None = None
    #: The user whose own sign-ins at MCP servers the call may use; None for nobody's.
    sign_ins_of: int | None = None
    turn_id: str = ""
    call_id: str = ""
    #: The same in every attempt of one call; pass it to external services.
    idempotency_key: str = ""
    #: Reports progress: `progress("3 of 10 pages")`. Callable from any thread.
    progress: Callable[[str], None] = field(default=lambda message: None)
    #: Shows a form and returns the answer, for `asking`; None if no person can answer.
    ask: AskForm | None = None
    #: While it is open, the call's time stands still.
    pause_timer: Callable[[], AbstractContextManager[None]] = nullcontext
    #: Sends the requests of `fetch`; None: this process does, to public addresses only.
    send_request: SendRequest | None = None
    #: Where an external system posts its result; "" if PUBLIC_URL is not set.
    callback_url: str = ""
    #: Called with the id of a call that was given up but cannot be stopped.
    abandoned: Callable[[str], None] = field(default=lambda call_id: None)

    async def asking(self, message: str, schema: Mapping[str, Any]) -> FormAnswer:
        """Show a form to the user and wait for the answer.

        `schema` is the JSON Schema of a flat object. The answer is "cancel" if no
        person can answer, or the schema is no form that can be shown.
        """
        if self.ask is None:
            return FormAnswer("cancel")
        if not is_form(schema):
            logger.warning(
                "A tool's form was not shown: its schema is invalid or large."
            )
            return FormAnswer("cancel")
        return await self.ask(self, message, schema)

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> FetchedResponse:
        """The complete answer of a web server, whatever its status.

        Only public addresses are reached, and the networks that the tool names. An
        answer has at most 1 MiB, and an exchange 30 seconds. Raises FetchError.
        """
        request = OutgoingRequest(
            method=method, url=url, headers=headers or {}, body=body
        )
        if self.send_request is None:
            from tools.http.guarded_client import (
                fetch,  # an isolated tool starts without aiohttp
            )

            return await fetch(request)
        return await self.send_request(request)


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
    calls_per_minute: int | None = None  # of each user; None: any number
    replay: Replay = "once"  # what a crash may repeat
    risk: Risk | None = None  # None: "none" if it is safe to repeat, else "changes"
    #: True: it runs as its approval says even after content that others wrote has
    #: entered the turn. By default a call that changes something then asks a person.
    runs_after_untrusted: bool = False
    #: Such a call fails, because nobody can be asked.
    refuses_after_untrusted: bool = False
    #: False: the model continues at once and receives the result when it is ready.
    blocking: bool = True
    #: Whether a new row for this tool is enabled; staff can change it later.
    enabled: bool = True
    #: Whether a new row is for conversations alone whose preset names the tool.
    only_in_presets: bool = False
    #: Called with the token of an `Accepted`; returns the result or `Accepted` again.
    poll: Callable[[Context, str], Awaitable[Any]] | None = None
    approval: Approval | None = None
    own_sign_in: OwnSignIn | None = None  # None: the user need not sign in anywhere
    label: str = ""  # for users; defaults to the name
    source: str = ""  # where the code is, for staff
    # These follow from the others. All turns share a tool, so they are set once.
    risk_class: Risk = field(init=False, compare=False, repr=False)
    asks_after_untrusted: bool = field(init=False, compare=False, repr=False)
    #: What models receive, in the Responses shape. Do not change it.
    definition: dict[str, Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        risk = self.risk or ("none" if self.replay == "safe" else "changes")
        asks = risk in ("changes", "both") and not self.runs_after_untrusted
        definition = {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "strict": False,
        }
        object.__setattr__(self, "risk_class", risk)
        object.__setattr__(self, "asks_after_untrusted", asks)
        object.__setattr__(self, "definition", definition)

    @property
    def reads_untrusted(self) -> bool:
        """Whether its output may be content that others wrote."""
        return self.risk_class in ("reads", "both")

    @property
    def changes_something(self) -> bool:
        return self.risk_class in ("changes", "both")

    @property
    def asks_once(self) -> bool:
        """Whether a first approval also covers a conversation's further calls."""
        return self.approval is not None and self.approval.policy == "first"

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments needs approval. What the model left out
        counts with its default too, because the call runs with it."""
        if self.approval is None:
            return False
        if self.approval.applies_to(arguments):
            return True
        try:
            filled = fill_defaults(self.parameters, arguments)
        except UnclearDefaults:
            return True
        return self.approval.applies_to(filled)

    @property
    def may_run_always(self) -> bool:
        """Whether the user may let the further calls of a conversation run unasked.

        Not if staff chose when it asks, or a group decides, or it both reads what
        others wrote and changes something.
        """
        approval = self.approval
        if approval is None or approval.is_strict or approval.group_id is not None:
            return False
        return approval.policy == "always" and self.risk_class != "both"
