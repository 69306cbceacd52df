"""The admin, whose lists take any query string.

Django tells staff that a list cannot be asked for so (`?e=1`) where it finds out by
itself. Where Python or the database finds out (a year 0, half a regular expression) it
would answer with a fault.
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

from conversations.engine.database import is_away
from llm.models import ApiKey

#: What comes of a value that makes no sense where a query string put it.
_SENSELESS = (ArithmeticError, DatabaseError, FieldError, LookupError, ValueError)

_log = logging.getLogger(__name__)


class AdminSite(admin.AdminSite):
    def index(self, request: HttpRequest, extra_context: Any = None) -> Any:
        context = {**(extra_context or {})}
        if request.user.has_perm("llm.view_apikey"):
            context["disabled_keys"] = ApiKey.objects.disabled_automatically()
        return super().index(request, context)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        if getattr(view, "__name__", "") == "changelist_view":
            view = _taking_any_query(view)
        return super().admin_view(view, cacheable)


def _taking_any_query(view: Any) -> Any:
    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response: HttpResponseBase = view(request, *args, **kwargs)
            if isinstance(response, TemplateResponse):
                response.render()  # which asks for the rows
        except _SENSELESS as exc:
            # A list that fails whatever it is asked for is a fault; so is an action
            # on its rows that fails.
            is_asked = request.method == "GET" and request.GET.keys() - {ERROR_FLAG}
            if not is_asked or is_away(exc):
                raise
            name = type(exc).__name__
            _log.info("%s: not to be asked for so (%s)", request.path, name)
            return redirect(f"{request.path}?{ERROR_FLAG}=1")
        return response

    return wrapped
