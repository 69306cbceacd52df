"""Cards for items of hosted tools, which the provider itself runs. Pure.

In: an item of an answer, complete or still open, from any provider; any field may be
missing. Out: a card of short texts, URLs that are safe to link and pictures that are
safe to show, for the transcript, the timeline and the page's script.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from conversations.turns.tool_display import pretty
from llm.wire.items import Item

MAX_RESULTS = 50  # of one card
LONGEST_TEXT = 2000  # characters of one result


class CardResult(TypedDict, total=False):
    """One result of a hosted tool; each field may be missing."""

    title: str
    url: str  # http or https
    text: str
    image: str  # a data URL of a picture without scripts


class Card(TypedDict):
    """`state` is "executing", "completed", "failed" or "incomplete"."""

    kind: str  # the item's type
    title: str
    state: str
    query: str  # the query, search or action, on one line; "" for none
    code: str  # the code that ran, or arguments as indented JSON
    results: list[CardResult]
    more: int  # number of results that are left out
    error: str


def is_hosted_item(item: Mapping[str, Any]) -> bool:
    """Whether `card_of` shows the item, and not the cards of our own tools."""
    return item.get("type") in _CARD_BUILDERS


def card_of(item: Item) -> Card:
    """The card of an item; for an unknown type, with its fields as JSON."""
    kind = str(item.get("type"))
    build = _CARD_BUILDERS.get(kind, _unknown)
    fields: dict[str, Any] = {"title": _title_from_type(kind), "query": "", "code": ""}
    fields |= {"results": [], "error": _text_of_error(item.get("error"))}
    fields |= build(item)
    results = [result for result in fields.pop("results") if any(result.values())]
    return {
        "kind": kind,
        "title": fields["title"],
        "state": _state(item, fields["error"]),
        "query": _one_line(fields["query"]),
        "code": fields["code"],
        "results": results[:MAX_RESULTS],
        "more": max(0, len(results) - MAX_RESULTS),
        "error": fields["error"],
    }


def _state(item: Item, error: str) -> str:
    status = item.get("status") or "completed"
    if status == "failed" or (error and status == "completed"):
        return "failed"
    return status if status in ("completed", "incomplete") else "executing"


# Kinds

CardFields = dict[str, Any]


def _web_search(item: Item) -> CardFields:
    action = _mapping(item.get("action")) or _old_action(item)
    match action.get("type"):
        case "open_page":
            return {"title": _("Opened a page"), "results": [_page(action)]}
        case "find_in_page":
            query = action.get("pattern") or ""
            return {
                "title": _("Looked through a page"),
                "query": query,
                "results": [_page(action)],
            }
    found = [*_records(action.get("sources")), *_records(item.get("results"))]
    queries = action.get("queries") or action.get("query")
    is_x = item["type"] == "x_search_call"
    title = _("Searched X") if is_x else _("Searched the web")
    return {"title": title, "query": queries, "results": map(_page, found)}


def _old_action(item: Item) -> Mapping[str, Any]:
    """xAI's first format: a function call."""
    arguments = _mapping(_parse_json(item.get("arguments") or item.get("input")))
    return {"type": "search", "query": arguments.get("query")}


def _file_search(item: Item) -> CardFields:
    results = [
        {"title": found.get("filename") or "", "text": _truncate(found.get("text"))}
        for found in _records(item.get("results"))
    ]
    queries = item.get("queries") or []
    return {"title": _("Searched files"), "query": queries, "results": results}


def _code(item: Item) -> CardFields:
    code = item.get("code") or _mapping(_parse_json(item.get("arguments"))).get("code")
    outputs = map(_code_output, _records(item.get("outputs")))
    return {"title": _("Ran code"), "code": str(code or ""), "results": outputs}


def _code_output(output: Mapping[str, Any]) -> CardResult:
    if output.get("type") == "image":
        return _image(output.get("url"))
    return {"text": _truncate(output.get("logs"))}


def _picture(item: Item) -> CardFields:
    data, form = item.get("result"), item.get("output_format")
    query = item.get("revised_prompt") or item.get("prompt") or ""
    return {
        "title": _("Drew an image"),
        "query": query,
        "results": [_inline_image(data, form)],
    }


def _mcp_call(item: Item) -> CardFields:
    output = item.get("output")
    words = (
        _("Called %(tool)s of %(server)s") if _server(item) else _("Called %(tool)s")
    )
    return {
        "title": words % {"tool": _tool(item), "server": _server(item)},
        "code": _pretty(item.get("arguments")),
        "results": [{"text": _truncate(_pretty(output))}] if output else [],
    }


def _mcp_list(item: Item) -> CardFields:
    tools = [
        {
            "title": str(tool.get("name") or ""),
            "text": _truncate(tool.get("description")),
        }
        for tool in _records(item.get("tools"))
    ]
    title = _("Listed the tools of %(server)s")
    server = _server(item) or _("an MCP server")
    return {"title": title % {"server": server}, "results": tools}


def _mcp_request(item: Item) -> CardFields:
    card = _mcp_call({**item, "output": None})
    if _server(item):
        words = _("Asks to call %(tool)s of %(server)s")
    else:
        words = _("Asks to call %(tool)s")
    return {**card, "title": words % {"tool": _tool(item), "server": _server(item)}}


def _tool(item: Item) -> str:
    return str(item.get("name") or _("a tool"))


def _server(item: Item) -> str:
    return str(item.get("server_label") or "")


def _mcp_response(item: Item) -> CardFields:
    is_allowed = item.get("approve")
    title = _("The call was allowed") if is_allowed else _("The call was refused")
    return {"title": title, "query": item.get("reason") or ""}


def _computer(item: Item) -> CardFields:
    actions = item.get("actions") or [item.get("action")]
    checks = _records(item.get("pending_safety_checks"))
    return {
        "title": _("Acted on the screen"),
        "query": _(", then ").join(map(_describe_action, _records(actions))),
        "results": [
            {"title": _("Needs care"), "text": _truncate(c.get("message"))}
            for c in checks
        ],
    }


def _describe_action(action: Mapping[str, Any]) -> str:
    kind = str(action.get("type") or "").removeprefix("parley:").replace("_", " ")
    if "x" in action and "y" in action:
        values = {"kind": kind, "x": action["x"], "y": action["y"]}
        return _("%(kind)s at %(x)s, %(y)s") % values
    detail = action.get("keys") or action.get("text") or ""
    detail = "+".join(map(str, detail)) if isinstance(detail, list) else str(detail)
    return f"{kind} {detail}".strip()


def _screen(item: Item) -> CardFields:
    url = _mapping(item.get("output")).get("image_url")
    return {"title": _("What the screen showed"), "results": [_image(url)]}


def _custom(item: Item) -> CardFields:
    """One of xAI's tools, sent as a call that needs no answer from us."""
    title = _("Used %(tool)s") % {"tool": _tool(item)}
    return {"title": title, "code": _input_text(item)}


def _other_tool(item: Item) -> CardFields:
    title = _("Used %(tool)s") % {"tool": _tool(item).replace("_", " ")}
    return {"title": title, "code": _input_text(item)}


def _input_text(item: Item) -> str:
    return _pretty(item.get("arguments") or item.get("input"))


def _unknown(item: Item) -> CardFields:
    left_out = ("id", "type", "status", "provider_data")
    return {"code": _pretty({n: v for n, v in item.items() if n not in left_out})}


_CARD_BUILDERS: Mapping[str, Callable[[Item], CardFields]] = {
    "web_search_call": _web_search,
    "x_search_call": _web_search,
    "file_search_call": _file_search,
    "code_interpreter_call": _code,
    "code_execution_call": _code,
    "image_generation_call": _picture,
    "mcp_call": _mcp_call,
    "mcp_list_tools": _mcp_list,
    "mcp_approval_request": _mcp_request,
    "mcp_approval_response": _mcp_response,
    "computer_call": _computer,
    "computer_call_output": _screen,
    "custom_tool_call": _custom,
    "parley:hosted_tool_call": _other_tool,
    "local_shell_call": _unknown,
    "shell_call": _unknown,
    "shell_call_output": _unknown,
    "apply_patch_call": _unknown,
    "apply_patch_call_output": _unknown,
    "tool_search_call": _unknown,
    "tool_search_output": _unknown,
}


# Values


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _records(values: Any) -> Iterable[Mapping[str, Any]]:
    sequence = values if isinstance(values, list | tuple) else ()
    return [value for value in sequence if isinstance(value, Mapping)]


def _page(found: Mapping[str, Any]) -> CardResult:
    url = _safe_url(found.get("url"))
    return {"title": _one_line(found.get("title") or url), "url": url}


def _safe_url(url: Any) -> str:
    """`url` if a page may link to it, else ""."""
    try:
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    except ValueError:
        scheme = ""
    return str(url) if scheme in ("http", "https") else ""


#: First bytes of picture formats that cannot contain scripts.
_PICTURES = {
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF8": "gif",
    b"RIFF": "webp",
}


def _image(url: Any) -> CardResult:
    """An embedded picture is shown; one that would have to be fetched is linked."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return {"title": _("An image"), "url": _safe_url(url)} if _safe_url(url) else {}
    return _inline_image(url.partition(",")[2], None)


def _inline_image(data: Any, declared: Any) -> CardResult:
    """Detects the format from the bytes; the declared one (`form`) is not trusted."""
    if not isinstance(data, str) or not data:
        return {}
    try:
        start = base64.b64decode(data[:16], validate=True)
    except (binascii.Error, ValueError):
        start = b""
    image_type = next(
        (k for prefix, k in _PICTURES.items() if start.startswith(prefix)), ""
    )
    if not image_type:
        words = _("An image in a format that is not shown here (%(format)s).")
        return {"text": words % {"format": declared or "?"}}
    return {"image": f"data:image/{image_type};base64,{data}"}


def _text_of_error(error: Any) -> str:
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("content") or error.get("type")
    if error is None or error == "":
        return ""
    return _truncate(error if isinstance(error, str) else _pretty(error))


def _pretty(value: Any) -> str:
    """Indented JSON; text that is not JSON is returned unchanged."""
    if value is None or value == "":
        return ""
    return pretty(value)


def _parse_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, dict | list) else value


def _one_line(text: Any) -> str:
    """The text on one line; several texts are separated by semicolons."""
    if isinstance(text, list | tuple):
        return "; ".join(filter(None, map(_one_line, text)))
    return " ".join(str(text or "").split())


def _truncate(value: Any) -> str:
    text: str = value if isinstance(value, str) else _pretty(value)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _title_from_type(kind: str) -> str:
    words = kind.removeprefix("parley:").removesuffix("_call").replace("_", " ")
    return words[:1].upper() + words[1:]
