"""Reader of providers' error objects: one report, whatever their JSON shape.

In: the body of an error, or the error object inside a stream. Out: an `ErrorReport`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from llm.wire import bounded_json

_MAX_SEARCHED = 4_000  # characters of an error that the patterns are searched in
#: Of a validation error as pydantic writes it, in JSON or Python: they are words of the
#: request.
_QUOTED_FIELDS = ("input", "ctx")
_MAX_DEPTH = 10  # of details; what is nested deeper is left out
_LOCATION = re.compile(r"""['"]loc\\{0,3}['"]\s{0,3}:""")
_QUOTED_REST = re.compile(r"""[\s,]{0,3}\\{0,3}['"](input|ctx)\\{0,3}['"]\s{0,3}:""")
#: The text of a pydantic error (`str`). A value is on one line, as `repr` writes it. It
#: may contain the words that end it, so the last ones of the line count.
_TEXT_OF_FIELDS = re.compile(r"\d validation errors? for |\[type=\w+, input_value=")
_QUOTED_VALUE = re.compile(
    r"(\[type=\w{1,80}, input_value=)(?:.*(?=, input_type=)|.*)", re.ASCII
)


@dataclass(slots=True)
class ErrorReport:
    """The fields of a provider's error, independent of its JSON shape."""

    message: str = ""
    words: list[str] = field(default_factory=list)  # codes and types, lower case
    type: str | None = None
    code: str | None = None
    param: str | None = None
    status: int | None = None
    request_id: str | None = None
    text: str = ""  # message and nested details (an upstream's own error)

    @property
    def is_about_fields(self) -> bool:
        """Whether it lists the fields of the request that are wrong."""
        return any(each.search(self.text) for each in (_LOCATION, _TEXT_OF_FIELDS))

    def truncate(self) -> ErrorReport:
        """Truncate the texts. A body may be a megabyte, and some patterns look a few
        hundred characters ahead from each word."""
        self.message = self.message[:_MAX_SEARCHED]
        self.text = self.text[:_MAX_SEARCHED]
        return self


def parse_body(body: bytes) -> Any:
    try:
        return bounded_json.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace").strip()


def parse_report(payload: Any) -> ErrorReport:
    if isinstance(payload, list):  # Gemini wraps its error in a list of one
        payload = payload[0] if payload else ""
    if not isinstance(payload, dict):
        text = "" if payload is None else _drop_quotations(str(payload))
        return ErrorReport(message=text, text=text)
    inner = payload.get("error") or payload.get("errors")
    if isinstance(inner, list):
        inner = inner[0] if inner else None
    if isinstance(inner, dict):
        report = _fields(inner)
        report.request_id = report.request_id or _text(payload.get("request_id"))
        return report
    report = _fields(payload)
    if inner:  # xAI: {"code": ..., "error": "a sentence"}
        report.message = _sentence(inner)
        report.text = f"{report.message}\n{report.text}"
    return report


def _fields(error: Mapping[str, Any]) -> ErrorReport:
    deeper = error.get("innererror") or error.get("inner_error") or {}
    metadata = error.get("metadata") or {}
    code, type = _text(error.get("code")), _text(error.get("type"))
    report = ErrorReport(
        message=_sentence(error.get("message") or error.get("detail")),
        type=type or _name(error.get("status")),
        code=code,
        param=_text(error.get("param")),
        status=_status_in(error),
        request_id=_text(error.get("request_id")),
    )
    words = [code, report.type]
    if isinstance(deeper, Mapping):
        words.append(_text(deeper.get("code")))
    if isinstance(metadata, Mapping):
        words.append(_text(metadata.get("error_type")))
    details = error.get("details")
    if isinstance(details, Mapping):  # Anthropic: more reliable than its type
        words.insert(0, _text(details.get("error_code")))
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping):
            words.append(_text(detail.get("reason")))
    report.words = [word.lower() for word in words if word]
    report.text = f"{report.message}\n{_sentence(metadata)}\n{_sentence(details)}"
    return report


def _status_in(error: Mapping[str, Any]) -> int | None:
    """The HTTP status inside the error object."""
    for name in (
        "status",
        "status_code",
        "http_status_code",
        "raw_status_code",
        "code",
    ):
        value = error.get(name)
        if isinstance(value, str) and len(value) == 3 and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value) or None


def _name(value: Any) -> str | None:
    """Google's status is a word. Azure's is a number, which `_status_in` reads."""
    return _text(value) if isinstance(value, str) and not value.isdecimal() else None


def _sentence(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(_without_request(value), default=str) if value else ""
    return _drop_quotations(value)


def _drop_quotations(value: str) -> str:
    """`value` without the words of the request that a validation error quotes."""
    value = _QUOTED_VALUE.sub(r"\1…", value)
    if _LOCATION.search(value) and (quoted := _QUOTED_REST.search(value)):
        return value[: quoted.start()]
    return value


def _without_request(value: Any, depth: int = 0) -> Any:
    """`value` without what validation errors in it quote."""
    if isinstance(value, str):
        return _drop_quotations(value)
    if not isinstance(value, list | dict):
        return value
    if depth == _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [_without_request(each, depth + 1) for each in value]
    quoted = _QUOTED_FIELDS if "loc" in value else ()
    return {
        name: _without_request(each, depth + 1)
        for name, each in value.items()
        if name not in quoted
    }
