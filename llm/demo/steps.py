"""The steps of a demo answer, which `chat` and `responses` encode. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llm.demo.words import pieces, words


@dataclass(frozen=True, slots=True)
class Think:
    parts: tuple[str, ...]  # paragraphs of the summary

    @property
    def size(self) -> int:  # words
        return sum(len(words(part)) for part in self.parts)

    def cut(self, size: int) -> Think:
        parts: list[str] = []
        for part in self.parts:
            if size > 0:
                parts.append("".join(words(part)[:size]))
            size -= len(words(part))
        return Think(tuple(parts))


@dataclass(frozen=True, slots=True)
class Say:
    text: str
    phase: Literal["commentary", "final_answer"] = "final_answer"

    @property
    def size(self) -> int:
        return len(words(self.text))

    def cut(self, size: int) -> Say:
        return replace(self, text="".join(words(self.text)[:size]))


@dataclass(frozen=True, slots=True)
class CallTool:
    name: str
    arguments: str  # JSON

    @property
    def size(self) -> int:
        return 1 + len(pieces(self.arguments))

    def cut(self, size: int) -> CallTool:
        return replace(self, arguments="".join(pieces(self.arguments)[: size - 1]))


Step = Think | Say | CallTool
#: `error` and `cut` stop half-way: with an error event, or by closing the connection.
Ending = Literal["whole", "length", "error", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    steps: Sequence[Step]
    ending: Ending = "whole"
    delay: float = 0.0  # seconds before the first word

    @property
    def size(self) -> int:
        return sum(step.size for step in self.steps)

    @property
    def reasoning_size(self) -> int:
        return sum(step.size for step in self.steps if isinstance(step, Think))

    def truncate(self, size: int | None) -> Script:
        """The script cut after `size` words, as by `max_output_tokens`."""
        if size is None or self.size <= size:
            return self
        truncated: list[Step] = []
        for step in self.steps:
            if size > 0:
                truncated.append(step if step.size <= size else step.cut(size))
            size -= step.size
        return replace(self, steps=truncated, ending="length")
