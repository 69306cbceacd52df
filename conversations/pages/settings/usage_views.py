"""Page with a user's own use of models, and its CSV file."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from conversations.access.limits.admission import find_limits_left
from conversations.forms.usage_form import UsageForm
from conversations.staff.expensive_conversations import (
    links_for_owner,
    report_conversations,
)
from conversations.staff.tool_usage import ToolUsage, report_tools
from conversations.staff.usage_csv import tools_csv, usage_csv
from conversations.staff.usage_page import (
    page_of_conversations,
    page_of_tools,
    page_of_usage,
)
from llm.pricing.usage_report import report_usage


@login_required
@never_cache
@require_GET
def usage(request: HttpRequest) -> HttpResponse:
    form = _form(request)
    context: dict[str, Any] = {
        "form": form,
        "section": "usage",
        "shows_costs": settings.SHOW_COSTS,
        "limits_left": find_limits_left(request.user.pk or 0),
    }
    if not form.is_valid():
        context["problem"] = form.problem
    elif form.by_tool:
        context |= page_of_tools(_tools(form), form.query)
    elif form.by_conversation:
        measure = form.cleaned_data["measure"]
        report, is_cut = report_conversations(form.query)
        links = links_for_owner(report, request.user)
        context |= page_of_conversations(report, is_cut, measure, links)
    else:
        measure = form.cleaned_data["measure"]
        context |= page_of_usage(report_usage(form.query), measure)
    status = 400 if "problem" in context else 200
    return render(request, "conversations/settings/usage.html", context, status=status)


@login_required
@never_cache
@require_GET
def usage_file(request: HttpRequest) -> HttpResponse:
    form = _form(request)
    if not form.is_valid():
        text = "text/plain; charset=utf-8"
        return HttpResponse(form.problem, content_type=text, status=400)
    if form.by_tool:
        return tools_csv(_tools(form), f"{form.query.first}-{form.query.last}")
    if form.by_conversation:
        report, _is_cut = report_conversations(form.query)
        return usage_csv(report, costs=settings.SHOW_COSTS)
    return usage_csv(report_usage(form.query), costs=settings.SHOW_COSTS)


def _form(request: HttpRequest) -> UsageForm:
    own = request.user.pk or 0
    return UsageForm(request.GET.dict(), own=own, costs=settings.SHOW_COSTS)


def _tools(form: UsageForm) -> ToolUsage:
    return report_tools(form.query.first, form.query.last, user_id=form.own)
