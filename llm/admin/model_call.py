"""Admin of model calls, read-only: tokens, costs, latency and errors."""

from __future__ import annotations

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from llm.admin.bases import ReadOnlyAdmin
from llm.admin.exchange import page_context
from llm.models import ModelCall, ModelExchange

VIEW_EXCHANGE = "llm.view_modelexchange"


@admin.register(ModelCall)
class ModelCallAdmin(ReadOnlyAdmin):
    list_display = [
        "created_at",
        "model_name",
        "provider_name",
        "status",
        "tokens",
        "cost_shown",
        "first_delta",
        "whole",
        "error_code",
    ]
    # Not "provider_name": its distinct values would need a scan of this large table.
    list_filter = ["status", "is_cached", "model__provider", "created_at"]
    ordering = ["-created_at", "-id"]
    date_hierarchy = "created_at"
    list_select_related = ["model", "key", "user"]
    search_fields = [
        "=turn_id",
        "=request_id",
        "=response_id",
        "=our_request_id",
        "=client_request_id",
        "=end_user",
    ]
    search_help_text = _(
        "The complete id of a turn or a request (ours, the client's or the"
        " provider's), or an end user."
    )
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "created_at",
                    "status",
                    "finish_reason",
                    "purpose",
                    "turn_id",
                    "step",
                    "attempt",
                    "degraded",
                ]
            },
        ),
        (
            _("Caller"),
            {
                "fields": [
                    "user",
                    "token_id",
                    "token_label",
                    "end_user",
                    "tags",
                    "our_request_id",
                    "client_request_id",
                ]
            },
        ),
        (
            _("Provider"),
            {
                "fields": [
                    "provider_name",
                    "model_name",
                    "model",
                    "key",
                    "key_source",
                    "request_id",
                    "response_id",
                ]
            },
        ),
        (
            _("Tokens and time"),
            {
                "fields": [
                    "input_tokens",
                    "cached_tokens",
                    "cache_write_tokens",
                    "cache_write_1h_tokens",
                    "output_tokens",
                    "reasoning_tokens",
                    "service_tier",
                    "web_searches",
                    "file_searches",
                    "is_estimated",
                    "cost_shown",
                    "is_cached",
                    "saved_cost",
                    "started_at",
                    "first_delta",
                    "whole",
                ]
            },
        ),
        (_("Error"), {"fields": ["http_status", "error_code", "error_detail"]}),
    ]

    change_form_template = "admin/llm/modelcall/change_form.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ModelCall]:
        rows: QuerySet[ModelCall] = super().get_queryset(request)
        return rows.select_related("exchange").defer("exchange__content")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.exchange_view))
        return [
            path("<int:pk>/exchange/", view, name="llm_modelcall_exchange"),
            *super().get_urls(),
        ]

    def exchange_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """What was sent and received: it holds people's messages, so each visit is
        logged."""
        if not request.user.has_perm(VIEW_EXCHANGE):
            raise PermissionDenied
        rows = ModelExchange.objects.select_related("call")
        found = rows.filter(call__id=pk).first()
        if found is None:
            raise Http404
        self.log_change(request, found.call, "Read the request and response.")
        context = {
            **self.admin_site.each_context(request),
            **page_context(found.read()),
            "opts": self.opts,
            "row": found.call,
            "title": _("Request and response"),
        }
        template = "admin/llm/modelcall/exchange.html"
        return TemplateResponse(request, template, context)

    @admin.display(description=_("tokens in → out"))
    def tokens(self, obj: ModelCall) -> str:
        counts = (obj.input_tokens, obj.output_tokens)
        text = " → ".join("–" if count is None else str(count) for count in counts)
        return f"~ {text}" if obj.is_estimated else text

    @admin.display(description=_("cost"))
    def cost_shown(self, obj: ModelCall) -> str:
        if obj.cost is None:
            return "–"
        return f"~ ${obj.cost:.6f}" if obj.is_estimated else f"${obj.cost:.6f}"

    @admin.display(description=_("first delta"))
    def first_delta(self, obj: ModelCall) -> str:
        return _seconds(obj.ttft)

    @admin.display(description=_("latency"))
    def whole(self, obj: ModelCall) -> str:
        return _seconds(obj.latency)


def _seconds(duration: float | None) -> str:
    return "–" if duration is None else f"{duration:.2f} s"
