"""Conversion of a web server's answer to a tool result. Pure.

Source: https://www.rfc-editor.org/rfc/rfc6901 (JSON Pointer)
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

import orjson

from llm.db.encrypted_field import MASK
from llm.wire import bounded_json
from llm.wire.json_pointer import is_index, steps_of
from tools.errors import ToolError
from tools.http.exchange import FetchedResponse
from tools.http.visible_text import visible_text

ReadAs = Literal["auto", "json", "text"]

MAX_EXCERPT = 400  # characters of an error's body
MAX_PAGE = 100_000  # characters of an HTML error page that are parsed for its text
MIN_SECRET_LENGTH = 6  # characters of a secret; shorter ones would match ordinary text

_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
#: Headers that the model reads if an answer has no body.
_REPORTED_HEADERS = (
    "content-length",
    "content-type",
    "etag",
    "last-modified",
    "location",
)
_AUTHORIZATION = frozenset({"authorization", "proxy-authorization"})
#: How credentials begin in headers of other names too.
#: Source: https://www.iana.org/assignments/http-authschemes/
_SCHEMES = frozenset(
    {"apikey", "api-key", "basic", "bearer", "dpop", "key", "oauth", "ssws", "token"}
)
_ORDINARY_WORD = re.compile(r"[^\W\d_]{,12}")
#: JSON escapes them by a backslash, in JSON within JSON by several.
_AFTER_BACKSLASH = frozenset('"/\\')
_TEXT_TYPES = re.compile(
    r"text/.*|.*[/+](json|xml|yaml|javascript|csv|x-ndjson|x-www-form-urlencoded)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    read_as: ReadAs = "auto"  # "auto" follows the content type
    pointer: str = ""  # into JSON; "" for the whole


def result_of(
    fetched: FetchedResponse, options: ReadOptions, secrets: Collection[str] = ()
) -> Any:
    """Text, content parts or JSON, without `secrets`. Raises ToolError."""
    if fetched.status >= 300:
        raise ToolError(_failure(fetched, secrets))
    if not fetched.body:
        return _no_content(fetched, secrets)
    if options.read_as == "auto" and not options.pointer:
        return _read_by_type(fetched, secrets)
    text = _text(fetched, secrets)
    if options.read_as == "text":
        return text
    return resolve_pointer(_json(text), options.pointer)


def texts_to_mask(headers: Mapping[str, str]) -> list[str]:
    """Texts to mask in an answer: each value and the credentials in it alone, for
    "Bearer x" also "x"."""
    texts = set(headers.values())
    for name, value in headers.items():
        texts.update(_credentials(name.lower(), value))
    return sorted(
        (t for t in texts if len(t) >= MIN_SECRET_LENGTH), key=len, reverse=True
    )


def _credentials(name: str, value: str) -> Iterator[str]:
    if name == "cookie":
        for pair in value.split(";"):
            yield pair.partition("=")[2].strip()
        return
    scheme, _, rest = value.partition(" ")
    if name in _AUTHORIZATION or scheme.lower() in _SCHEMES:
        yield rest.strip()
    # After a scheme that is not in the list; masking an ordinary word spoils answers.
    last = rest.rpartition(" ")[2]
    if not _ORDINARY_WORD.fullmatch(last):
        yield last


def _no_content(fetched: FetchedResponse, secrets: Collection[str]) -> str:
    lines = [f"The server answered {_status(fetched.status)}, with no content."]
    lines += [
        f"{name}: {_mask(fetched.headers[name], secrets)[:MAX_EXCERPT]}"
        for name in _REPORTED_HEADERS
        if name in fetched.headers
    ]
    return "\n".join(lines)


def _read_by_type(fetched: FetchedResponse, secrets: Collection[str]) -> Any:
    if fetched.content_type in _IMAGES:
        data = base64.b64encode(fetched.body).decode()
        url = f"data:{fetched.content_type};base64,{data}"
        return [{"type": "input_image", "image_url": url}]
    if not _is_text(fetched):
        raise ToolError(
            f"the server answered with {len(fetched.body):,} bytes of"
            f" {fetched.content_type[:100]!r}, which a model cannot read."
        )
    text = _text(fetched, secrets)
    if fetched.content_type.endswith(("/json", "+json")):
        try:
            return bounded_json.loads_exact(text.encode(errors="replace"))
        except orjson.JSONDecodeError:
            return text  # the content type is wrong, but the text may be useful
    return text


def _is_text(fetched: FetchedResponse) -> bool:
    if _TEXT_TYPES.fullmatch(fetched.content_type):
        return True
    try:
        text = fetched.body.decode()
    except UnicodeDecodeError:
        return False
    return "\0" not in text


def _text(fetched: FetchedResponse, secrets: Collection[str]) -> str:
    return _mask(fetched.text, secrets)


def _mask(text: str, secrets: Collection[str]) -> str:
    """The text without the secrets, also where JSON, HTML or a URL escapes them."""
    for secret in secrets:
        parts = re.findall(r"\\+|[^\\]", secret)
        pattern = "".join(
            _spellings(part, before)
            for before, part in zip(["", *parts], parts, strict=False)
        )
        text = re.sub(pattern, MASK, text)
    return text


def _spellings(character: str, before: str = "") -> str:
    """A pattern of how the character, or a run of backslashes, is written; letters and
    digits are never escaped. No two of its alternatives match the same text."""
    if character.isalnum():
        return re.escape(character)
    if character.startswith("\\"):
        return _backslashes(len(character))
    named = {html.escape(character), quote(character, safe="")} - {character}
    # `_backslashes` matches an escape's own backslash with a run before it.
    least = 0 if before.startswith("\\") else 1
    escaped = [rf"\\{{{least},7}}u{ord(character):04x}", f"&#{ord(character)};"]
    escaped += [re.escape(each) for each in sorted(named)]
    if character in _AFTER_BACKSLASH:
        escaped.append(rf"\\{{1,7}}{re.escape(character)}")
    return f"(?:{re.escape(character)}|(?i:{'|'.join(escaped)}))"


def _backslashes(count: int) -> str:
    """All that stand in a row are taken at once, also those that escape the next
    character: a pattern that may give some back would try all ways to share them."""
    escaped = r"(?i:\\{1,7}u005c|&#92;|%5c)"
    return rf"(?:{escaped}{{{count}}}|\\{{{count},{8 * count}}}+)"


def _json(text: str) -> Any:
    return parse_json(text.encode(errors="replace"))


def parse_json(body: bytes) -> Any:
    """Raises ToolError."""
    try:
        return bounded_json.loads_exact(body)
    except bounded_json.TooManyValues as exc:
        raise ToolError(f"the server's JSON is too large: {exc.msg}.") from exc
    except orjson.JSONDecodeError as exc:
        raise ToolError("the server's response is not JSON.") from exc


def resolve_pointer(value: Any, pointer: str) -> Any:
    """Raises ToolError if the pointer leads to nothing."""
    for step in steps_of(pointer):
        match value:
            case dict() if step in value:
                value = value[step]
            case list() if is_index(step, value):
                value = value[int(step)]
            case _:
                raise ToolError(f"the server's response has nothing at {pointer!r}.")
    return value


def _failure(fetched: FetchedResponse, secrets: Collection[str]) -> str:
    summary = f"the server answered {_status(fetched.status)}"
    if not _is_text(fetched):
        return f"{summary}."
    text = _text(fetched, secrets)[:MAX_PAGE]
    if "html" in fetched.content_type:
        text = visible_text(text)
    excerpt = " ".join(text.split())
    if len(excerpt) > MAX_EXCERPT:
        excerpt = f"{excerpt[:MAX_EXCERPT]}…"
    return f"{summary}: {excerpt}" if excerpt else f"{summary}."


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
