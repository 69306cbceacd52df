"""The tools that code offers; rows of `tools.models.Tool` say which are on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Replay = Literal["safe", "idempotent", "once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who calls and why; a tool's function gets it by annotating a parameter with
    it."""

    user_id: int | None = None
    conversation_id: str = ""
    turn_id: str = ""
    call_id: str = ""
    #: The same in every try of one call; give it to the world outside.
    idempotency_key: str = ""
    #: Tell how far the work is: `progress("3 of 10 pages")`.
    progress: Callable[[str], None] = field(default=lambda message: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as a turn uses it."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON Schema of an object
    #: Returns the output for the model; raises anything to fail.
    call: Callable[[Context, dict[str, Any]], Awaitable[str | list[dict[str, Any]]]]
    timeout: float = 30.0  # seconds
    replay: Replay = "once"  # what a crash may repeat
    blocking: bool = True
    label: str = ""  # what people see; defaults to the name

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as a model is told of it, in the Responses shape."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "strict": False,
        }
