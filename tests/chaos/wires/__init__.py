"""The four wire formats as a provider speaks them, by the path of a request."""

from __future__ import annotations

from .anthropic import AnthropicWire
from .chat import ChatWire
from .gemini import GeminiWire
from .responses import ResponsesWire
from .wire import Frame, Wire

__all__ = ["WIRES", "Frame", "Wire", "wire_at"]

WIRES: dict[str, Wire] = {
    wire.name: wire
    for wire in (ChatWire(), ResponsesWire(), AnthropicWire(), GeminiWire())
}


def wire_at(path: str) -> Wire | None:
    return next((wire for wire in WIRES.values() if wire.is_at(path)), None)
