"""Gemini's function calls, complete or in pieces."""

from __future__ import annotations

import json
import re
from itertools import islice, pairwise
from typing import Any

from llm.errors import BadResponse
from llm.wire.codecs.gemini.original_parts import Part
from llm.wire.items import Item, is_portable_call_id

#: Models that were trained to write code may add this namespace to a function's name.
_NAMESPACE = re.compile(r"\Adefault_api[.:]")
#: `.name`, `[0]`, `['a name']` and `["a name"]` of a JSON path.
_STEP = re.compile(
    r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]"""
)
MAX_CALLS = 1000  # in one answer
MAX_STEPS = 100  # in a path; JSON that is nested deeper is no arguments
MAX_PIECES = 1000  # in one part; Vertex sends one
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def call_name(call: dict[str, Any]) -> str:
    return _NAMESPACE.sub("", call.get("name") or "", count=1)


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class StreamedCall:
    """A call whose arguments arrive as values at JSON paths (Vertex, on request).

    A value extends the last one at the same path if that one announced more.
    """

    def __init__(self, part: Part) -> None:
        self._part = {k: v for k, v in part.items() if k != "functionCall"}
        call = part["functionCall"]
        self._call = {k: call[k] for k in ("id", "name") if call.get(k)}
        self._open = ""  # path of the text that will be extended
        self._pieces: list[str] = []  # of that text
        self._arguments: dict[str, Any] = {}

    def feed(self, part: Part) -> bool:
        """Returns whether this piece is the last. Raises BadResponse for an invalid
        path, and for more than `MAX_PIECES` values at once."""
        if signature := part.get("thoughtSignature"):
            self._part["thoughtSignature"] = signature
        call = part["functionCall"] or {}
        if id := call.get("id"):
            self._call["id"] = id
        self._arguments |= call.get("args") or {}
        pieces = call.get("partialArgs") or ()
        if len(pieces) > MAX_PIECES:
            raise BadResponse(detail="A part has too many partial arguments.")
        for piece in pieces:
            self._set(piece)
        return not call.get("willContinue")

    @property
    def arguments(self) -> dict[str, Any]:
        self._close_text()
        return self._arguments

    def part(self) -> Part:
        """The part as the model would have sent it in one piece."""
        return {
            **self._part,
            "functionCall": {**self._call, "args": self.arguments},
        }

    def _set(self, piece: dict[str, Any]) -> None:
        path = piece.get("jsonPath") or ""
        value = _value(piece)
        goes_on = bool(path) and path == self._open and isinstance(value, str)
        if not goes_on:
            self._close_text()
            self._put(path, value)
        # Joined at the end: megabytes may arrive in pieces of a few characters.
        self._pieces.append(value if isinstance(value, str) else "")
        self._open = path
        if not piece.get("willContinue"):
            self._close_text()

    def _close_text(self) -> None:
        if len(self._pieces) > 1:
            self._put(self._open, "".join(self._pieces))
        self._open, self._pieces = "", []

    def _put(self, path: str, value: Any) -> None:
        steps = _steps(path)
        container: Any = self._arguments
        for step, following in pairwise(steps):
            container = _within(
                container, step, [] if isinstance(following, int) else {}
            )
        _within(container, steps[-1], value)
        container[steps[-1]] = value


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for found in islice(_STEP.finditer(path.removeprefix("$")), MAX_STEPS + 1):
        name, index, quoted, double = found.groups()
        if index:
            steps.append(int(index[:9]))  # far beyond any list
        else:
            steps.append(name or re.sub(r"\\(.)", r"\1", quoted or double or ""))
    if len(steps) > MAX_STEPS:
        raise BadResponse(detail="A partial argument is nested too deeply.")
    if not steps:
        raise BadResponse(detail="A partial argument has an invalid path.")
    return steps


def _within(container: Any, step: str | int, new: Any) -> Any:
    """The value at `step` of `container`, set to `new` if it is missing."""
    if isinstance(container, dict) and isinstance(step, str):
        return container.setdefault(step, new)
    if isinstance(container, list) and isinstance(step, int) and step <= len(container):
        if step == len(container):
            container.append(new)
        return container[step]
    raise BadResponse(detail="A partial argument is out of order.")


def _value(piece: dict[str, Any]) -> Any:
    found = ((name, piece.get(name)) for name in _VALUES)
    name, value = next(((n, v) for n, v in found if v is not None), ("", None))
    return None if name == "nullValue" else value


def signed_call(call: Item, signature: str) -> list[dict[str, Any]]:
    """The parts of a call whose signature came without its part."""
    try:
        args = json.loads(call["arguments"] or "{}")
    except ValueError:
        args = {}
    id = call["call_id"]
    named = {"id": id} if is_portable_call_id(id) else {}
    part = {"functionCall": {**named, "name": call["name"], "args": args}}
    return [{**part, "thoughtSignature": signature}]
