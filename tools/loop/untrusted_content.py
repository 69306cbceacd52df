"""Whether content that others wrote has entered a model's request. Pure.

Web pages, mails, files and the outputs of MCP servers may contain instructions to the
model. A model cannot be relied on to ignore them, so calls that change something ask a
person from then on (`RuntimeTool.asks_after_untrusted`).

Source: https://genai.owasp.org/llmrisk/llm01-prompt-injection/
Source: https://simonwillison.net/2025/Jun/16/the-lethal-trifecta/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llm.wire.items import Item
from tools.execute import find_tool_name
from tools.loop.late_results import CALL_ID_KEY, CALL_NAME_KEY
from tools.runtime_tool import RuntimeTool

#: Items and parts of messages that hold no content of others.
_OWN_ITEMS = frozenset({"function_call", "image_generation_call", "reasoning"})
_OWN_PARTS = frozenset({"input_text", "output_text", "refusal", "text"})


def has_untrusted_content(
    items: Iterable[Item], tools: Mapping[str, RuntimeTool]
) -> bool:
    """Whether `items` hold content that others may have written: files, summaries,
    results of tools that a provider or a client ran, and of Parley's that read such
    content. The output of a tool that is not among `tools` counts too."""
    names: dict[str, str] = {}
    for item in items:
        match item["type"]:
            case "function_call":
                names[item["call_id"]] = item["name"]
            case "function_call_output":
                if _reads_untrusted(names.get(item["call_id"]), tools):
                    return True
            case "message" if call_id := item.get(CALL_ID_KEY):
                # The call itself may lie in an earlier turn, outside `items`.
                name = names.get(call_id) or item.get(CALL_NAME_KEY)
                if _reads_untrusted(name, tools):
                    return True
            case "message":
                if _has_foreign_part(item["content"]):
                    return True
            case kind if kind not in _OWN_ITEMS:
                return True
    return False


def _reads_untrusted(name: str | None, tools: Mapping[str, RuntimeTool]) -> bool:
    tool = tools.get(find_tool_name(name, tools)) if name else None
    return tool is None or tool.reads_untrusted


def _has_foreign_part(content: Any) -> bool:
    """A file, a picture, or a citation of a page that the provider has read."""
    if isinstance(content, str):
        return False
    return any(
        part.get("type") not in _OWN_PARTS or part.get("annotations")
        for part in content
    )
