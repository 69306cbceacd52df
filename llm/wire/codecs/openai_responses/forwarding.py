"""A client's Responses body, as this host takes it.

In: the client's own JSON. Out: the same, stateless, in the dialect of the host. An
input with items that this server made from another API's answer is no such body
(`has_own_items`): their ids mean nothing to the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from llm.wire.codecs.feature_fallbacks import open_schema
from llm.wire.forwarding.codec import change_objects
from llm.wire.forwarding.sealed_text import is_sealed

#: Ids that `items.new_id` makes: 12 hexadecimal digits of the time, and 20 more.
_OWN_ID = re.compile(r"[a-z]+_01[89a-f][0-9a-f]{29}")
_CUSTOM_CALL, _CUSTOM_OUTPUT = "custom_tool_call", "custom_tool_call_output"
#: Fields that this server serves from its own database.
SERVED = frozenset({"background", "conversation", "previous_response_id"})


def fit_body(
    body: dict[str, Any],
    *,
    developer_role: bool,
    strict_schemas: bool,
    reports_own_calls: bool,
) -> dict[str, Any]:
    """Change `body` in place, and none of its values."""
    for name in SERVED.intersection(body):
        del body[name]
    body["store"] = False
    if not reports_own_calls and isinstance(items := body.get("input"), list):
        body["input"] = _without_xai_calls(items, body.get("tools"))
    if not developer_role:
        body["input"] = change_objects(body.get("input"), _as_system)
    if not strict_schemas:
        if "tools" in body:
            body["tools"] = change_objects(
                body["tools"], partial(_opened, strict=False)
            )
        if isinstance(text := body.get("text"), dict) and text.get("format"):
            body["text"] = {**text, "format": open_schema(text["format"])}
    return body


def has_own_items(body: Any) -> bool:
    """Whether the input has items, or their fields, that only this server knows."""
    items = body.get("input")
    return isinstance(items, list) and any(
        _is_own(item) for item in items if isinstance(item, dict)
    )


def has_own_id(item: Mapping[str, Any]) -> bool:
    id = item.get("id")
    return isinstance(id, str) and _OWN_ID.fullmatch(id) is not None


def _is_own(item: dict[str, Any]) -> bool:
    kind = item.get("type")
    if has_own_id(item):
        return True
    if isinstance(kind, str) and kind.startswith("parley:"):
        return True
    if is_sealed(item.get("encrypted_content")):
        return True
    return any(name.startswith("parley:") for name in item)


def _without_xai_calls(items: list[Any], tools: Any) -> Any:
    """Without calls of xAI's own tools, for whose outputs other hosts wait."""
    objects = [item for item in items if isinstance(item, dict)]
    if not any(item.get("type") == _CUSTOM_CALL for item in objects):
        return items
    answered = [i.get("call_id") for i in objects if i.get("type") == _CUSTOM_OUTPUT]
    offered = tools if isinstance(tools, list) else ()
    own = [tool.get("name") for tool in offered if isinstance(tool, dict)]

    def unless_xais(item: dict[str, Any]) -> dict[str, Any] | None:
        is_call = item.get("type") == _CUSTOM_CALL and item.get("name") not in own
        return None if is_call and item.get("call_id") not in answered else item

    return change_objects(items, unless_xais)


def _as_system(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "role": "system"} if item.get("role") == "developer" else item


def _opened(tool: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    if tool.get("type") != "function":
        return tool
    opened = open_schema(tool.get("parameters"))
    if opened == tool.get("parameters") and not tool.get("strict"):
        return tool
    return {**tool, "parameters": opened, "strict": strict}
