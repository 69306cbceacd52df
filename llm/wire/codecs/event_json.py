"""JSON of one event of a host's stream, for the decoders. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from llm.errors import BadResponse
from llm.wire.classify_errors import classify_error, is_error_list
from llm.wire.sse import ServerSentEvent


def parse_event(event: ServerSentEvent) -> Any:
    """Raises BadResponse, or what the text of an event named `error` says."""
    try:
        return event.json()
    except ValueError as exc:
        if event.event == "error":
            raise classify_error(event.data.decode(errors="replace")) from exc
        raise BadResponse(detail="The event is not JSON.") from exc


def parse_event_object(
    event: ServerSentEvent, names: Container[str] = ()
) -> dict[str, Any]:
    """Raises BadResponse, or the error that stands in place of an object.

    `names`: those of the events that the decoder reads. An event of another name need
    be no JSON: {} stands for it.
    """
    try:
        data = parse_event(event)
    except BadResponse:
        if not names or event.event in ("message", "error") or event.event in names:
            raise
        return {}
    if not isinstance(data, dict):
        if is_error_list(data):
            raise classify_error(data)
        raise BadResponse(detail="The event is not a JSON object.")
    return data
