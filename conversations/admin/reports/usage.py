"""The *Usage* page of the admin: what models were used for and what that cost."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from conversations.forms.usage_form import StaffUsageForm
from conversations.staff.expensive_conversations import (
    links_for_staff,
    report_conversations,
)
from conversations.staff.tool_usage import report_tools
from conversations.staff.usage_csv import tools_csv, usage_csv
from conversations.staff.usage_page import (
    page_of_conversations,
    page_of_tools,
    page_of_usage,
)
from llm.pricing.usage_report import UsageGroup, report_usage

VIEW_USAGE = "llm.view_usage"
VIEW_CALLS = "llm.view_modelcall"
VIEW_TOOL_CALLS = "conversations.view_toolcall"


class UsagePage:
    def __init__(self, site: AdminSite) -> None:
        self._site = site

    def urls(self) -> list[URLPattern]:
        view = self._site.admin_view
        return [
            path("usage/", view(never_cache(require_GET(self.show))), name="usage"),
            path(
                "usage/csv/",
                view(never_cache(require_GET(self.download))),
                name="usage_csv",
            ),
        ]

    def show(self, request: HttpRequest) -> HttpResponse:
        form = _checked_form(request)
        context = {
            **self._site.each_context(request),
            "title": _("Usage"),
            "form": form,
            "shows_costs": True,
        }
        if not form.is_valid():
            context["problem"] = form.problem
        elif form.by_tool:
            query = form.query
            usage = report_tools(query.first, query.last, user_id=form.own)
            context |= page_of_tools(usage, query)
            context["links_tools"] = request.user.has_perm(VIEW_TOOL_CALLS)
        elif form.by_conversation:
            measure = form.cleaned_data["measure"]
            report, is_cut = report_conversations(form.query)
            links = links_for_staff(report, request.user)
            context |= page_of_conversations(report, is_cut, measure, links)
        else:
            measure = form.cleaned_data["measure"]
            link = _rows_of if request.user.has_perm(VIEW_CALLS) else _no_rows
            context |= page_of_usage(report_usage(form.query), measure, link)
        status = 400 if "problem" in context else 200
        template = "admin/conversations/usage.html"
        return TemplateResponse(request, template, context, status=status)

    def download(self, request: HttpRequest) -> HttpResponse:
        form = _checked_form(request)
        if not form.is_valid():
            text = "text/plain; charset=utf-8"
            return HttpResponse(form.problem, content_type=text, status=400)
        query = form.query
        if form.by_tool:
            usage = report_tools(query.first, query.last, user_id=form.own)
            return tools_csv(usage, f"{query.first}-{query.last}")
        if form.by_conversation:
            return usage_csv(report_conversations(query)[0])
        return usage_csv(report_usage(query))


def _checked_form(request: HttpRequest) -> StaffUsageForm:
    if not request.user.has_perm(VIEW_USAGE):
        raise PermissionDenied
    return StaffUsageForm(request.GET.dict())


def _no_rows(group: UsageGroup) -> str:
    return ""


def _rows_of(group: UsageGroup) -> str:
    """The address of the list of the group's calls; "" without one."""
    if group.lookups is None:
        return ""
    rows = reverse("admin:llm_modelcall_changelist")
    return f"{rows}?{urlencode(group.lookups)}"
