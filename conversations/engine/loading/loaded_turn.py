"""A loaded turn: all that its run needs of the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypedDict

from conversations.engine.event_log import Position
from conversations.engine.lease_store import ProviderResponse
from conversations.engine.loading.turn_context import TurnContext
from conversations.engine.metering import Meter
from conversations.turns.compactor import WindowCompactor
from conversations.turns.history import History
from llm.pricing.caller import Caller
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import ProviderData
from llm.wire.request import Request
from tools.loop.task import Task

LoadFiles = Callable[[], None]


class Progress(TypedDict):
    """The fields of `Work` that describe how far the turn is, by its stored rows."""

    committed: Sequence[ItemPayload]
    proofs: Mapping[str, ProviderData]  # of committed items, by id
    #: By index, where a committed item was published.
    earlier_positions: Mapping[int, Position]
    ended_output: int | None  # as `ResponseBuilder` has it
    pending: ProviderResponse | None  # a response that the next call may resume
    usage: Mapping[str, Any] | None
    inputs: int  # number of the turn's own items


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A loaded turn, ready to run. Fields that `Progress` has are described there."""

    task: Task
    history: History  # which `prepare` uses
    #: Makes the turn's compactor; None: its history must not be changed.
    build_compactor: Callable[..., WindowCompactor] | None
    #: Puts the contents of files into the requests, where they are not on this machine.
    #: It blocks for as long as their storage, and needs no database.
    load_files: LoadFiles | None
    #: Like the task's `prepare`, but takes `context`, which is not known yet.
    prepare: Callable[..., Request]
    turn_context: TurnContext
    route: Route
    conversation_id: str
    user_id: int
    caller: Caller
    echo: Mapping[str, Any]
    created_at: datetime
    committed: Sequence[ItemPayload]
    proofs: Mapping[str, ProviderData]
    earlier_positions: Mapping[int, Position]
    ended_output: int | None
    pending: ProviderResponse | None
    usage: Mapping[str, Any] | None
    inputs: int
    cancel_requested: bool
    is_approval_expired: bool  # nobody approved a call in time
    has_new_results: bool  # undelivered background results, or messages that steer
    is_timed: bool = True  # reasoning says how long it took; not to gateway clients
    meter: Meter | None = None  # of the access token, if there is one
    limits_owner: str | None = None  # the user who is charged without a token
    cost_left: Decimal | None = None  # USD; None: no bound
    tokens_left: int | None = None  # of the turn; None: no bound
    preset_version: int | None = None
