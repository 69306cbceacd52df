from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from tests.migrating import create_old_tables, migrate_to


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_existing_tools_keep_their_policy_and_are_marked():
    try:
        before = create_old_tables("tools", "0007_secret_rows")
        tools = before.get_model("tools", "Tool").objects
        tools.all().delete()
        for method in ("GET", "POST", "DELETE"):
            _http(before, method.lower(), method)
        _http(before, "asked", "POST", approval="always")
        server = before.get_model("tools", "McpServer").objects.create(name="s")
        for name, annotations in (("reads", {"readOnlyHint": True}), ("writes", {})):
            before.get_model("tools", "McpTool").objects.create(
                tool=tools.create(name=name, kind="mcp"),
                server=server,
                remote_name=name,
                definition={"annotations": annotations},
                approved_at=timezone.now(),
            )
        after = migrate_to("tools", "0008_runs_unasked").get_model("tools", "Tool")
        marked = after.objects.filter(runs_unasked=True).values_list("name", flat=True)
        assert set(marked) == {"post", "delete", "writes"}
        late = tools.create(name="late", kind="http")  # by a process of before
        assert not after.objects.get(pk=late.pk).runs_unasked
    finally:
        call_command("migrate", verbosity=0)


def _http(apps: Any, name: str, method: str, **fields: str) -> None:
    tool = apps.get_model("tools", "Tool").objects.create(
        name=name, kind="http", **fields
    )
    apps.get_model("tools", "HttpTool").objects.create(
        tool=tool, method=method, url="https://a.test/x"
    )
