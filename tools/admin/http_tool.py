"""Part of a tool's form that defines its HTTP request."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from tools.forms import (
    HttpToolForm,
)
from tools.models import HttpTool
from tools.models.async_results import ASYNC_FIELDS


class HttpToolInline(admin.StackedInline):
    """The HTTP request of a tool; the permissions of the tool apply to it."""

    model = HttpTool
    form = HttpToolForm
    can_delete = False
    min_num = max_num = 1
    fieldsets = [
        (None, {"fields": ["method", "url", "parameters", "places", "body"]}),
        (_("Headers"), {"fields": ["secret", "headers"]}),
        (_("Response"), {"fields": ["read_as", "pointer", "max_size"]}),
        (
            _("Asynchronous result"),
            {
                "fields": ASYNC_FIELDS,
                "classes": ["collapse"],
            },
        ),
        (_("Network access"), {"fields": ["networks"]}),
    ]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("tools.view_tool") or self._may_change(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("tools.add_tool") or self._may_change(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_change(request)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if self._may_change(request) or (
            obj is None and self.has_add_permission(request)
        ):
            return self.fieldsets
        names = [
            name for _title, options in self.fieldsets for name in options["fields"]
        ]
        return [(None, {"fields": [name for name in names if name != "secret"]})]

    def _may_change(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tools.change_tool")
