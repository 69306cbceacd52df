"""What a door is given when somebody stands before it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from conversations.gateway.dialects import Dialect
from conversations.gateway.http import Exchange
from conversations.gateway.means import Means
from conversations.models import AccessToken


@dataclass(frozen=True, slots=True)
class Visit:
    """A request whose sender is known."""

    exchange: Exchange
    means: Means
    token: AccessToken
    dialect: Dialect
    body: dict[str, Any]  # {} where the method has none
    named: Mapping[str, str] = field(default_factory=dict)  # in the path


Handler = Callable[[Visit], Coroutine[Any, Any, None]]
