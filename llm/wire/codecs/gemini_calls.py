"""Function calls as Gemini says them, whole or in pieces."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from llm.errors import BadResponse
from llm.wire.codecs.gemini_parts import Part

#: How a model that was trained to write code may call what we have declared.
_NAMESPACE = re.compile(r"\Adefault_api[.:]")
#: `.name`, `[0]`, `['a name']` and `["a name"]` of a JSON path.
_STEP = re.compile(
    r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]"""
)
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def call_name(call: dict[str, Any]) -> str:
    return _NAMESPACE.sub("", call.get("name") or "", count=1)


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class StreamedCall:
    """A call whose arguments come as values at JSON paths (Vertex, when asked to).

    A value goes on where the last one at the same path said so.
    """

    def __init__(self, part: Part) -> None:
        self._part = {k: v for k, v in part.items() if k != "functionCall"}
        call = part["functionCall"]
        self._call = {k: call[k] for k in ("id", "name") if call.get(k)}
        self._open = ""  # path of the text that goes on
        self.arguments: dict[str, Any] = {}

    def feed(self, part: Part) -> bool:
        """True where this piece is the last. Raises BadResponse for a bad path."""
        if signature := part.get("thoughtSignature"):
            self._part["thoughtSignature"] = signature
        call = part["functionCall"] or {}
        if id := call.get("id"):
            self._call["id"] = id
        self.arguments |= call.get("args") or {}
        for piece in call.get("partialArgs") or ():
            self._set(piece)
        return not call.get("willContinue")

    def part(self) -> Part:
        """The part as the model would have said it in one piece."""
        return {
            **self._part,
            "functionCall": {**self._call, "args": self.arguments},
        }

    def _set(self, piece: dict[str, Any]) -> None:
        path = piece.get("jsonPath") or ""
        steps = _steps(path)
        place: Any = self.arguments
        for step, following in pairwise(steps):
            place = _within(place, step, [] if isinstance(following, int) else {})
        last = steps[-1]
        value = _value(piece)
        goes_on = path == self._open and isinstance(value, str)
        before = _within(place, last, "" if goes_on else value)
        place[last] = before + value if goes_on else value
        self._open = path if piece.get("willContinue") else ""


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for name, index, quoted, double in _STEP.findall(path.removeprefix("$")):
        if index:
            steps.append(int(index))
        else:
            steps.append(name or re.sub(r"\\(.)", r"\1", quoted or double))
    if not steps:
        raise BadResponse(detail="A partial argument belongs nowhere.")
    return steps


def _within(place: Any, step: str | int, new: Any) -> Any:
    """What is at `step` of `place`, `new` where nothing was."""
    if isinstance(place, dict) and isinstance(step, str):
        return place.setdefault(step, new)
    if isinstance(place, list) and isinstance(step, int) and step <= len(place):
        if step == len(place):
            place.append(new)
        return place[step]
    raise BadResponse(detail="A partial argument is out of its order.")


def _value(piece: dict[str, Any]) -> Any:
    name = next((name for name in _VALUES if name in piece), None)
    return None if name in (None, "nullValue") else piece[name]
