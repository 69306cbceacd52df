"""API views of usage: one's own, and everybody's for staff."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.errors import Forbidden
from conversations.api import schema
from conversations.api.views import ApiView
from conversations.forms.usage_form import (
    DAYS,
    OWN_GROUPINGS,
    STAFF_GROUPINGS,
    TOOL,
    StaffUsageForm,
    UsageForm,
)
from conversations.models.access_token import Scope
from conversations.staff.expensive_conversations import report_conversations
from conversations.staff.usage_csv import usage_csv
from llm.pricing.first_token_times import Waits
from llm.pricing.usage_report import (
    Usage,
    UsageGroup,
    UsageReport,
    report_usage,
)

VIEW_USAGE = "llm.view_usage"
_OWN = [name for name in OWN_GROUPINGS if name != TOOL]
_EVERYBODYS = [name for name in STAFF_GROUPINGS if name != TOOL]


class UsageSerializer(serializers.Serializer[Any]):
    calls = serializers.IntegerField()
    failed = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    cache_write_tokens = serializers.IntegerField()
    cache_write_1h_tokens = serializers.IntegerField(
        help_text="Those of them that stay in the cache for an hour."
    )
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField()
    cost = serializers.SerializerMethodField(
        help_text="USD, of the calls whose price is known; null where staff do not"
        " show costs."
    )
    saved_cost = serializers.SerializerMethodField(
        help_text="USD that answers from the cache would have cost."
    )
    unpriced = serializers.IntegerField(help_text="Calls whose cost is unknown.")
    unmeasured = serializers.IntegerField(help_text="Calls whose tokens are unknown.")
    estimated = serializers.IntegerField(
        help_text="Calls whose tokens are estimated, as their host reported none."
    )
    from_cache = serializers.IntegerField(help_text="Calls that a stored answer saved.")
    web_searches = serializers.IntegerField(
        help_text="Searches that the providers billed."
    )
    file_searches = serializers.IntegerField(
        help_text="Searches that the providers billed."
    )

    def _money(self, amount: Any) -> str | None:
        return f"{amount:.12f}" if self.context.get("costs") else None

    @extend_schema_field(serializers.DecimalField(24, 12, allow_null=True))
    def get_cost(self, usage: Any) -> str | None:
        return self._money(usage["cost"])

    @extend_schema_field(serializers.DecimalField(24, 12, allow_null=True))
    def get_saved_cost(self, usage: Any) -> str | None:
        return self._money(usage["saved_cost"])


class WaitsSerializer(serializers.Serializer[Any]):
    """Seconds to the first token; percentiles are null where they are not known by
    this grouping."""

    mean = serializers.FloatField(allow_null=True)
    p50 = serializers.FloatField(allow_null=True)
    p95 = serializers.FloatField(allow_null=True)


class TotalUsageSerializer(UsageSerializer):
    ttft = WaitsSerializer()


class DayUsageSerializer(UsageSerializer):
    day = serializers.DateField()


class GroupUsageSerializer(TotalUsageSerializer):
    name = serializers.CharField()


class UsageReportSerializer(serializers.Serializer[Any]):
    first = serializers.DateField()
    last = serializers.DateField()
    by = serializers.CharField()
    time_zone = serializers.CharField(help_text="Of the days.")
    is_complete = serializers.BooleanField(
        help_text="False while calls wait to be counted."
    )
    total = TotalUsageSerializer()
    by_day = DayUsageSerializer(many=True)
    groups = GroupUsageSerializer(
        many=True,
        help_text="The dearest first. A call of a user in two groups, or with two"
        " tags, counts for both. Conversations are named by their ids, and only the"
        " dearest 1,000 are listed.",
    )


def _parameters(groupings: Any) -> list[OpenApiParameter]:
    day = OpenApiTypes.DATE
    return [
        OpenApiParameter("first", day, description=f"Usually {DAYS} days ago."),
        OpenApiParameter("last", day, description="Usually today."),
        OpenApiParameter("by", str, enum=list(groupings), description="Of `groups`."),
        OpenApiParameter(
            "format",
            str,
            enum=["json", "csv"],
            description="`csv`: `groups` as a file.",
        ),
    ]


_RESPONSES = {
    200: UsageReportSerializer,
    (200, "text/csv"): OpenApiTypes.STR,
    **schema.errors(400),
}


class UsageView(ApiView):
    serializer_class = UsageReportSerializer

    @schema.describe(
        also_accepted=["as"],
        summary="What the user has used",
        parameters=_parameters(_OWN),
        responses=_RESPONSES,
    )
    def get(self, request: Request) -> HttpResponse:
        """Model calls that the user's messages, tokens and programs have caused, in
        own conversations and in those of others."""
        costs = settings.SHOW_COSTS
        own = request.user.pk or 0
        form = UsageForm(request.query_params.dict(), own=own, costs=costs)
        return _respond(request, form, costs=costs)


class AllUsageView(ApiView):
    serializer_class = UsageReportSerializer
    token_scopes = (Scope.ADMIN_READ,)

    @schema.describe(
        also_accepted=["as"],
        parameters=[
            *_parameters(_EVERYBODYS),
            OpenApiParameter("user", int, description="Only of the user with this id."),
        ],
        responses={**_RESPONSES, **schema.errors(400, 403)},
    )
    def get(self, request: Request) -> HttpResponse:
        """Everybody's model calls, for staff who may see usage."""
        if not (request.user.is_staff and request.user.has_perm(VIEW_USAGE)):
            raise Forbidden("Only staff who may see everybody's usage may read this.")
        form = StaffUsageForm(request.query_params.dict())
        return _respond(request, form, costs=True)


def _respond(request: Request, form: UsageForm, *, costs: bool) -> HttpResponse:
    query = request.query_params
    name = "format" if "format" in query else "as"
    wanted = query.get(name, "json")
    if wanted not in ("json", "csv"):
        raise ValidationError({name: ["Choose json or csv."]})
    if not form.is_valid():
        raise ValidationError(
            {
                "detail" if name == "__all__" else name: [str(each) for each in found]
                for name, found in form.errors.items()
            }
        )
    if form.by_tool:
        text = "Statistics of tools are those of /api/tools/?statistics=30d."
        raise ValidationError({"by": [text]})
    if form.by_conversation:
        report, _is_cut = report_conversations(form.query)
    else:
        report = report_usage(form.query)
    if wanted == "csv":
        return usage_csv(report, costs=costs)
    shown = UsageReportSerializer(_values(report), context={"costs": costs})
    return Response(shown.data)


def _values(report: UsageReport) -> dict[str, Any]:
    query = report.query
    return {
        "first": query.first,
        "last": query.last,
        "by": query.grouping,
        "time_zone": settings.TIME_ZONE,
        "is_complete": report.is_complete,
        "total": _with_waits(report.total, report.waits),
        "by_day": [{"day": day, **usage.as_dict()} for day, usage in report.by_day],
        "groups": [_group(each) for each in report.groups],
    }


def _with_waits(usage: Usage, waits: Waits) -> dict[str, Any]:
    ttft = {"mean": usage.mean_wait, "p50": waits.p50, "p95": waits.p95}
    return {**usage.as_dict(), "ttft": ttft}


def _group(group: UsageGroup) -> dict[str, Any]:
    return {"name": group.name, **_with_waits(group.usage, group.waits)}
