"""What a wire format has to offer: prompts read, answers and errors written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.chaos.answers import Answer
from tests.chaos.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream. `is_content`: the answer has begun; `ends`: it ends
    here."""

    data: bytes
    is_content: bool = False
    ends: bool = False


class Wire(Protocol):
    name: str

    def is_at(self, path: str) -> bool: ...

    def read(self, path: str, body: Any) -> Prompt | None:
        """None if no message contains a wish."""
        ...

    def frames(self, answer: Answer, id: str) -> Iterator[Frame]:
        """The answer as a stream; `id` is unique."""
        ...

    def error(self, status: int) -> Mapping[str, Any]:
        """The body of a refusal."""
        ...

    def error_frames(self) -> Sequence[Frame]:
        """An error in the middle of a stream."""
        ...

    def unfinished(self) -> bytes:
        """The end of a stream without a finish reason; b"" if only the connection
        ends."""
        ...


def event(data: Any, name: str = "", end: bytes = b"\n") -> bytes:
    head = b"event: %s%s" % (name.encode(), end) if name else b""
    return head + b"data: %s%s%s" % (json.dumps(data).encode(), end, end)


def text_of(content: Any) -> str:
    """Of a text, or of a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""
