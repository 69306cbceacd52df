"""MCP servers and context sources for groups serve nobody else."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from conversations.models.preset import ContextSource, Preset
from tests.conversations.scene import a_model, a_user, signed_in
from tools.models import McpServer, McpTool, Tool

pytestmark = pytest.mark.django_db


@pytest.fixture
def group() -> Group:
    return Group.objects.create(name="Law")


@pytest.fixture
def member(group: Group) -> User:
    user = a_user("member")
    user.groups.add(group)
    return user


def test_tools_of_a_server_for_a_group_are_its_members(group: Group, member: User):
    other = a_user("other")
    server = McpServer.objects.create(name="files", url="https://mcp.test/mcp")
    tool = Tool.objects.create(name="files__read", kind=Tool.Kind.MCP, enabled=True)
    McpTool.objects.create(
        tool=tool,
        server=server,
        remote_name="read",
        definition={"name": "read", "inputSchema": {"type": "object"}},
        approved_at=timezone.now(),
    )
    for user in (member, other):
        assert tool in Tool.objects.visible_to(user)
    server.groups.add(group)
    assert tool in Tool.objects.visible_to(member)
    assert tool not in Tool.objects.visible_to(other)
    tool.groups.add(Group.objects.create(name="another"))
    assert tool not in Tool.objects.visible_to(member)


def test_a_tool_that_a_provider_calls_follows_its_servers_groups(
    group: Group, member: User
):
    tool = Tool.objects.create(name="remote", kind=Tool.Kind.HOSTED, enabled=True)
    server = McpServer.objects.create(
        name="remote", url="https://mcp.test/mcp", hosted=True, hosted_tool=tool
    )
    server.groups.add(group)
    assert tool in Tool.objects.visible_to(member)
    assert tool not in Tool.objects.visible_to(a_user("other"))


def test_a_source_for_a_group_is_in_its_members_prompts_only(
    group: Group, member: User
):
    other, chief = a_user("other"), User.objects.create_superuser("chief")
    preset = Preset.objects.create(name="p")
    for position, name in enumerate(("open", "closed")):
        source = ContextSource.objects.create(name=name, title=name, text="x")
        preset.links.create(source=source, position=position)
    ContextSource.objects.get(name="closed").groups.add(group)

    def names(user: User) -> list[str]:
        return [source.name for source in preset.context_sources(user)]

    assert names(member) == names(chief) == ["open", "closed"]
    assert names(other) == ["open"]


def _delete_in_admin(group: Group) -> None:
    client = signed_in(User.objects.create_superuser("root"))
    client.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})
    client.post(
        "/admin/auth/group/",
        {
            "action": "delete_selected",
            "_selected_action": [group.pk],
            "post": "yes",
        },
    )


def test_a_group_that_alone_may_use_something_is_not_deleted(
    group: Group, member: User
):
    model = a_model("secret")
    model.groups.add(group)
    _delete_in_admin(group)
    assert list(model.groups.all()) == [group]


def test_a_group_that_approves_calls_of_a_tool_is_not_deleted(
    group: Group, member: User
):
    tool = Tool.objects.create(name="pay", approvers=group)
    _delete_in_admin(group)
    tool.refresh_from_db()
    assert tool.approvers == group


def test_a_group_beside_another_is_deleted(group: Group, member: User):
    model = a_model("secret")
    model.groups.add(group, Group.objects.create(name="Tax"))
    _delete_in_admin(group)
    assert [each.name for each in model.groups.all()] == ["Tax"]
