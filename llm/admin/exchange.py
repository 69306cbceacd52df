"""A stored request and response on a page, and the request as a curl command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from llm.db.encrypted_field import MASK

_NOT_COPIED = ("accept-encoding", "connection", "content-length", "host")


def page_context(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the page."""
    return {
        "exchange": exchange,
        "pretty": {name: _indent(exchange[name]) for name in ("request", "response")},
        "curl": curl_command(exchange),
    }


def curl_command(exchange: Mapping[str, Any]) -> str:
    """The request for a shell, with `$API_KEY` where a secret was."""
    lines = [f"curl -X {exchange['method']} {_quote(exchange['url'])}"]
    for name, value in exchange["request_headers"]:
        if name.lower() in _NOT_COPIED:
            continue
        is_bearer = value == MASK and name.lower() == "authorization"
        text = f"Bearer {MASK}" if is_bearer else value
        lines.append(f"  -H {_quote(f'{name}: {text}')}")
    if exchange["request"]:
        lines.append(f"  --data-raw {shlex.quote(exchange['request'])}")
    return " \\\n".join(lines)


def _quote(text: str) -> str:
    """`text` as one word of a shell, with the variable in place of the mask."""
    parts = [shlex.quote(part) if part else "" for part in text.split(MASK)]
    return '"$API_KEY"'.join(parts)


def _indent(text: str) -> str:
    """Empty for what is not JSON."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return ""
