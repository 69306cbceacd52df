"""A stored request and response on a page, and the request as a curl command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from llm.db.encrypted_field import MASK

#: Characters of a body that one argument of a command may have; Linux allows 131,072
#: bytes. A longer body follows the command.
_LONGEST_ARGUMENT = 30_000
_KEY_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
_NOT_COPIED = ("accept-encoding", "connection", "content-length", "host")


def page_context(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the page."""
    return {
        "exchange": exchange,
        "pretty": {name: _indent(exchange[name]) for name in ("request", "response")},
        "curl": curl_command(exchange),
    }


def curl_command(exchange: Mapping[str, Any]) -> str:
    """The request for a shell, with `$API_KEY` where the key was.

    Another secret header has a variable of its own name, so that it never gets the key.
    """
    url = exchange["url"].replace(quote(MASK), MASK)
    lines = [f"curl -X {exchange['method']} {_quote(url)}"]
    for name, value in exchange["request_headers"]:
        if name.lower() in _NOT_COPIED:
            continue
        is_bearer = value == MASK and name.lower() == "authorization"
        text = f"Bearer {MASK}" if is_bearer else value
        variable = "API_KEY" if name.lower() in _KEY_HEADERS else _variable_of(name)
        lines.append(f"  -H {_quote(f'{name}: {text}', variable)}")
    body = exchange["request"]
    if body and len(body) <= _LONGEST_ARGUMENT:
        lines.append(f"  --data-raw {shlex.quote(body)}")
    elif body:
        end = _end_of(body)
        lines.append(f"  --data-binary @- <<'{end}'\n{body}\n{end}")
    return " \\\n".join(lines)


def _end_of(body: str) -> str:
    """A line that ends the body in a shell, and that the body does not have."""
    lines, end = set(body.splitlines()), "END_OF_BODY"
    while end in lines:
        end += "_"
    return end


def _variable_of(name: str) -> str:
    """`X-Team` is `HEADER_X_TEAM`, which no shell uses itself."""
    return "HEADER_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _quote(text: str, variable: str = "API_KEY") -> str:
    """`text` as one word of a shell, with the variable in place of the mask."""
    parts = [shlex.quote(part) if part else "" for part in text.split(MASK)]
    return f'"${variable}"'.join(parts)


def _indent(text: str) -> str:
    """Empty for what is not JSON."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return ""
