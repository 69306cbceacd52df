"""Encoding of the writers' objects as frames of Server-Sent Events.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from typing import Any

import orjson

from llm.wire.sanitize import sanitize_json

DONE = b"data: [DONE]\n\n"


def dumps(value: Any) -> bytes:
    """`value` as valid JSON.

    Providers' texts are sanitized already; texts of the client come back in echoes, and
    half a surrogate pair in one of them must not end the stream.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(sanitize_json(value))


def data_frame(value: Any) -> bytes:
    return b"data: %b\n\n" % dumps(value)


def event_frame(value: dict[str, Any]) -> bytes:
    """A frame named by the value's own `type`."""
    return frame_of_data(value["type"].encode(), dumps(value))


def frame_of_data(kind: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind, data)
