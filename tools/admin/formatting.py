"""Formatting of tool results and JSON for admin pages."""

from __future__ import annotations

import json
from typing import Any

from tools.execution.output import Output


def format_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=dict)


def display_parts(output: Output) -> list[dict[str, Any]]:
    """Each part as text or as an image; other parts as JSON text."""
    if isinstance(output, str):
        return [{"text": _readable(output)}]
    return [
        {"image": part["image_url"]}
        if part.get("type") == "input_image" and "image_url" in part
        else {"text": part.get("text") or format_json(part)}
        for part in output
    ]


def _readable(text: str) -> str:
    """The text, indented if it is a JSON object or array."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return format_json(value) if isinstance(value, dict | list) else text
