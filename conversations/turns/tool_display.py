"""Arguments and outputs of tool calls as pieces for display. Pure.

In: arguments, which are JSON as text, or an output, which is text or a list of content
parts. Out: a list of the classes in `Piece`. static/js/readable.js does the same in the
browser while a turn runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar
from urllib.parse import quote

from django.utils.translation import gettext as _

PREVIEW_LENGTH = 80  # characters of a call's arguments on its closed card
MAX_COLUMNS = 12
MAX_ROWS = 100  # of a table; the JSON below it has all rows
MAX_NODES = 1500  # of a tree; a larger value is shown as text
MAX_DEPTH = 100  # levels of a value that is read; a deeper one is shown as text
_PLAIN_DIGITS = 100  # of an integer that Python reads; it refuses thousands
OPEN_DEPTH = 2  # levels of a tree that are open at first

_WEB_URL = re.compile(r"https?://", re.IGNORECASE)
_ATTACHMENT_URL = "/api/attachments/"  # the route in conversations.api.urls
_INLINE_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,")


@dataclass(frozen=True, slots=True)
class Number:
    """A number that Python would write differently, such as 1.10."""

    written: str


@dataclass(frozen=True, slots=True)
class Text:
    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Json:
    kind: ClassVar[str] = "json"
    value: Any


@dataclass(frozen=True, slots=True)
class Table:
    """A list of flat objects as rows."""

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: int  # rows that are not shown
    value: Any


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture. Only an inline one is shown, so no other host is contacted."""

    kind: ClassVar[str] = "picture"
    url: str

    @property
    def name(self) -> str:
        return _("Picture")

    @property
    def is_attachment(self) -> bool:
        return self.url.startswith(_ATTACHMENT_URL)

    @property
    def is_inline(self) -> bool:
        return self.is_attachment or _INLINE_IMAGE.match(self.url) is not None


@dataclass(frozen=True, slots=True)
class FileLink:
    kind: ClassVar[str] = "file"
    name: str
    url: str = ""  # "" if the file has no address

    @property
    def is_attachment(self) -> bool:
        return self.url.startswith(_ATTACHMENT_URL)


@dataclass(frozen=True, slots=True)
class HostedResults:
    """Results of a provider-hosted tool as dicts, each shown as a picture, a link or
    text."""

    kind: ClassVar[str] = "found"
    results: Sequence[Mapping[str, Any]]
    more: int  # results that are not shown


Piece = Text | Json | Table | Picture | FileLink | HostedResults


def pieces(output: Any) -> list[Piece]:
    if isinstance(output, list) and all(map(_is_part, output)):
        return [_piece(part) for part in output]
    return [] if output in (None, "") else [_value_piece(output)]


def file_piece(part: Mapping[str, Any]) -> Picture | FileLink:
    """The piece of an `input_image` or `input_file` part."""
    file_id = part.get("file_id")
    url = f"{_ATTACHMENT_URL}{quote(str(file_id), safe='')}/" if file_id else ""
    if part["type"] == "input_image":
        return Picture(url or _link(part.get("image_url")))
    return FileLink(
        part.get("filename") or _("file"), url or _link(part.get("file_url"))
    )


def _link(url: Any) -> str:
    """The URL if it is safe as a link or picture, else ""."""
    is_allowed = isinstance(url, str) and (
        _INLINE_IMAGE.match(url) or _WEB_URL.match(url)
    )
    return url if is_allowed else ""


def pretty(value: Any) -> str:
    """Indented JSON; text that is not a JSON object or list is returned unchanged."""
    value = parse_container(value)
    if isinstance(value, str):
        return value
    return _indented(value, "\n")


def _indented(value: Any, line: str) -> str:
    """The JSON of a value that is not too deep; `line` begins each of its lines."""
    if not isinstance(value, dict | list) or not value:
        return _json(value)
    inner = f"{line}  "
    if isinstance(value, dict):
        members = [f"{_json(k)}: {_indented(v, inner)}" for k, v in value.items()]
        first, last = "{}"
    else:
        members = [_indented(each, inner) for each in value]
        first, last = "[]"
    return f"{first}{inner}{f',{inner}'.join(members)}{line}{last}"


def _json(value: Any) -> str:
    """The JSON of a value on one line, with its numbers as they are written."""
    match value:
        case Number():
            return value.written
        case dict():
            members = (f"{_json(k)}: {_json(v)}" for k, v in value.items())
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join(map(_json, value))}]"
    return json.dumps(value, ensure_ascii=False)


def parse_container(value: Any) -> Any:
    """Parse a string with a JSON object or list; return other values unchanged."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if _is_deep(value) else value
    try:
        decoded = json.loads(value, parse_float=_float, parse_int=_integer)
    except (ValueError, RecursionError):
        return value
    is_read = isinstance(decoded, dict | list) and not _is_deep(decoded)
    return decoded if is_read else value


def _float(written: str) -> float | Number:
    value = float(written)
    return value if repr(value) == written else Number(written)


def _integer(written: str) -> int | Number:
    is_plain = len(written) <= _PLAIN_DIGITS and written != "-0"
    return int(written) if is_plain else Number(written)


def _is_deep(value: Any) -> bool:
    """Whether reading it level by level would go too deep for a page's rendering."""
    level = [value]
    for _depth in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def preview(arguments: str) -> str:
    """A short text for a closed card: the values of the call's arguments."""
    values = parse_container(arguments)
    if not isinstance(values, dict):
        return ""
    return shorten(
        ", ".join(
            value if isinstance(value, str) else _json(value)
            for value in values.values()
        )
    )


def shorten(text: str, length: int = PREVIEW_LENGTH) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def _is_part(value: Any) -> bool:
    kinds = ("input_text", "output_text", "text", "input_image", "input_file")
    return isinstance(value, dict) and value.get("type") in kinds


def _piece(part: Mapping[str, Any]) -> Piece:
    if part["type"] in ("input_image", "input_file"):
        return file_piece(part)
    return _value_piece(part.get("text") or "")


def _value_piece(value: Any) -> Piece:
    value = parse_container(value)
    if isinstance(value, str):
        return Text(value)
    if columns := _columns(value):
        return _table(columns, value)
    if isinstance(value, dict | list) and _count_nodes(value) <= MAX_NODES:
        return Json(value)
    return Text(pretty(value))


# Tables


def _columns(value: Any) -> list[str]:
    """The keys in a list of flat objects; empty if `value` is anything else."""
    if not isinstance(value, list) or len(value) < 2:
        return []
    if not all(isinstance(row, dict) and row and _is_flat(row) for row in value):
        return []
    names = list(dict.fromkeys(name for row in value for name in row))
    return names if len(names) <= MAX_COLUMNS else []


def _is_flat(row: Mapping[str, Any]) -> bool:
    return not any(isinstance(value, dict | list) for value in row.values())


def _table(columns: list[str], value: list[dict[str, Any]]) -> Table:
    rows = [[_cell(row.get(name)) for name in columns] for row in value[:MAX_ROWS]]
    return Table(columns, rows, max(0, len(value) - MAX_ROWS), value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


# Trees


def _count_nodes(value: Any) -> int:
    """Number of nested values; counting stops once it exceeds `MAX_NODES`."""
    count, level = 0, [value]
    while level and count <= MAX_NODES:
        count += len(level)
        level = [inner for outer in level for inner in _inside(outer)]
    return count


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def tree(value: Any) -> str:
    """Collapsible HTML of a JSON value; its text content is the JSON itself."""
    return f'<div class="json" dir="ltr">{_node("", value, 0, "")}</div>'


def _node(name: str, value: Any, depth: int, tail: str) -> str:
    if not isinstance(value, dict | list) or not value:
        return f"<div>{name}{_scalar(value)}{tail}</div>"
    inner = _children(value, depth + 1)
    first, last = "{}" if isinstance(value, dict) else "[]"
    if depth == 0:
        return f"<div>{first}</div><div>{inner}</div><div>{last}</div>"
    is_open = " open" if depth < OPEN_DEPTH else ""
    return (
        f"<details{is_open}>"
        f'<summary data-closed="{len(value)} {last}">{name}{first}</summary>'
        f"<div>{inner}</div><div>{last}{tail}</div></details>"
    )


def _children(value: Any, depth: int) -> str:
    members = value.items() if isinstance(value, dict) else ((None, v) for v in value)
    last = len(value) - 1
    return "".join(
        _node(_name(name), inner, depth, "," if number < last else "")
        for number, (name, inner) in enumerate(members)
    )


def _name(name: str | None) -> str:
    if name is None:
        return ""
    return f'<span class="nt">{_escape_json(name)}</span>: '


def _scalar(value: Any) -> str:
    match value:
        case str():
            return f'<span class="s2">{_escape_json(value)}</span>'
        case bool() | None:
            kind = "kc"
        case int() | float() | Number():
            kind = "mi"
        case _:  # an empty object or list
            return _json(value)
    return f'<span class="{kind}">{escape(_json(value))}</span>'


def _escape_json(text: str) -> str:
    return escape(json.dumps(text, ensure_ascii=False), quote=False)
