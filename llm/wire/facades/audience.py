"""What of a response a client of another dialect gets to see, and how it ended.

The writers share this: which items are for the client, which calls it may run, and when
the pieces of a call's arguments may go out.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llm.wire.items import Item

#: Of an answer as a whole, whatever a dialect calls it.
Ending = Literal["stop", "tool_calls", "length", "content_filter", "paused"]

#: Event that tells of a call whose arguments are held back.
ANNOUNCED = "parley:tool_call.announced"
_EMPTY = frozenset({"", "n", "nu", "nul", "null"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """A client, as far as it matters to what it is told.

    `server_tools` are the functions that run here: their calls are not the client's.
    `custom_tools` are those of its own that take free text; a `custom_tool_call` of any
    other name is a provider's (xAI tells so of its tools).
    """

    server_tools: Container[str] = ()
    custom_tools: Container[str] = ()

    def kind(self, item: Item) -> str:
        """Its type, or "" for what the client is not told."""
        kind = str(item["type"])
        match kind:
            case "message" | "reasoning":
                return kind
            case "function_call":
                return "" if item.get("name") in self.server_tools else kind
            case "custom_tool_call":
                return kind if item.get("name") in self.custom_tools else ""
        return ""


def ending(response: Mapping[str, Any], calls: int, whole_calls: int) -> Ending:
    """Why `response` ended, with so many calls for the client, cut ones included.

    An answer that was stopped, for whatever reason, did not come to its end.
    """
    if response["status"] == "incomplete":
        match (response.get("incomplete_details") or {}).get("reason"):
            case "content_filter":
                return "content_filter"
            case "paused":
                return "paused"
        return "length"
    if whole_calls:
        return "tool_calls"
    return "length" if calls else "stop"


class Arguments:
    """The arguments of a call, as they may be passed on.

    Hosts say "null" where there are none; the builder makes that an empty object once
    the call is whole. So nothing goes out while it may still become "null".
    """

    __slots__ = ("_held", "_told")

    def __init__(self) -> None:
        self._held = ""
        self._told = False

    def feed(self, text: str) -> str:
        """What of it may go out now."""
        if self._told:
            return text
        self._held += text
        if self._held.strip() in _EMPTY:
            return ""
        text, self._held, self._told = self._held, "", True
        return text

    def close(self, whole: str) -> str:
        """What has not gone out of the arguments, which are `whole`."""
        return "" if self._told else whole


def parts_of(item: Item) -> list[dict[str, Any]]:
    """What a message or reasoning item says, the summary first."""
    return [*(item.get("summary") or ()), *(item.get("content") or ())]


def thought_of(item: Item) -> str:
    """The text of a reasoning item, its parts set apart."""
    texts = [part.get("text") or "" for part in parts_of(item)]
    return "\n\n".join(text for text in texts if text)
