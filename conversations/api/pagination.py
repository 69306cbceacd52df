from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class _Cursor(CursorPagination):
    """Cursor pagination, so that new rows do not shift later pages."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except NotFound as exc:
            raise ValidationError({"cursor": "This is no cursor of ours."}) from exc

    def paginate_queryset(self, *args: Any, **kwargs: Any) -> list[Any] | None:
        try:
            return super().paginate_queryset(*args, **kwargs)
        except DjangoValidationError as exc:  # the cursor holds an invalid value
            raise ValidationError({"cursor": "This is no cursor of ours."}) from exc

    def get_page_size(self, request: Request) -> int | None:
        limit = request.query_params.get(
            self.page_size_query_param, str(self.page_size)
        )
        if not (limit.isdecimal() and 1 <= int(limit) <= self.max_page_size):
            raise ValidationError({"limit": f"Use 1 to {self.max_page_size}."})
        return int(limit)


class NewestFirst(_Cursor):
    ordering = ("-updated_at", "-id")


class OldestFirst(_Cursor):
    ordering = ("created_at", "id")
