"""Values as staff read them."""

from __future__ import annotations

import json
from typing import Any

from tools.output import Output


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=dict)


def shown_parts(output: Output) -> list[dict[str, Any]]:
    """Text to read and pictures to see; of anything else its JSON."""
    if isinstance(output, str):
        return [{"text": _readable(output)}]
    return [
        {"image": part["image_url"]}
        if part.get("type") == "input_image" and "image_url" in part
        else {"text": part.get("text") or pretty(part)}
        for part in output
    ]


def _readable(text: str) -> str:
    """JSON is indented; all other text stays as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return pretty(value) if isinstance(value, dict | list) else text
