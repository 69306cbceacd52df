"""What a client of another API receives of a response, and how the response ended.

Shared by the writers: which items are for the client, which calls it may run, and when
pieces of a call's arguments may be sent.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llm.wire.items import Item

#: How an answer as a whole ended, independent of an API's names.
Ending = Literal["stop", "tool_calls", "length", "content_filter", "paused"]

#: Event that announces a call whose arguments are held back.
ANNOUNCED = "parley:tool_call.announced"
PICTURE = "image_generation_call"
_EMPTY = frozenset({"", "n", "nu", "nul", "null"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """The client's side of a request, as far as it decides what the client receives.

    `server_tools` are the functions that run here: their calls are not the client's.
    `custom_tools` are the client's own tools that take free text; a `custom_tool_call`
    of any other name is a provider's (xAI reports its tools so).
    """

    server_tools: Container[str] = ()
    custom_tools: Container[str] = ()

    def kind(self, item: Item) -> str:
        """The item's type, or "" if the client does not receive the item."""
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
    """Why `response` ended; `calls` counts the client's calls, including cut ones.

    An answer that was stopped for any reason is incomplete.
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
    """The arguments of a call while they are streamed to the client.

    Some hosts send "null" for no arguments; the builder makes that an empty object once
    the call is complete. So nothing is sent while the text may still become "null".
    """

    __slots__ = ("_is_sending", "_pending")

    def __init__(self) -> None:
        self._pending = ""
        self._is_sending = False

    def feed(self, text: str) -> str:
        """The text that may be sent now."""
        if self._is_sending:
            return text
        self._pending += text
        if self._pending.strip() in _EMPTY:
            return ""
        text, self._pending, self._is_sending = self._pending, "", True
        return text

    def close(self, whole: str) -> str:
        """The unsent rest; `whole` are the complete arguments."""
        return "" if self._is_sending else whole


def parts_of(item: Item) -> list[dict[str, Any]]:
    """The parts of a message or reasoning item, the summary first."""
    return [*(item.get("summary") or ()), *(item.get("content") or ())]


def thought_of(item: Item) -> str:
    """The text of a reasoning item, with blank lines between its parts."""
    texts = [part.get("text") or "" for part in parts_of(item)]
    return "\n\n".join(text for text in texts if text)


def picture_of(item: Item) -> tuple[str, str] | None:
    """Media type and base64 of a picture that the model has drawn, else None."""
    data = item.get("result")
    if item["type"] != PICTURE or not isinstance(data, str) or not data:
        return None
    return f"image/{item.get('output_format') or 'png'}", data
