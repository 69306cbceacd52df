"""API view of the tools that a user may use, with statistics of their calls."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.access.errors import ConversationNotAllowed
from conversations.api import schema
from conversations.api.authentication import token_of
from conversations.api.pagination import PageSerializer, list_rows
from conversations.api.views import ApiView
from conversations.input.checks import InputError, either
from conversations.models import ToolCall
from conversations.models.access_token import AccessToken, Scope
from conversations.requests.errors import InvalidInput
from conversations.staff.tool_statistics import (
    PERIODS,
    ToolStatistics,
    report,
    report_all,
)
from tools.models import Tool

INSPECT = "conversations.inspect_turn"

_STATISTICS = OpenApiParameter(
    "statistics",
    OpenApiTypes.STR,
    enum=list(PERIODS),
    description=(
        "Statistics over this period: of your own calls, or of all calls for staff who"
        " may read other people's turns."
    ),
)


class StatisticsSerializer(serializers.Serializer[Any]):
    calls = serializers.IntegerField()
    counts = serializers.DictField(
        child=serializers.IntegerField(), help_text="Calls by state."
    )
    blocking = serializers.IntegerField(help_text="Calls that the model waits for.")
    non_blocking = serializers.IntegerField(help_text="Calls in the background.")
    pending = serializers.IntegerField(help_text="Calls that have not ended.")
    pending_non_blocking = serializers.IntegerField(
        help_text="Of these, calls in the background."
    )
    error_rate = serializers.FloatField(
        allow_null=True, help_text="Share of the ended calls, 0 to 1."
    )
    p50 = serializers.FloatField(allow_null=True, help_text="Seconds.")
    p95 = serializers.FloatField(allow_null=True, help_text="Seconds.")
    last_at = serializers.DateTimeField(allow_null=True)


class ToolSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    description = serializers.CharField()
    kind = serializers.ChoiceField(choices=Tool.Kind.choices)
    parameters = serializers.SerializerMethodField()
    blocking = serializers.BooleanField(
        help_text="Whether the model waits for the result."
    )
    approval = serializers.ChoiceField(
        choices=Tool.Approve.choices, help_text="When a person must approve a call."
    )
    only_in_presets = serializers.BooleanField(
        help_text="Whether only conversations may use it whose preset names it."
    )
    statistics = StatisticsSerializer(
        required=False, help_text="Present if the parameter `statistics` is set."
    )

    @extend_schema_field(
        {
            "type": "object",
            "additionalProperties": {},
            "nullable": True,
            "description": "JSON Schema.",
        }
    )
    def get_parameters(self, tool: dict[str, Any]) -> Any:
        return tool["parameters"]


class ToolsSerializer(PageSerializer):
    results = ToolSerializer(many=True)
    data = ToolSerializer(many=True, help_text="The same as `results`.")  # type: ignore[assignment]


class ToolsView(ApiView):
    limits_conversations = True
    token_scopes = (Scope.CHAT, Scope.TOOLS, Scope.ADMIN_READ)
    serializer_class = ToolsSerializer

    @schema.describe(
        parameters=[_STATISTICS, *schema.list_parameters("kind")],
        responses={200: ToolsSerializer, **schema.errors(400)},
    )
    def get(self, request: Request) -> Response:
        """The tools that this user may use; those without parameters are run by the
        model's provider."""
        tools = _tools(request.user, token_of(request))
        if (period := request.query_params.get("statistics")) is not None:
            done = _statistics(request, period)
            for tool in tools:
                tool["statistics"] = done.get(
                    tool["name"], ToolStatistics(name=tool["name"])
                )
        shown = ToolSerializer(tools, many=True).data
        names = ["name", "label", "description"]
        return list_rows(request, shown, searched=names, filtered=["kind"])


def _tools(user: Any, token: AccessToken | None) -> list[dict[str, Any]]:
    offer = Tool.objects.load_for(user)
    if token is not None:
        offer = offer.limited_to(token.tool_names)
    rows = Tool.objects.filter(name__in=[*offer.tools, *offer.hosted])
    entries = []
    for row in rows.order_by("name").only("name", "label", "kind"):
        tool = offer.tools.get(row.name)
        entries.append(
            {
                "name": row.name,
                "label": tool.label or row.name if tool else str(row),
                "description": tool.description if tool else "",
                "kind": row.kind,
                "parameters": tool.parameters if tool else None,
                "only_in_presets": row.name in offer.only_in_presets,
                "blocking": tool.blocking if tool else True,
                "approval": tool.approval.policy if tool and tool.approval else "never",
            }
        )
    return entries


def _statistics(request: Request, period: str) -> dict[str, ToolStatistics]:
    """Statistics by tool: of all calls for permitted staff, else of the user's own.

    Calls in deleted conversations count.
    """
    if period not in PERIODS:
        problem = f"expected {either(PERIODS)}."
        raise InvalidInput(InputError("statistics", problem))
    token = token_of(request)
    if token is not None and token.conversation_limit is not None:
        raise ConversationNotAllowed
    if (
        request.user.is_staff
        and request.user.has_perm(INSPECT)
        and (token is None or token.has_scope(Scope.ADMIN_READ))
    ):
        return report_all(period).by_name
    own = ToolCall.objects.filter(turn__conversation__owner=request.user.pk)
    return report(own, period).by_name
