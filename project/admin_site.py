"""Admin site whose pages accept any query string, and refuse any invalid value.

Django redirects a change list with a bad lookup to `?e=1`, which shows an error page.
It does so only for the errors that it detects itself. A value that Python or the
database rejects (year 0, an incomplete regular expression) would be a status 500; this
site redirects those as well. The same holds for a query string that fills in a new
row's form, for the rows that an action names, and for numbers that no column holds.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import FieldError, PermissionDenied, ValidationError
from django.db import DatabaseError, DataError, models
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from conversations.engine.database.executor import is_database_unavailable
from llm.error_texts.for_staff import describe_reason
from llm.models import ApiKey
from project.accounts.pages.sign_in import SignInView
from project.accounts.second_factor import requires_second_factor
from project.admin_pages.config_page import EXPORT, ConfigPage
from project.admin_pages.first_steps import checklist, first_steps_urls
from project.admin_pages.read_only_mode import is_read_only, refuse_changes
from project.admin_pages.reading_reasons import ReasonPage, guard_reading
from project.admin_pages.saved_filters import SavedFilterPages

_REFUSED = "e"  # the parameter that Django's own lists add when they refuse a query
#: Exceptions that an invalid value in the query string can cause.
_INVALID_VALUE_ERRORS = (
    ArithmeticError,
    DatabaseError,
    FieldError,
    LookupError,
    TypeError,  # a text for a column of bytes
    ValueError,
)
#: A value of a form that fits its field, but no column of the database.
_OUT_OF_RANGE = (OverflowError, DataError)
_FORM_VIEWS = ("add_view", "change_view")
_BAD_SELECTION = _(
    "The selection is not valid, so nothing was changed. Select the rows again."
)
_BAD_VALUE = _("A value in the form is not valid, so nothing was saved.")
_BAD_QUERY = _("The values in the address are not valid for this form.")

_log = logging.getLogger(__name__)


class AdminSite(admin.AdminSite):
    def get_urls(self) -> list[Any]:
        # Imported late: the admin of conversations registers with this site.
        from conversations.admin.reports.bill import BillPage
        from conversations.admin.reports.request_check import RequestCheckPage
        from conversations.admin.reports.usage import UsagePage

        own = (
            ConfigPage(self),
            UsagePage(self),
            BillPage(self),
            RequestCheckPage(self),
        )
        pages = [url for page in own for url in page.urls()]
        pages += [*SavedFilterPages(self).urls(), *first_steps_urls(self)]
        pages += ReasonPage(self).urls()
        return [*pages, *super().get_urls()]

    def login(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Parley's own sign-in page, with second factors and other providers."""
        if not request.user.is_authenticated:
            return SignInView.as_view(next_page="admin:index")(request)
        if self.has_permission(request):
            return redirect("admin:index")
        raise PermissionDenied

    def index(self, request: HttpRequest, extra_context: Any = None) -> Any:
        context = {**(extra_context or {})}
        if request.user.has_perm("llm.view_apikey"):
            context["disabled_keys"] = [
                (key, describe_reason(key.state_reason))
                for key in ApiKey.objects.auto_disabled()
            ]
        context["may_see_usage"] = request.user.has_perm("llm.view_usage")
        context["may_see_config"] = request.user.has_perms(EXPORT)
        context |= checklist(request)
        return super().index(request, context)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        return {**super().each_context(request), "is_read_only": is_read_only()}

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        name = getattr(view, "__name__", "")
        if name == "changelist_view":
            view = _redirect_bad_query(_refuse_bad_selection(view))
        elif name in _FORM_VIEWS:
            view = _refuse_bad_values(view)
        view = refuse_changes(self, guard_reading(view))
        return super().admin_view(requires_second_factor(view), cacheable)


def _redirect_bad_query(view: Any) -> Any:
    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return _render(view(request, *args, **kwargs))
        except _INVALID_VALUE_ERRORS as exc:
            # A list that fails without a query has a bug, and so has an action (POST).
            has_query = request.method == "GET" and request.GET.keys() - {_REFUSED}
            if not has_query or is_database_unavailable(exc):
                raise
            _log_refusal(request, "query string", exc)
            return redirect(f"{request.path}?{_REFUSED}=1")

    return respond


def _refuse_bad_selection(view: Any) -> Any:
    """Refuse an action whose rows no primary key can name."""

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if _are_keys(view.__self__.model, selected):
            response: HttpResponseBase = view(request, *args, **kwargs)
            return response
        messages.error(request, _BAD_SELECTION)
        return redirect(request.get_full_path())

    return respond


def _are_keys(model: type[models.Model], values: list[str]) -> bool:
    primary_key = model._meta.pk
    try:
        for value in values:
            primary_key.run_validators(primary_key.to_python(value))
    except ValidationError:
        return False
    return True


def _refuse_bad_values(view: Any) -> Any:
    """Show the empty form again instead of a status 500."""

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        is_filled_by_query = request.method == "GET" and bool(request.GET)
        refused: tuple[type[Exception], ...] = _OUT_OF_RANGE
        if is_filled_by_query:
            refused = (*_INVALID_VALUE_ERRORS, AttributeError)
        try:
            return _render(view(request, *args, **kwargs))
        except refused as exc:
            is_asked_for = is_filled_by_query or request.method == "POST"
            if not is_asked_for or is_database_unavailable(exc):
                raise
            _log_refusal(request, "form", exc)
            messages.error(request, _BAD_QUERY if is_filled_by_query else _BAD_VALUE)
            return redirect(request.path)

    return respond


def _render(response: HttpResponseBase) -> HttpResponseBase:
    """Rendering runs the queries for the rows, and so may refuse a value."""
    if isinstance(response, TemplateResponse):
        response.render()
    return response


def _log_refusal(request: HttpRequest, what: str, exc: Exception) -> None:
    _log.info("%s: its %s was refused (%s)", request.path, what, type(exc).__name__)
