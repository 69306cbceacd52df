"""`GET /v1/usage`: what the token's user has spent, by token, model, tag or day.

Tokens of staff who may see everybody's usage get that with `everybody=true`. The sums
are those of the usage pages (`llm.pricing.usage_report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from conversations.access.errors import ConversationNotAllowed, Forbidden
from conversations.forms.usage_form import CONVERSATION, TOOL, StaffUsageForm
from conversations.gateway.request_context import RequestContext
from conversations.models import AccessToken
from conversations.models.access_token import Scope
from conversations.staff.usage_csv import usage_csv
from llm.errors import BadRequest
from llm.pricing.usage_report import Usage, UsageReport, report_usage

VIEW_USAGE = "llm.view_usage"
_COUNTS = (
    "calls",
    "failed",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "unpriced",
    "unmeasured",
    "estimated",
    "from_cache",
    "web_searches",
    "file_searches",
)
_CSV = [(b"content-type", b"text/csv; charset=utf-8"), (b"cache-control", b"no-store")]


async def report(context: RequestContext) -> None:
    """Raises BadRequest, Forbidden."""
    query, database = context.exchange.query, context.resources.database
    if (wanted := query.get("format", "json")) not in ("json", "csv"):
        raise BadRequest("'format' must be json or csv.", param="format")
    if (everybody := query.get("everybody", "false")) not in ("true", "false"):
        raise BadRequest("'everybody' must be true or false.", param="everybody")
    # In the writer's thread: a report first counts what is new.
    found, costs = await database.write(
        read_report, context.token, query, everybody == "true"
    )
    if wanted == "csv":
        body = usage_csv(found, costs=costs).content
        await context.exchange.repeat(200, [*_CSV], body)
    else:
        await context.exchange.answer(200, _to_dict(found, costs=costs))


def read_report(
    token: AccessToken, query: Mapping[str, str], everybody: bool
) -> tuple[UsageReport, bool]:
    if token.conversation_limit is not None:
        raise ConversationNotAllowed
    names = ("first", "last", "by")
    if empty := [name for name in names if query.get(name) == ""]:
        raise BadRequest(f"'{empty[0]}' is empty; leave it out.", param=empty[0])
    sent = {name: query[name] for name in names if name in query}
    if everybody:
        _check_staff(token)
        if "user" in query:
            sent["user"] = query["user"]
    else:
        sent["user"] = str(token.user_id)
    form = StaffUsageForm(sent)
    if not form.is_valid():
        raise BadRequest(f"{form.problem}", param=next(iter(form.errors)))
    if form.cleaned_data["by"] == TOOL:
        raise BadRequest("Tools cost no tokens; see /api/tools/.", param="by")
    if form.cleaned_data["by"] == CONVERSATION:
        raise BadRequest("Conversations are listed by /api/usage/.", param="by")
    costs = everybody or settings.SHOW_COSTS
    return report_usage(form.query), costs


def _check_staff(token: AccessToken) -> None:
    """Raises Forbidden."""
    if not token.has_scope(Scope.ADMIN_READ):
        raise Forbidden(
            f"Everybody's usage needs the scope {Scope.ADMIN_READ.value!r}."
        )
    if not (token.user.is_staff and token.user.has_perm(VIEW_USAGE)):
        raise Forbidden("Only staff who may see everybody's usage may read this.")


def _to_dict(found: UsageReport, *, costs: bool) -> dict[str, Any]:
    query = found.query
    return {
        "object": "usage",
        "first": query.first.isoformat(),
        "last": query.last.isoformat(),
        "by": query.grouping,
        "time_zone": settings.TIME_ZONE,
        "is_complete": found.is_complete,
        "total": _usage(found.total, costs),
        "by_day": [
            {"day": day.isoformat(), **_usage(usage, costs)}
            for day, usage in found.by_day
        ],
        "data": [
            {"name": group.name, **_usage(group.usage, costs)} for group in found.groups
        ],
    }


def _usage(usage: Usage, costs: bool) -> dict[str, Any]:
    values = usage.as_dict()
    counts = {name: values[name] for name in _COUNTS}
    money = {
        name: f"{values[name]:.12f}" if costs else None
        for name in ("cost", "saved_cost")
    }
    return {**counts, **money}
