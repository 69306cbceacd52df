"""Admin site whose change lists accept any query string.

Django redirects a change list with a bad lookup to `?e=1`, which shows an error page.
It does so only for the errors that it detects itself. A value that Python or the
database rejects (year 0, an incomplete regular expression) would be a status 500; this
site redirects those as well.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import FieldError
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from conversations.engine.database.executor import is_database_unavailable
from llm.models import ApiKey

#: Exceptions that an invalid value in the query string can cause.
_INVALID_VALUE_ERRORS = (
    ArithmeticError,
    DatabaseError,
    FieldError,
    LookupError,
    ValueError,
)

_log = logging.getLogger(__name__)


class AdminSite(admin.AdminSite):
    def index(self, request: HttpRequest, extra_context: Any = None) -> Any:
        context = {**(extra_context or {})}
        if request.user.has_perm("llm.view_apikey"):
            context["disabled_keys"] = ApiKey.objects.auto_disabled()
        return super().index(request, context)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        if getattr(view, "__name__", "") == "changelist_view":
            view = _redirect_bad_query(view)
        return super().admin_view(view, cacheable)


def _redirect_bad_query(view: Any) -> Any:
    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response: HttpResponseBase = view(request, *args, **kwargs)
            if isinstance(response, TemplateResponse):
                response.render()  # runs the query for the rows
        except _INVALID_VALUE_ERRORS as exc:
            # A list that fails without a query has a bug, and so has an action (POST).
            has_query = request.method == "GET" and request.GET.keys() - {ERROR_FLAG}
            if not has_query or is_database_unavailable(exc):
                raise
            name = type(exc).__name__
            _log.info("%s: not to be asked for so (%s)", request.path, name)
            return redirect(f"{request.path}?{ERROR_FLAG}=1")
        return response

    return respond
