"""What the two wires of the demo have in common."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

import orjson

from llm.demo.prompt import Prompt
from llm.demo.steps import Script

T = TypeVar("T")

_TRANSPORT = frozenset({"stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class Frame:
    data: bytes
    word: bool = False  # comes at the pace of speech


class Wire(Protocol):
    """One request: read when made (raises Problem), answered once."""

    prompt: Prompt
    model: str
    stream: bool

    def __init__(self, body: dict[str, Any]) -> None: ...

    def frames(self, script: Script) -> Iterator[Frame]: ...

    def whole(self, script: Script) -> dict[str, Any]:
        """The answer that does not stream. Raises Problem where it fails."""
        ...


class Ids:
    """The same request gets the same ids, streamed or not."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        asked = {name: body[name] for name in body if name not in _TRANSPORT}
        text = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
        self._seed = hashlib.sha256(text).digest()
        self.created_at = int(time.time())

    def make(self, prefix: str, number: int = 0) -> str:
        seed = b"%b%d%b" % (prefix.encode(), number, self._seed)
        return prefix + hashlib.sha256(seed).hexdigest()[:32]


def half(events: Iterable[T], again: Iterable[T]) -> Iterator[T]:
    """The first half of `events`, counted on the same stream made `again`."""
    return islice(iter(events), sum(1 for _ in again) // 2)
