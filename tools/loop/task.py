"""What the tool loop needs to run a turn, and where it stores the turn's progress."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Protocol

from llm.http.client import ProviderCall, Stream
from llm.wire.items import Event, Item
from llm.wire.request import BackgroundResponse, Request
from tools.execute import CallOutcome
from tools.loop.answer_size import AnswerSize
from tools.loop.late_results import LateResult, SteeringMessage
from tools.runtime_tool import Context, RuntimeTool

PublishEvents = Callable[[list[Event]], None]


class Record(Protocol):
    """Storage of a turn's progress. Each method returns once the change is durable."""

    @property
    def has_new_results(self) -> bool:
        """True if results of background calls, or messages that steer the turn, may
        have arrived."""
        ...

    async def save_calls(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        """A provider call has ended. `calls` are about to run; those with ids in
        `background` run outside the loop."""

    async def save_outcomes(
        self, outcomes: Sequence[CallOutcome], *, last: bool
    ) -> None:
        """Calls have ended. If `last`, all outputs of the step are in the response."""

    async def fetch_results(self) -> Sequence[LateResult | SteeringMessage]:
        """Results of background calls that were not delivered to the model yet, and
        messages that steer the turn. The next `save_outcomes` marks them as
        delivered."""

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        """Suspend the turn until a user has decided about `calls`. Returns the
        questions for the user."""

    def begin_model_call(self, call: ProviderCall) -> None:
        """A provider call begins; `call` is filled in while it lasts."""

    def record_model_call(self, call: ProviderCall) -> None:
        """A provider call has ended, successfully or not."""


class UnstoredRecord:
    """The part of a `Record` that stores items, for turns that are never resumed."""

    __slots__ = ()

    has_new_results = False

    async def save_calls(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        """Do nothing: a turn that is lost begins anew."""

    async def save_outcomes(
        self, outcomes: Sequence[CallOutcome], *, last: bool
    ) -> None:
        """Do nothing, as `save_calls`."""

    async def fetch_results(self) -> Sequence[LateResult | SteeringMessage]:
        return ()


class CompactionPlan(Protocol):
    """A summary of earlier items that can be made."""

    @property
    def messages(self) -> int:
        """The number of messages that it will replace."""


class Compactor(Protocol):
    """Replaces earlier items by a summary when they do not fit the context window."""

    @property
    def room(self) -> int | None:
        """Tokens that a prompt may have; None if unknown."""

    def is_due(self, request: Request) -> bool:
        """Whether `plan` should be called before this request; a rough check, for a
        known room."""

    async def plan(self, request: Request | None) -> CompactionPlan | None:
        """What can be summarised before `request`; or without one, after the model has
        refused the conversation as too long."""

    async def summarise(self, plan: Any, record: Record) -> Item:
        """The item with the summary. Each model call is given to `record`. Raises
        LLMError."""

    async def reload(self) -> None:
        """Make further requests from what is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Everything the loop needs to run a turn, without database rows."""

    prepare: Callable[[Sequence[Item]], Request]  # from this turn's items
    #: Reads the turn's context sources, once, before the first provider call.
    gather_context: Callable[[], Awaitable[PreparedContext]] | None = None
    stream: Stream
    answer_size: AnswerSize | None = None  # None: no limit
    tools: Mapping[str, RuntimeTool] = field(default_factory=dict)
    client_tools: Collection[str] = ()
    context: Context = field(default_factory=Context)
    parallel: bool = True
    max_steps: int = 10
    max_tool_calls: int | None = None  # of our tools, over the whole turn
    #: Of a call, and the output before it runs.
    needs_approval: Callable[[Item, Sequence[Item]], bool] = lambda call, output: False
    #: Whether content that others wrote is part of the request, before any output.
    has_untrusted_input: Callable[[], bool] = bool  # False
    #: Arguments with which a user replaced the model's, as JSON text, by call id.
    arguments: Mapping[str, str] = field(default_factory=dict)
    #: Outcomes that an interrupted run has saved, by call id.
    outcomes: Mapping[str, CallOutcome] = field(default_factory=dict)
    partial: Sequence[Item] = ()
    #: A response that an interrupted run requested; the provider may still have it.
    background_response: BackgroundResponse | None = None
    #: True if the message has reached its cost limit: no further provider calls.
    is_cost_exhausted: Callable[[], bool] = bool  # False
    are_tokens_used: Callable[[], bool] = bool  # all that the turn may use
    #: True while background calls run whose results belong into this response: it is
    #: left open for them. False where a result opens a response of its own.
    holds_open: Callable[[], bool] = bool  # False
    #: Cancels the background calls that may not outlive the response; returns them.
    cancel_background: Callable[[], Sequence[Item]] = tuple
    #: Waits until a large answer of so many characters may grow further.
    wait_for_room: Callable[[int], Awaitable[None]] | None = None
    #: Makes room in the model's context window; None: the history is never changed.
    compactor: Compactor | None = None
    #: Waits for permission to close a large answer, which puts it in memory whole.
    wait_to_close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class PreparedContext:
    """The result of reading the turn's context sources."""

    prepare: Callable[[Sequence[Item]], Request]  # replaces the task's own
    failed: Sequence[Mapping[str, str]] = ()  # left out: source and reason
