from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from llm.admin.bases import ReadOnlyAdmin
from llm.models import ModelCall


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
    list_filter = ["status", "model__provider", "created_at"]
    list_select_related = ["model", "key"]
    search_fields = ["turn_id__exact", "request_id__exact"]
    search_help_text = _("The whole id of a turn, or of the provider's request.")
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "created_at",
                    "status",
                    "finish_reason",
                    "turn_id",
                    "step",
                    "attempt",
                    "degraded",
                ]
            },
        ),
        (
            _("Who answered"),
            {
                "fields": [
                    "provider_name",
                    "model_name",
                    "model",
                    "key",
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
                    "output_tokens",
                    "reasoning_tokens",
                    "cost_shown",
                    "first_delta",
                    "whole",
                ]
            },
        ),
        (_("Error"), {"fields": ["http_status", "error_code", "error_detail"]}),
    ]

    @admin.display(description=_("tokens in → out"))
    def tokens(self, obj: ModelCall) -> str:
        counts = (obj.input_tokens, obj.output_tokens)
        return " → ".join("–" if count is None else str(count) for count in counts)

    @admin.display(description=_("cost"))
    def cost_shown(self, obj: ModelCall) -> str:
        return "–" if obj.cost is None else f"${obj.cost:.6f}"

    @admin.display(description=_("first delta"))
    def first_delta(self, obj: ModelCall) -> str:
        return _seconds(obj.ttft)

    @admin.display(description=_("latency"))
    def whole(self, obj: ModelCall) -> str:
        return _seconds(obj.latency)


def _seconds(duration: float | None) -> str:
    return "–" if duration is None else f"{duration:.2f} s"
