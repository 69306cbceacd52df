"""Pages of lists that the database filters, searches and cuts.

A cursor names the key of a row, so rows that come or go meanwhile neither repeat nor
skip others, and no page costs more memory than its own rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

from django.core.exceptions import ValidationError as DjangoValidationError
from django.db.models import Model, Q, QuerySet
from django.db.models.expressions import Combinable
from django.utils.timezone import is_naive
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.api.pagination import (
    INVALID_CURSOR,
    build_address,
    read_cursor,
    read_limit,
)

#: Rows of a page without `limit`: lists of this length still come whole.
WHOLE = 1000
#: Kinds of cursors: the page after a key, before it, or up to it. The last one leads
#: back from a page after the key whose rows have been deleted.
_AFTER, _BEFORE, _UNTIL = "after:", "before:", "until:"
_KEY = "page_key"  # the annotation by which rows are sorted

Row = TypeVar("Row", bound=Model)
Key: TypeAlias = tuple[Any, ...]


def list_queryset(
    request: Request,
    rows: QuerySet[Any],
    serializer: type[serializers.BaseSerializer[Any]],
    *,
    by: Combinable | None = None,
    falling: bool = False,
    searched: Sequence[str],
    filtered: Mapping[str, str] | None = None,
    context: dict[str, Any] | None = None,
) -> Response:
    """A page of `rows` in the order of `by` and their id, as the query asks for it.

    `query` is looked for in the fields `searched`; a parameter in `filtered` must equal
    the field that it names. `by` must not be null.
    """
    found = search(rows, request, searched)
    for name, path in (filtered or {}).items():
        if (value := request.query_params.get(name)) is not None:
            found = _filter(found, path, value)
    page, before, after = _Pages(found, by, falling).read(request)
    shown = serializer(page, many=True, context=context or {}).data
    addresses = {
        "next": build_address(request, after) if after else None,
        "previous": build_address(request, before) if before else None,
    }
    return Response({**addresses, "results": shown, "data": shown})


class _Pages:
    """Rows in the order of keys, and the pages between them."""

    def __init__(
        self, rows: QuerySet[Any], by: Combinable | None, falling: bool
    ) -> None:
        self._names = ("pk",) if by is None else (_KEY, "pk")
        self._rows = rows if by is None else rows.annotate(**{_KEY: by})
        self._falling = falling

    def read(self, request: Request) -> tuple[list[Any], str, str]:
        """The rows of the requested page, and the cursors of the pages before and after
        it; empty where there is none."""
        limit, text = read_limit(request) or WHOLE, read_cursor(request)
        if text is None:
            page, is_cut = self._take(self._rows, limit)
            return page, "", self._cursor(_AFTER, page[-1]) if is_cut else ""
        key = self._parse(text)
        if not text.startswith(_AFTER):
            earlier = self._is_beyond(key, backwards=True)
            if text.startswith(_UNTIL):
                earlier |= Q(**dict(zip(self._names, key, strict=True)))
            return self._read_before(earlier, limit)
        page, is_cut = self._take(self._rows.filter(self._is_beyond(key)), limit)
        has_before = self._rows.exclude(self._is_beyond(key)).exists()
        before = _UNTIL + text.removeprefix(_AFTER)
        if page:
            before = self._cursor(_BEFORE, page[0])
        return (
            page,
            before if has_before else "",
            self._cursor(_AFTER, page[-1]) if is_cut else "",
        )

    def _read_before(self, earlier: Q, limit: int) -> tuple[list[Any], str, str]:
        found = self._rows.filter(earlier)
        page, is_cut = self._take(found, limit, backwards=True)
        if not page:  # those rows have gone: the first page
            page, is_cut = self._take(self._rows, limit)
            return page, "", self._cursor(_AFTER, page[-1]) if is_cut else ""
        page.reverse()
        last = self._key(page[-1])
        has_more = self._rows.filter(self._is_beyond(last)).exists()
        return (
            page,
            self._cursor(_BEFORE, page[0]) if is_cut else "",
            self._cursor(_AFTER, page[-1]) if has_more else "",
        )

    def _take(
        self, rows: QuerySet[Any], limit: int, *, backwards: bool = False
    ) -> tuple[list[Any], bool]:
        """The first rows, and whether there are more."""
        sign = "-" if self._falling != backwards else ""
        found = list(rows.order_by(*(sign + name for name in self._names))[: limit + 1])
        return found[:limit], len(found) > limit

    def _is_beyond(self, key: Key, *, backwards: bool = False) -> Q:
        """Whether a row follows the key."""
        lookup = "lt" if self._falling != backwards else "gt"
        beyond, equal = Q(), Q()
        for name, value in zip(self._names, key, strict=True):
            beyond |= equal & Q(**{f"{name}__{lookup}": value})
            equal &= Q(**{name: value})
        return beyond

    def _key(self, row: Model) -> Key:
        return tuple(getattr(row, name) for name in self._names)

    def _cursor(self, kind: str, row: Model) -> str:
        return kind + json.dumps([_write(value) for value in self._key(row)])

    def _parse(self, text: str) -> Key:
        kind, _, written = text.partition(":")
        try:
            values = json.loads(written)
            fields = [self._field(name) for name in self._names]
            is_known = f"{kind}:" in (_AFTER, _BEFORE, _UNTIL)
            if not is_known or not isinstance(values, list):
                raise ValueError(kind)
            pairs = zip(fields, values, strict=True)
            return tuple(_read(field, value) for field, value in pairs)
        except (
            ValueError,
            OverflowError,
            RecursionError,
            DjangoValidationError,
        ) as exc:
            raise ValidationError({"cursor": INVALID_CURSOR}) from exc

    def _field(self, name: str) -> Any:
        if name == "pk":
            return self._rows.model._meta.pk
        return self._rows.query.annotations[name].output_field


def _write(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _read(field: Any, text: Any) -> Any:
    """Raises ValueError or OverflowError for what no database takes: lone surrogates,
    and times outside of the years 1 to 9999 in UTC."""
    value = field.to_python(text) if isinstance(text, str) else None
    if value is None or (isinstance(value, datetime) and is_naive(value)):
        raise ValueError(text)
    text.encode()
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def search(
    rows: QuerySet[Row], request: Request, paths: Iterable[str]
) -> QuerySet[Row]:
    """Rows that have the text `query` in one of these fields."""
    if not (words := request.query_params.get("query")):
        return rows
    wanted = Q()
    for path in paths:
        for spelling in _spellings(words):
            wanted |= Q(**{f"{path}__icontains": spelling})
    return rows.filter(wanted)


def _spellings(words: str) -> set[str]:
    """SQLite ignores the case of ASCII letters alone."""
    if words.isascii():
        return {words}
    others = (words.lower(), words.upper(), words.capitalize(), words.title())
    return {words, *others}


def _filter(rows: QuerySet[Any], path: str, value: str) -> QuerySet[Any]:
    """Rows whose field has the value that the query names; empty means null too."""
    try:
        found = rows.filter(**{path: value})
    except (ValueError, DjangoValidationError):  # no value of this field
        found = rows.none()
    return found if value else found | rows.filter(**{f"{path}__isnull": True})
