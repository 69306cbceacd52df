"""Claude's computer actions as actions of the Responses API.

In: a `tool_use` block of the toolset "computer". Out: a `computer_call` item, which the
client carries out and answers with a screenshot. The original block is sent back to
Anthropic, so nothing is lost. Actions that the Responses API does not have become
`parley:<Anthropic's name>` with Anthropic's own fields.

A click of the wheel counts as 100 pixels. A missing coordinate means the pointer's
position.

Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/computer-use-tool
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.items import Item

Action = dict[str, Any]

TOOLSET = "computer"
_MEMBERS = frozenset(
    {
        "cursor_position",
        "double_click",
        "hold_key",
        "key",
        "left_click",
        "left_click_drag",
        "left_mouse_down",
        "left_mouse_up",
        "middle_click",
        "mouse_move",
        "right_click",
        "screenshot",
        "scroll",
        "triple_click",
        "type",
        "wait",
        "zoom",
    }
)
_BUTTONS = {"left_click": "left", "right_click": "right", "middle_click": "wheel"}
_WHEEL = 100  # pixels of one click of the wheel
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_MOST_REPEATS = 100


def is_action(block: Mapping[str, Any]) -> bool:
    return block.get("toolset_name") == TOOLSET and block.get("name") in _MEMBERS


def computer_call(block: Mapping[str, Any]) -> Item:
    """The `computer_call` item of a block whose input is complete."""
    arguments = block.get("input") or {}
    action = _action(block["name"], arguments)
    item: Item = {
        "type": "computer_call",
        "call_id": block["id"],
        "pending_safety_checks": [],
    }
    repeats = arguments.get("repeat") if block["name"] == "key" else 1
    if isinstance(repeats, int) and repeats > 1:
        return {**item, "actions": [action] * min(repeats, _MOST_REPEATS)}
    return {**item, "action": action}


def _action(name: str, arguments: Mapping[str, Any]) -> Action:
    match name:
        case "left_click" | "right_click" | "middle_click":
            button = {"type": "click", "button": _BUTTONS[name]}
            return {**button, **_position(arguments), **_modifier_keys(arguments)}
        case "double_click":
            return {
                "type": "double_click",
                **_position(arguments),
                **_modifier_keys(arguments),
            }
        case "mouse_move":
            return {"type": "move", **_position(arguments), **_modifier_keys(arguments)}
        case "left_click_drag":
            path = [
                _point(arguments.get(n)) for n in ("start_coordinate", "coordinate")
            ]
            return {"type": "drag", "path": path, **_modifier_keys(arguments)}
        case "key":
            return {"type": "keypress", "keys": _keys(arguments.get("text"))}
        case "type":
            return {"type": "type", "text": arguments.get("text") or ""}
        case "screenshot":
            return {"type": "screenshot"}
        case "wait":
            return {"type": "wait", "parley:seconds": arguments.get("duration")}
        case "scroll":
            return {
                "type": "scroll",
                **_position(arguments),
                **_scroll_distance(arguments),
                **_modifier_keys(arguments),
            }
    return {"type": f"parley:{name}", **arguments}


def _position(arguments: Mapping[str, Any]) -> Action:
    return _point(arguments["coordinate"]) if arguments.get("coordinate") else {}


def _point(coordinate: Any) -> Action:
    match coordinate:
        case [x, y]:
            return {"x": x, "y": y}
    return {}


def _scroll_distance(arguments: Mapping[str, Any]) -> Action:
    x, y = _DIRECTIONS.get(str(arguments.get("scroll_direction")), (0, 0))
    clicks = arguments.get("scroll_amount") or 0
    return {"scroll_x": x * clicks * _WHEEL, "scroll_y": y * clicks * _WHEEL}


def _modifier_keys(arguments: Mapping[str, Any]) -> Action:
    return {"keys": _keys(arguments["text"])} if arguments.get("text") else {}


def _keys(text: Any) -> list[str]:
    """The keys of a combination: "ctrl+s" are two; a "+" by itself is one."""
    return [key for key in str(text or "").split("+") if key] or ["+"]
