"""What a turn is opened with, and the opened turn with the data that was at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from conversations.models.access_token import AccessToken
from conversations.models.item import Item
from conversations.models.turn import Turn
from llm.models import LanguageModel
from llm.provider import Route


class TurnFields(TypedDict, total=False):
    """What `Conversation.open_turn` takes beside the items."""

    language_model: LanguageModel | None  # None: the conversation's
    options: dict[str, Any] | None  # beside those of the conversation
    parent: Turn | None  # the turn that it follows
    #: The id of a turn: it follows the last turn of the branch with it, of those that
    #: are there when it is written. Without such a branch this is as if not given.
    branch: str
    #: It follows no turn. Without this, a `parent` and a `branch` it follows the last
    #: turn of the branch that its author looks at.
    is_first: bool
    comparison: str
    access_token: AccessToken | None
    #: For items that are no message: the turn of the message that caused them.
    caused_by: str | None
    author: Any  # who writes, if that is not the owner
    author_name: str  # of an author whose account is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTurn:
    """A turn, and what its reader need not read again if it was opened just now."""

    turn: Turn
    items: Sequence[Item] = ()  # written with it; () if it was opened before
    route: Route | None = None  # to its model, if it was resolved
    #: Its conversation was created with it, so that it follows nothing.
    is_conversation_new: bool = False
    #: The running turns that it interrupts, and whose stop is stored already.
    interrupted: Sequence[Turn] = ()
