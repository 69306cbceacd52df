"""The interface and helpers that the demo's two APIs share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

import orjson

from llm.demo.prompt import DemoPrompt
from llm.demo.steps import Script

T = TypeVar("T")

_TRANSPORT = frozenset({"stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class Frame:
    data: bytes
    is_word: bool = False  # followed by a pause of the model's pace


class Wire(Protocol):
    """One request to an API of the demo. The constructor parses it; raises Problem."""

    prompt: DemoPrompt
    model: str
    stream: bool

    def __init__(self, body: dict[str, Any]) -> None: ...

    def frames(self, script: Script) -> Iterator[Frame]: ...

    def response_body(self, script: Script) -> dict[str, Any]:
        """The body of an answer without streaming. Raises Problem."""
        ...


class Ids:
    """Ids derived from the request: the same request gets the same, streamed or not."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        content = {name: body[name] for name in body if name not in _TRANSPORT}
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        self._seed = hashlib.sha256(text).digest()
        self.created_at = int(time.time())

    def make(self, prefix: str, number: int = 0) -> str:
        seed = b"%b%d%b" % (prefix.encode(), number, self._seed)
        return prefix + hashlib.sha256(seed).hexdigest()[:32]


def first_half(events: Iterable[T], again: Iterable[T]) -> Iterator[T]:
    """The first half of `events`; `again` is the same stream, consumed to count it."""
    return islice(iter(events), sum(1 for _ in again) // 2)
