"""`RequestContext`: what an endpoint's handler gets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from conversations.gateway.dialects import Dialect
from conversations.gateway.http import Exchange
from conversations.gateway.loop_resources import Resources
from conversations.models import AccessToken
from conversations.models.gateway.answered_request import AnsweredRequest


@dataclass(frozen=True, slots=True)
class RequestContext:
    """An authenticated request."""

    exchange: Exchange
    resources: Resources
    token: AccessToken
    dialect: Dialect
    body: dict[str, Any]  # {} if the method has no body
    path_params: Mapping[str, str] = field(
        default_factory=dict
    )  # parameters of the path
    answered_request: AnsweredRequest | None = None  # of its Idempotency-Key


Handler = Callable[[RequestContext], Coroutine[Any, Any, None]]
