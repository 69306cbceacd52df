"""The deltas that decoders emit: what all providers' streams have in common.

A decoder emits only these; `response.ResponseBuilder` turns them into canonical events.
`key` identifies the provider's own block (its index, for example) within one provider
call and never leaves this package. A delta with a new key opens an item.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llm.errors import BadResponse
from llm.wire.sanitize import sanitize_json

Key = Hashable
#: Items of one answer. Each costs a row and several events, whatever its size.
MAX_ITEMS = 2_000
#: "pause": the provider wants another request with its answer so far; "size": the
#: answer exceeded our size limit.
FinishReason = Literal[
    "stop", "tool_calls", "length", "content_filter", "pause", "size"
]
#: Reasons of an answer that the model has ended by itself.
NATURAL_ENDS: frozenset[FinishReason] = frozenset({"stop", "tool_calls"})


@dataclass(slots=True)
class FrameDelta:
    """Bytes of an answer for a client of the same API; the deltas decoded from them
    follow. Only for a request with `forwarded`, if it wants them."""

    data: bytes
    #: Whether it shows the client something of which there is no delta, such as sound.
    has_content: bool = False


@dataclass(slots=True)
class StartDelta:
    """Id and model of the response; empty where the provider does not send them."""

    response_id: str = ""
    model: str = ""


@dataclass(slots=True)
class TextDelta:
    """Visible text; an empty one opens an empty message."""

    key: Key
    text: str
    phase: str | None = None  # "commentary" or "final_answer"


@dataclass(slots=True)
class RefusalDelta:
    key: Key
    text: str


@dataclass(slots=True)
class AnnotationDelta:
    """One annotation of the text of `key`, in the Responses shape."""

    key: Key
    annotation: dict[str, Any]


@dataclass(slots=True)
class ReasoningDelta:
    """Reasoning. Summary parts are numbered; raw text has one part."""

    key: Key
    text: str
    kind: Literal["text", "summary"] = "text"
    part: int = 0


@dataclass(slots=True)
class ToolCallDelta:
    """A piece of a client tool call. `arguments` is a fragment of JSON text."""

    key: Key
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    namespace: str = ""  # of the function, where the request declares one


@dataclass(slots=True)
class ItemDelta:
    """The current state of an item of another type (a hosted tool's receipt); final
    when `done`."""

    key: Key
    item: dict[str, Any]  # canonical shape, without id and status
    done: bool = False


@dataclass(slots=True)
class ProofDelta:
    """The block exactly as this provider wants it back (signature, encrypted content).

    The last one of a key replaces earlier ones. A key that no other delta opens becomes
    an empty reasoning item.
    """

    key: Key
    raw: Any  # JSON


@dataclass(slots=True)
class CloseDelta:
    """The block is complete. Not every provider says so; the end of the call closes
    blocks that are still open.

    A call that is closed with `complete=False` was cut off and is never run.
    `arguments` are a call's complete arguments where they differ from the pieces.
    """

    key: Key
    complete: bool = True
    arguments: str | None = None


@dataclass(slots=True)
class UsageDelta:
    """Token counts of this call so far; a value that is not None replaces the earlier
    one.

    Canonical meaning: `input_tokens` includes cache reads and writes, `output_tokens`
    includes reasoning. `raw` is the provider's own object.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None  # those of them that stay for an hour
    reasoning_tokens: int | None = None
    cost: float | None = None  # USD, where the provider reports the price
    raw: dict[str, Any] | None = None
    #: Requests that the host made besides and bills too; no count above has them.
    apart: Sequence[ApartUsage] | None = None
    #: Whether the host bills something that is not counted here: a region, a tool.
    has_other_prices: bool | None = None
    tier: str | None = None  # of service, if it is not the usual one (`name_tier`)
    web_searches: int | None = None  # of the host, which have a price each
    file_searches: int | None = None


@dataclass(frozen=True, slots=True)
class ApartUsage:
    """A request that the host made by itself, to shorten the input or for advice."""

    usage: UsageDelta
    model: str = ""  # the answering one, if empty


@dataclass(slots=True)
class FinishDelta:
    """Why the provider stopped; `raw` is its own word. The last one counts."""

    reason: FinishReason
    raw: str | None = None


Delta = (
    FrameDelta
    | StartDelta
    | TextDelta
    | RefusalDelta
    | AnnotationDelta
    | ReasoningDelta
    | ToolCallDelta
    | ItemDelta
    | ProofDelta
    | CloseDelta
    | UsageDelta
    | FinishDelta
)


def merge(deltas: list[Delta], most: int = sys.maxsize) -> list[Delta]:
    """Join neighbouring deltas that only lengthen the same text. Order is unchanged.

    A text that has `most` characters already is not lengthened.
    """
    merged: list[Delta] = []
    for delta in deltas:
        last = merged[-1] if merged else None
        match delta, last:
            case TextDelta(key, text), TextDelta(key=before) if (
                key == before and len(last.text) < most
            ):
                merged[-1] = TextDelta(key, last.text + text, last.phase or delta.phase)
            case ReasoningDelta(key, text), ReasoningDelta(key=before) if (
                key == before
                and delta.kind == last.kind
                and delta.part == last.part
                and len(last.text) < most
            ):
                merged[-1] = ReasoningDelta(key, last.text + text, last.kind, last.part)
            case ToolCallDelta(key), ToolCallDelta(key=before) if (
                key == before
                and not delta.call_id
                and not delta.name
                and len(last.arguments) < most
            ):
                whole = last.arguments + delta.arguments
                merged[-1] = replace(last, arguments=whole)
            case _:
                merged.append(delta)
    return merged


def too_many_items() -> BadResponse:
    return BadResponse(detail=f"More than {MAX_ITEMS:,} items in one answer.")


def is_well_formed(delta: Delta) -> bool:
    """Whether texts are strings and counts are numbers, whatever the provider sent."""
    check = _CHECKS.get(type(delta))
    return check is None or check(delta)


def _has_valid_text(delta: Any) -> bool:
    return isinstance(delta.text, str)


def _has_valid_call(delta: Any) -> bool:
    return (
        isinstance(delta.call_id, str)
        and isinstance(delta.name, str)
        and isinstance(delta.arguments, str)
        and isinstance(delta.namespace, str)
    )


def _has_valid_arguments(delta: Any) -> bool:
    return delta.arguments is None or isinstance(delta.arguments, str)


def _has_valid_counts(delta: Any) -> bool:
    counts = [getattr(delta, name) for name in _COUNTS]
    has_numbers = all(
        count is None or isinstance(count, int | float) for count in counts
    )
    return has_numbers and isinstance(delta.tier, str | None)


def sanitize(delta: Delta) -> None:
    """Sanitize the fields that arrive complete, so that they can be stored.

    Streamed text is left to `ResponseBuilder`: a surrogate pair may be split over two
    deltas.
    """
    for name in _WHOLE.get(type(delta), ()):
        if value := getattr(delta, name):
            setattr(delta, name, sanitize_json(value))


_WHOLE: dict[type, tuple[str, ...]] = {
    StartDelta: ("response_id", "model"),
    ToolCallDelta: ("call_id", "name", "namespace"),
    AnnotationDelta: ("annotation",),
    ItemDelta: ("item",),
    ProofDelta: ("raw",),
    FinishDelta: ("raw",),
}
_COUNTS = [
    name for name in UsageDelta.__slots__ if name not in ("apart", "raw", "tier")
]
_CHECKS: dict[type, Callable[[Any], bool]] = {
    TextDelta: _has_valid_text,
    ReasoningDelta: _has_valid_text,
    RefusalDelta: _has_valid_text,
    ToolCallDelta: _has_valid_call,
    CloseDelta: _has_valid_arguments,
    UsageDelta: _has_valid_counts,
    AnnotationDelta: lambda delta: isinstance(delta.annotation, dict),
    ItemDelta: lambda delta: isinstance(delta.item.get("type"), str),
    StartDelta: lambda delta: (
        isinstance(delta.response_id, str) and isinstance(delta.model, str)
    ),
}
