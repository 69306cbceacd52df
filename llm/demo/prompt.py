"""`DemoPrompt`: a request to the demo, independent of the API that received it. Pure.

`chat` and `responses_request` parse a body into it (see `request_schemas`); `script`
makes the answer from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from llm.demo.words import words

_FILES = re.compile(r'\A(?:<file name="[^"\n]*">\n.*?\n</file>\s*)+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    text: str
    attachments: int = 0  # images and files


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the demo may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)  # JSON Schema


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call that the demo made earlier, with the tool's output."""

    name: str
    arguments: Mapping[str, Any]
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPrompt:
    messages: Sequence[Message]  # oldest first
    answered: Sequence[AnsweredCall] = ()  # since the last user message, oldest first
    tools: Sequence[OfferedTool] = ()  # those that `tool_choice` allows
    must_call: bool = False
    parallel: bool = True
    effort: str = ""  # of reasoning; "" is none
    schema: Mapping[str, Any] | bool | None = None  # of a structured answer
    max_words: int | None = None

    @property
    def user_messages(self) -> list[Message]:
        """The messages of the user, oldest first."""
        return [message for message in self.messages if message.role == "user"]

    @property
    def question(self) -> str:
        """The last user message, without the files that stand as text before it."""
        return _FILES.sub("", self.user_messages[-1].text) if self.user_messages else ""

    def with_question(self, question: str) -> DemoPrompt:
        """A copy with another text in the last user message."""
        messages = list(self.messages)
        for index in reversed(range(len(messages))):
            if messages[index].role == "user":
                messages[index] = replace(messages[index], text=question)
                break
        return replace(self, messages=messages)

    @property
    def size(self) -> int:
        """Number of words in the request, which the demo counts as input tokens."""
        texts = [message.text for message in self.messages]
        texts += [f"{call.name} {call.output}" for call in self.answered]
        texts += [f"{tool.name} {tool.description}" for tool in self.tools]
        return sum(len(words(text)) for text in texts)


@dataclass(slots=True)
class CallHistory:
    """Pairs the calls of a history with their outputs, as strictly as OpenAI does."""

    _open: dict[str, tuple[str, str]] = field(default_factory=dict)
    _answered: list[AnsweredCall] = field(default_factory=list)

    def add_call(self, id: str, name: str, arguments: str) -> None:
        self._open[id] = (name, arguments)

    def add_output(self, id: str, text: str) -> bool:
        """Record a call's output. Returns False if no such call is unanswered."""
        if id not in self._open:
            return False
        name, arguments = self._open.pop(id)
        self._answered.append(AnsweredCall(name, _object(arguments), text))
        return True

    def start_turn(self) -> None:
        """Drop earlier outputs, as a new user message begins another question."""
        self._answered.clear()

    @property
    def unanswered_ids(self) -> list[str]:
        return list(self._open)

    @property
    def answered(self) -> list[AnsweredCall]:
        return list(self._answered)


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
