"""A turn with the data that was at hand when it was opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conversations.models.item import Item
from conversations.models.turn import Turn
from llm.provider import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTurn:
    """A turn, and what its reader need not read again if it was opened just now."""

    turn: Turn
    items: Sequence[Item] = ()  # written with it; () if it was opened before
    route: Route | None = None  # to its model, if it was resolved
    #: Its conversation was created with it, so that it follows nothing.
    is_conversation_new: bool = False
    #: The running turn that it interrupts, and whose stop is stored already.
    interrupted: Turn | None = None
