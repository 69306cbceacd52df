"""Rows for the admin's pages, and the address of each of them.

Names of pages: "admin ..." for pages of our own, "admin list ...", "admin add ..." and
"admin row ..." for those that each registered model has.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from conversations.models import (
    Announcement,
    ContextSource,
    IdempotencyKey,
    LastSeen,
    ProcessStatus,
    Replay,
    ReplayedTurn,
    ShareRule,
    TermsVersion,
    ToolCall,
    Turn,
)
from llm.models import ApiKey, ModelCall, Provider
from llm.probing.findings import fails, untested, works
from llm.wire.items import message
from tests.integration.accessibility.console_rows import store_console
from tests.integration.accessibility.mcp_rows import store_grants, store_mcp_server
from tests.integration.accessibility.policy_rows import store_policies
from tools.models import McpServer, Tool

#: Pages that each registered model has; the others are our own.
PLAIN = ("admin list", "admin add", "admin row")


def pages_of_staff() -> dict[str, str]:
    turn = Turn.objects.filter(status="completed", tool_calls=None).latest("created_at")
    _store_rows_of_staff(turn)
    return {
        "admin": reverse("admin:index"),
        "admin first steps": reverse("admin:first_steps"),
        "admin configuration": reverse("admin:config"),
        "admin board": reverse("admin:conversations_engine"),
        "admin tool statistics": reverse("admin:conversations_toolcall_statistics"),
        "admin import of tools": reverse("admin:tools_tool_import"),
        **_of_turn(turn),
        "admin key import": reverse("admin:llm_apikey_import"),
        **_of_provider(),
        **store_mcp_server(),
        **store_grants(turn),
        **store_console(turn),
        **store_policies(turn),
        **dict(_plain_pages()),
    }


def _store_rows_of_staff(turn: Turn) -> None:
    user = turn.conversation.owner
    now = timezone.now()
    ProcessStatus.objects.create(
        id="orchard:4711",
        runs_turns=True,
        started_at=now - timedelta(hours=5),
        heard_at=now + timedelta(hours=5),
        figures={
            "running": 3,
            "starting": 1,
            "slots": 1000,
            "connections": 4,
            "connections_waiting": 0,
            "max_connections": 2000,
            "lag": 0.004,
        },
    )
    McpServer.objects.create(name="library", url="https://mcp.example.org/mcp")
    ContextSource.objects.create(name="weather", title="Weather", text="Rain.")
    # Not a group of those whose pages are looked at: it would end their links.
    ShareRule.objects.create(group=Group.objects.create(name="Guests"), widest="group")
    # Over, and a draft: neither changes the pages that are looked at.
    Announcement.objects.create(
        text="The server moves **on Monday**.",
        starts_at=now - timedelta(days=2),
        ends_at=now - timedelta(days=1),
    )
    TermsVersion.objects.create(text="1. Be kind.")
    LastSeen.objects.get_or_create(user=user, conversation=turn.conversation)
    IdempotencyKey.objects.create(user=user, turn=turn, key="k-1")
    _store_calls(turn)


def _store_calls(turn: Turn) -> None:
    """Within the seven seconds of the turn."""
    begun = turn.started_at or turn.created_at
    calls = [("weather", 1.2, 1.6), ("find_events", 1.7, 4.1), ("calculator", 1.7, 1.9)]
    for name, start, end in calls:
        is_failed = name == "find_events"
        ToolCall.objects.create(
            turn=turn,
            call_id=f"call_{name}",
            name=name,
            state="failed" if is_failed else "completed",
            error="The server did not answer." if is_failed else "",
            started_at=begun + timedelta(seconds=start),
            ended_at=begun + timedelta(seconds=end),
        )
    ModelCall.objects.filter(turn_id=turn.pk).update(created_at=turn.finished_at)


def _of_turn(turn: Turn) -> dict[str, str]:
    replay = Replay.objects.create(
        name="Shorter instructions",
        created_by=User.objects.get(username="admin"),
        instructions="Answer in two sentences.",
        state="done",
    )
    replayed = ReplayedTurn.objects.create(
        replay=replay,
        turn=turn,
        state="completed",
        items=[message("assistant", "North leads, with 1,200 sold.")],
        model_calls=1,
        cost=Decimal("0.0031"),
        seconds=2.1,
    )
    base = f"/admin/conversations/turn/{turn.pk}"
    new = reverse("admin:conversations_replay_new")
    compared = reverse("admin:conversations_replay_turn", args=[replay.pk, replayed.pk])
    return {
        "admin turn": f"{base}/change/",
        "admin events": f"{base}/events/",
        "admin new replay": f"{new}?turn={turn.pk}",
        "admin replay": reverse("admin:conversations_replay_change", args=[replay.pk]),
        "admin replayed turn": compared,
    }


def _plain_pages() -> Iterator[tuple[str, str]]:
    """The list of each model, the form of a new row, and that of a stored one."""
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="admin")
    for model in filter(admin.site.is_registered, apps.get_models()):
        label = model._meta.label
        path = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield f"admin list {label}", reverse(f"{path}_changelist")
        if admin.site.get_model_admin(model).has_add_permission(request):
            yield f"admin add {label}", reverse(f"{path}_add")
        if row := _row(model):
            yield f"admin row {label}", reverse(f"{path}_change", args=[row.pk])


def _row(model: type[Model]) -> Model | None:
    return model._default_manager.order_by("-pk").first()


def _of_provider() -> dict[str, str]:
    provider = Provider.objects.create(
        name="Workshop",
        kind="openai_compatible",
        base_url="http://orchard.workshop.example:8080/v1",
        allow_private_network=True,
    )
    # It is not sent to the new address, and its row says so at length.
    provider.keys.create(label="earlier", secret="wk-9876543210-abcdefgh")
    provider.base_url = "http://10.0.0.7:8080/v1"
    provider.save()
    provider.keys.create(label="workshop", secret="wk-0123456789-abcdefgh")
    model = provider.models.create(name="orchard-32b-instruct", enabled=False)
    findings = [
        works("text", "Answered in 0.8 s."),
        works("stream", "The answer came in 20 pieces."),
        fails("usage", "The stream has no token counts."),
        works("tool", "Calls the tool and uses its result."),
        fails(
            "parallel_tools", "Asked for two calls at once, the model made only one."
        ),
        works("json_schema", "The answer follows the schema."),
        fails(
            "image",
            "Refused: %(why)s",
            why="The provider refused the request. Status 400. image_url is not"
            " supported by this model.",
        ),
        untested(
            "reasoning_replay",
            "The model sent no reasoning that could be sent back.",
        ),
        works("cancel", "Takes the next request after a cancelled answer."),
    ]
    model.probes.create(
        findings=[finding.to_dict() for finding in findings],
        finished_at=timezone.now(),
    )
    key = ApiKey.objects.get(provider=provider, label="workshop")
    tool = Tool.objects.get(name="calculator")
    return {
        "admin provider": f"/admin/llm/provider/{provider.pk}/change/",
        "admin probe": f"/admin/llm/provider/{provider.pk}/probe/",
        "admin deletion": f"/admin/llm/provider/{provider.pk}/delete/",
        "admin key": f"/admin/llm/apikey/{key.pk}/change/",
        "admin rotation": f"/admin/llm/apikey/{key.pk}/rotate/",
        "admin dry run": f"/admin/tools/tool/{tool.pk}/dry-run/",
    }
