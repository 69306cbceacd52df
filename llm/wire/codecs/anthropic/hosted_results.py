"""Receipts: results of Anthropic's own tools as items that any client can read.

In: the block of a call that ran at the provider (`server_tool_use`, `mcp_tool_use`) and
the block of its result. Out: one item for both, in the shape that the Responses API has
for it. A receipt is never executed. Anthropic gets the original blocks back. Tools
without such a shape become an `mcp_call` of the server "anthropic".

Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from llm.wire.items import SUMMARY, Item, add_quotation

Block = dict[str, Any]


def call_receipt(block: Block) -> Item:
    """The receipt of a call without a result."""
    name, arguments = str(block.get("name") or ""), block.get("input") or {}
    if server := block.get("server_name"):  # an MCP server's tool may have any name
        return _mcp_call(server, name, arguments)
    match name:
        case "web_search":
            return _search({"type": "search", "query": arguments.get("query") or ""})
        case "web_fetch":
            return _search({"type": "open_page", "url": arguments.get("url") or ""})
        case _ if name.endswith("code_execution"):
            return _code(arguments.get("code") or _command(arguments))
    return _mcp_call("anthropic", name, arguments)


def finish_receipt(item: Item, result: Block) -> Item:
    """The receipt with the call's result."""
    content = result.get("content")
    failure = _failure(result)
    status = {"status": "failed"} if failure or _has_failed(content) else {}
    match item["type"]:
        case "web_search_call":
            return {**item, "action": _add_sources(item["action"], content), **status}
        case "code_interpreter_call":
            logs = failure or _program_output(content)
            outputs = [{"type": "logs", "logs": logs}] if logs else []
            return {**item, "outputs": outputs, **status}
    error = failure or None
    return {
        **item,
        "output": None if error else _text(content),
        "error": error,
        **status,
    }


def receipt_without_call(result: Block) -> Item:
    """The receipt of a result whose call is in an earlier response (after a pause)."""
    name = str(result["type"]).removesuffix("_tool_result")
    return call_receipt({"name": name, "input": {}})


def tool_list_item(block: Block) -> Item:
    """The item that lists the tools of an MCP server."""
    tools = [
        {
            "name": tool.get("name") or "",
            "description": tool.get("description"),
            "input_schema": tool.get("input_schema") or {},
        }
        for tool in block.get("tools") or ()
    ]
    return {
        "type": "mcp_list_tools",
        "server_label": block.get("mcp_server_name") or "",
        "tools": tools,
    }


def upload_item(block: Block) -> Item:
    """The receipt of a file in the container of programs."""
    logs = [{"type": "logs", "logs": _file_note(str(block.get("file_id") or ""))}]
    return {**_code(""), "outputs": logs}


def compaction_item(block: Block) -> Item:
    """The item of a summary, which is readable: other hosts get it as a text."""
    encrypted = block.get("encrypted_content") or ""
    item = {"type": "compaction", "encrypted_content": encrypted}
    text = block.get("content")
    return {**item, SUMMARY: text} if isinstance(text, str) and text else item


def citation(source: Mapping[str, Any], start: int, end: int) -> dict[str, Any] | None:
    """An annotation in the Responses shape, for the characters from `start` to `end`.

    Anthropic cites for a whole text block. Pages become `url_citation`, the user's own
    documents `file_citation`.
    """
    words = source.get("cited_text")
    if url := source.get("url") or source.get("source"):
        page = {
            "type": "url_citation",
            "url": url,
            "title": source.get("title") or "",
            "start_index": start,
            "end_index": end,
        }
        add_quotation(page, words)
        return page
    if (index := source.get("document_index")) is None:
        return None
    document = {
        "type": "file_citation",
        "file_id": source.get("file_id") or "",
        "filename": source.get("document_title") or "",
        "index": index,
        "start_index": start,
        "end_index": end,
    }
    add_quotation(document, words)
    return document


def _search(action: dict[str, Any]) -> Item:
    return {"type": "web_search_call", "action": action}


def _code(code: str) -> Item:
    return {
        "type": "code_interpreter_call",
        "code": code,
        "container_id": "",
        "outputs": [],
    }


def _mcp_call(server: str, name: str, arguments: Any) -> Item:
    return {
        "type": "mcp_call",
        "server_label": server,
        "name": name,
        "arguments": orjson.dumps(arguments).decode(),
        "output": None,
        "error": None,
    }


def _command(arguments: Mapping[str, Any]) -> str:
    """The command of a shell, or the JSON of an editor's action."""
    if set(arguments) <= {"command", "restart"}:
        return str(arguments.get("command") or "")
    return orjson.dumps(arguments).decode()


def _add_sources(action: dict[str, Any], content: Any) -> dict[str, Any]:
    if action["type"] == "search" and isinstance(content, list):
        hits = [hit for hit in content if isinstance(hit, dict) and hit.get("url")]
        return {**action, "sources": [_source(hit) for hit in hits]}
    if action["type"] == "open_page" and isinstance(content, dict):
        return {**action, "url": content.get("url") or action["url"]}
    return action


def _source(hit: dict[str, Any]) -> dict[str, Any]:
    source = {"type": "url", "url": hit["url"]}
    return {**source, "title": hit["title"]} if hit.get("title") else source


def _program_output(content: Any) -> str:
    """The output of a program, or the text that an editor returned."""
    if not isinstance(content, dict):
        return ""
    printed = [content.get(name) for name in ("stdout", "stderr", "content")]
    texts = [text for text in printed if isinstance(text, str)]
    return "".join([*texts, *map(_file_note, _files(content.get("content")))])


def _files(content: Any) -> list[str]:
    """Ids of the files that a program has written."""
    written = content if isinstance(content, list) else ()
    ids = [file.get("file_id") for file in written if isinstance(file, dict)]
    return [id for id in ids if isinstance(id, str)]


def _file_note(id: str) -> str:
    return f"[file {id}]\n"


def _has_failed(content: Any) -> bool:
    """Whether a program ended with an error."""
    return isinstance(content, dict) and bool(content.get("return_code"))


def _failure(result: Block) -> str:
    content = result.get("content")
    if isinstance(content, dict) and str(content.get("type")).endswith("_error"):
        return str(content.get("error_code") or "failed")
    return (_text(content) or "failed") if result.get("is_error") else ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    if isinstance(content, dict):
        text = content.get("text")
        return text if isinstance(text, str) else orjson.dumps(content).decode()
    return content if isinstance(content, str) else ""
