"""A writer's objects as bytes of a stream of Server-Sent Events.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"


def dumps(value: Any) -> bytes:
    """`value` as JSON that anybody can read.

    Text has been mended by the builder; ids, names and receipts are as a provider sent
    them, and half a surrogate pair in one of them must not end the stream.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_mended(value))


def data_frame(value: Any) -> bytes:
    return b"data: %b\n\n" % dumps(value)


def event_frame(value: dict[str, Any]) -> bytes:
    """Named by its own `type`."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), dumps(value))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        whole = value.encode("utf-16-le", "surrogatepass")
        return whole.decode("utf-16-le", "replace")
    if isinstance(value, list | tuple):
        return [_mended(each) for each in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(each) for name, each in value.items()}
    return value
