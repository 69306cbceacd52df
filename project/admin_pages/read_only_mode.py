"""The admin while it is read-only: staff look at everything, and change nothing.

It is switched on and off on the live board, whose acts stay possible: they are how a
server is operated, and the only way back.
"""

from __future__ import annotations

from copy import copy
from functools import wraps
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from conversations.access import maintenance

#: Permissions that do not begin with `view_` and change nothing, and the live board's.
_READING = ("inspect_turn", "export_ratings", "change_maintenance")
#: Forms that work all the same, by their URL names: they change nothing of the
#: configuration, or belong to the live board.
_OPEN_FORMS = (
    "logout",
    "password_change",
    "reading_reason",
    "usage_bill",
    "conversations_engine_maintenance",
    "conversations_engine_drain",
)
#: Actions of lists that only make a file.
_EXPORTS = {"export", "export_as_csv", "export_as_json"}
_SAFE = ("GET", "HEAD", "OPTIONS")


def _copy_as_onlooker(user: Any) -> Any:
    """A copy of whose permissions only those to look are left, superuser or not."""
    has_perm = user.has_perm

    def may_look(perm: str, obj: Any = None) -> bool:
        return _is_reading(perm) and bool(has_perm(perm, obj))

    onlooker = copy(user)
    onlooker.has_perm = may_look  # which `has_perms` calls
    return onlooker


def _is_reading(perm: str) -> bool:
    codename = perm.rpartition(".")[2]
    return codename.startswith("view_") or codename in _READING


def is_read_only() -> bool:
    return maintenance.state.notice.admin_is_read_only


def refuse_changes(site: AdminSite, view: Any) -> Any:
    """Without its acts while the admin is read-only; a form is answered 403."""

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if is_read_only():
            request.user = _copy_as_onlooker(request.user)
            if request.method not in _SAFE and not _is_open(request):
                return _refuse(site, request)
        response: HttpResponseBase = view(request, *args, **kwargs)
        return response

    return respond


def _is_open(request: HttpRequest) -> bool:
    found = request.resolver_match
    name = (found and found.url_name) or ""
    if name.endswith("_changelist"):
        actions = set(request.POST.getlist("action"))
        return bool(actions) and actions <= _EXPORTS
    return name in _OPEN_FORMS


def _refuse(site: AdminSite, request: HttpRequest) -> HttpResponseBase:
    title = _("Nothing was changed")
    context = {**site.each_context(request), "title": title}
    return TemplateResponse(request, "admin/read_only.html", context, status=403)
