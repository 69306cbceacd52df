"""Pagination of the REST API: every list has `results`, `next` and `previous`.

The database cuts lists of rows: those that have always had pages of 50 rows here, and
in `keyset_pages` those that earlier versions returned whole. Lists that are computed
(models, tools, limits of use) are short, and `list_rows` cuts them. A list that earlier
versions returned whole repeats its rows in `data`, where those versions had them.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.core.exceptions import ValidationError as DjangoValidationError
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

MAX_LIMIT = 200  # rows of a page
INVALID_CURSOR = "This cursor is invalid; use one from an earlier response."
_START = "start:"  # of a cursor of `list_rows`, before it is encoded


class _Cursor(CursorPagination):
    """Cursor pagination, so that new rows do not shift later pages."""

    page_size = 50
    max_page_size = MAX_LIMIT
    page_size_query_param = "limit"

    def get_paginated_response_schema(self, schema: Any) -> dict[str, Any]:
        address = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {"next": address, "previous": address, "results": schema},
        }

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except NotFound as exc:
            raise ValidationError({"cursor": INVALID_CURSOR}) from exc

    def paginate_queryset(self, *args: Any, **kwargs: Any) -> list[Any] | None:
        try:
            return super().paginate_queryset(*args, **kwargs)
        except DjangoValidationError as exc:  # the cursor holds an invalid value
            raise ValidationError({"cursor": INVALID_CURSOR}) from exc

    def get_page_size(self, request: Request) -> int | None:
        return read_limit(request) or self.page_size


class NewestFirst(_Cursor):
    ordering = ("-updated_at", "-id")


class OldestFirst(_Cursor):
    ordering = ("created_at", "id")


class PageSerializer(serializers.Serializer[Any]):
    """What all lists have besides their rows."""

    next = serializers.CharField(allow_null=True, help_text="Address of the next page.")
    previous = serializers.CharField(
        allow_null=True, help_text="Address of the page before."
    )


def list_rows(
    request: Request,
    rows: Iterable[Any],
    *,
    searched: Sequence[str] = ("",),
    filtered: Sequence[str] = (),
) -> Response:
    """A page of `rows` as the query asks for it.

    `query` is looked for in the fields `searched`; a parameter named as one of the
    fields `filtered` must equal it. Each row is a mapping, or a text without fields.
    """
    kept = [row for row in rows if _is_wanted(row, request, searched, filtered)]
    start, limit = read_start(request), read_limit(request) or max(len(kept), 1)
    shown = kept[start : start + limit]
    return Response(
        envelope(request, shown, start, limit, has_more=start + limit < len(kept))
    )


def envelope(
    request: Request, rows: Any, start: int, limit: int, *, has_more: bool
) -> dict[str, Any]:
    """A page of rows from `start` on; `limit` is the size of all pages."""
    return {
        "next": _start_address(request, start + limit) if has_more else None,
        "previous": _start_address(request, max(0, start - limit)) if start else None,
        "results": rows,
        "data": rows,
    }


def _is_wanted(
    row: Any, request: Request, searched: Sequence[str], filtered: Sequence[str]
) -> bool:
    fields = _read_fields(row)
    words = request.query_params.get("query", "").casefold()
    if words:
        texts = [str(fields[name] or "").casefold() for name in searched]
        if not any(words in text for text in texts):
            return False
    wanted = {name: request.query_params.get(name) for name in filtered}
    return all(
        value is None or _shown(fields[name]) == value for name, value in wanted.items()
    )


def _read_fields(row: Any) -> Mapping[str, Any]:
    return row if isinstance(row, Mapping) else {"": row}


def _shown(value: Any) -> str:
    """A value as a query names it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def read_limit(request: Request) -> int | None:
    limit = request.query_params.get("limit")
    if limit is None:
        return None
    is_number = limit.isascii() and limit.isdecimal() and len(limit) < 10
    if not (is_number and 1 <= int(limit) <= MAX_LIMIT):
        raise ValidationError({"limit": f"Use 1 to {MAX_LIMIT}."})
    return int(limit)


def read_start(request: Request) -> int:
    text = read_cursor(request)
    if text is None:
        return 0
    number = text.removeprefix(_START)
    is_number = text.startswith(_START) and number.isdecimal() and len(number) < 10
    if not is_number:
        raise ValidationError({"cursor": INVALID_CURSOR})
    return int(number)


def read_cursor(request: Request) -> str | None:
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return None
    try:
        return urlsafe_b64decode(cursor.encode("ascii")).decode("ascii")
    except ValueError as exc:
        raise ValidationError({"cursor": INVALID_CURSOR}) from exc


def _start_address(request: Request, start: int) -> str:
    return build_address(request, f"{_START}{start}" if start else "")


def build_address(request: Request, cursor: str) -> str:
    query = request.query_params.copy()
    query.pop("cursor", None)
    if cursor:
        query["cursor"] = urlsafe_b64encode(cursor.encode("ascii")).decode("ascii")
    url = urlsplit(request.build_absolute_uri())
    return urlunsplit(url._replace(query=query.urlencode()))
