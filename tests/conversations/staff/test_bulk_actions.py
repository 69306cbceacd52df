"""Actions on several rows in the admin's lists of conversations, people and tools."""

from __future__ import annotations

import html
import io
import re
import zipfile
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access import sessions
from conversations.models import AccessToken, Conversation, Turn
from conversations.models.preset import ContextSource, Preset
from llm.wire.items import user_message
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    signed_in,
    staff,
)
from tools.models import Tool, ToolVersion
from tools.models.mcp_server import McpServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

MORE_RIGHTS = "accounts with rights that you do not have"


def list_page(row: Any) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_changelist")


def act(client: Client, action: str, *rows: Any, **posted: object) -> Any:
    keys = [row.pk for row in rows]
    data = {"action": action, "_selected_action": keys, **posted}
    return client.post(list_page(rows[0]), data, follow=True)


def confirm(client: Client, action: str, *rows: Any, **posted: object) -> list[str]:
    """The messages of a confirmed action."""
    return messages(act(client, action, *rows, confirmed="yes", **posted))


def messages(answer: Any) -> list[str]:
    found = re.findall(
        r'<li class="(?:success|warning|error)">(.*?)</li>', answer.content.decode()
    )
    return [html.unescape(each) for each in found]


def offered(client: Client, row: Any) -> set[str]:
    page = client.get(list_page(row)).content.decode()
    select = re.search(r'<select name="action".*?</select>', page, re.DOTALL)
    return set(re.findall(r'<option value="(\w+)"', select[0])) if select else set()


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def chats(ada: User) -> list[Conversation]:
    model = a_model()
    found = []
    for title in ("Noon in Paris", "Rain in Riga", "Snow in Oslo"):
        row = Conversation.objects.create(owner=ada, title=title, language_model=model)
        a_finished_turn(row, f"Tell me of {title}.", "It is so.")
        found.append(row)
    return found


# Conversations


def test_conversations_are_archived_and_taken_out_again(admin_client, chats):
    one, two, gone = chats
    gone.delete_softly()
    done = messages(act(admin_client, "archive", one, two, gone))
    assert done == ["2 conversations archived; left out: 1 deleted."]
    assert Conversation.objects.exclude(archived_at=None).count() == 2
    again = messages(act(admin_client, "archive", one))
    assert again == ["0 conversations archived; left out: 1 archived already."]
    back = messages(act(admin_client, "unarchive", one, gone))
    assert back == [
        "1 conversation taken out of the archive; left out: 1 not archived."
    ]


def test_deleting_conversations_counts_first_and_stops_what_runs(admin_client, chats):
    one, two, gone = chats
    gone.delete_softly()
    running = two.open_turn([user_message("And tomorrow?")]).turn
    text = html.unescape(act(admin_client, "delete_softly", *chats).content.decode())
    assert "3 selected rows" in text
    assert "They have 4 turns; 1 of these run or wait" in text
    assert Conversation.objects.filter(deleted_at=None).count() == 2
    done = confirm(admin_client, "delete_softly", *chats)
    assert done == ["2 conversations deleted; left out: 1 deleted already."]
    assert not Conversation.objects.of(one.owner).exists()
    running.refresh_from_db()
    assert running.cancel_requested
    entry = LogEntry.objects.order_by("-pk").first()
    assert "Paris" not in str(vars(entry))
    assert "Riga" not in str(vars(entry))


def test_conversations_are_exported_for_an_import(admin_client, chats):
    answer = act(admin_client, "export", *chats[:2])
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    texts = [archive.read(name).decode() for name in archive.namelist()]
    assert len(texts) == 2
    assert "Tell me of Noon in Paris." in texts[0]
    assert "Snow in Oslo" not in "".join(texts)
    assert LogEntry.objects.filter(change_message="Exported.").count() == 2


def test_staff_do_to_conversations_only_what_they_may(chats):
    looker = signed_in(staff("looks", "view_conversation", "inspect_turn"))
    assert offered(looker, chats[0]) == {"export"}
    act(looker, "archive", *chats)
    confirm(looker, "delete_softly", *chats)
    assert not Conversation.objects.exclude(archived_at=None).exists()
    assert not Conversation.objects.exclude(deleted_at=None).exists()
    own = signed_in(staff("own-only", "view_conversation"))
    shown = messages(act(own, "export", *chats))
    assert shown == ["None of these conversations is shown to you."]
    mender = signed_in(staff("mends", "edit_items", "inspect_turn"))
    assert offered(mender, chats[0]) == {"export", "archive", "unarchive"}


# Turns


@pytest.fixture
def turns(chats: list[Conversation]) -> list[Turn]:
    """One that runs, one that waits for a run, one that is over."""
    runs = chats[0].open_turn([user_message("Go on.")]).turn
    waits = chats[1].open_turn([user_message("Go on.")]).turn
    Turn.objects.filter(pk=runs.pk).update(
        status=Turn.Status.RUNNING, epoch=1, claims=4
    )
    return [runs, waits, chats[2].turns.get()]


def test_turns_are_stopped_together_after_a_question(
    admin_client, turns, django_capture_on_commit_callbacks
):
    assert (
        "Stop these turns?" in act(admin_client, "stop_turns", *turns).content.decode()
    )
    with django_capture_on_commit_callbacks(execute=True):
        done = confirm(admin_client, "stop_turns", *turns)
    assert done == ["2 turns are being stopped; left out: 1 over already."]
    assert Turn.objects.filter(cancel_requested=True).count() == 2


def test_turns_are_queued_again_and_released_together(admin_client, turns):
    done = confirm(admin_client, "release_turns", *turns)
    assert done == ["1 turn was released; left out: 1 not running, 1 over already."]
    turns[0].refresh_from_db()
    assert (turns[0].status, turns[0].epoch) == ("queued", 2)
    done = confirm(admin_client, "retry_turns", *turns)
    assert done == ["2 turns are queued again; left out: 1 over already."]
    turns[0].refresh_from_db()
    assert turns[0].claims == 0


def test_staff_do_to_turns_only_what_they_may(turns):
    looker = signed_in(staff("looks", "view_turn", "inspect_turn"))
    assert not offered(looker, turns[0]) & {
        "stop_turns",
        "retry_turns",
        "release_turns",
    }
    confirm(looker, "stop_turns", *turns)
    confirm(looker, "release_turns", *turns)
    turns[0].refresh_from_db()
    assert turns[0].status == Turn.Status.RUNNING
    assert not turns[0].cancel_requested


# Tokens and people


def test_tokens_are_revoked_together_after_a_question(admin_client, ada):
    rows = [AccessToken.issue(ada, f"script {n}")[0] for n in range(3)]
    rows[0].revoke()
    assert "cannot be taken back" in act(admin_client, "revoke", *rows).content.decode()
    assert AccessToken.objects.filter(revoked_at=None).count() == 2
    assert confirm(admin_client, "revoke", *rows) == [
        "2 are revoked; left out: 1 revoked already."
    ]
    assert not AccessToken.objects.filter(revoked_at=None).exists()


def test_users_are_deactivated_but_never_oneself(admin_client, admin_user, ada):
    bob = a_user("bob", is_active=False)
    web = signed_in(ada)
    asked = act(admin_client, "deactivate", ada, bob, admin_user).content.decode()
    assert "Deactivate these users?" in asked
    assert User.objects.filter(is_active=True).count() == 2
    [done] = confirm(admin_client, "deactivate", ada, bob, admin_user)
    assert done.startswith("1 user deactivated; left out: ")
    assert "1 your own account" in done
    assert "1 deactivated already" in done
    assert web.get("/").status_code == 302
    assert messages(act(admin_client, "activate", ada, bob)) == ["2 users activated."]


def test_a_clerk_changes_no_administrator(admin_user, ada):
    clerk = signed_in(staff("clerk", "view_user", "change_user"))
    done = confirm(clerk, "deactivate", admin_user, ada)
    assert done == [f"1 user deactivated; left out: 1 {MORE_RIGHTS}."]
    group = Group.objects.create(name="Law")
    done = confirm(clerk, "change_membership", admin_user, ada, add=[group.pk])
    assert done == [f"Groups of 1 user changed; left out: 1 {MORE_RIGHTS}."]
    assert [*ada.groups.all()] == [group]
    done = confirm(clerk, "change_membership", ada, remove=[group.pk])
    assert done == ["Groups of 1 user changed."]
    looker = signed_in(staff("looks", "view_user"))
    assert offered(looker, ada) == set()


def test_users_are_signed_out_everywhere(admin_client, ada):
    bob, web = a_user("bob"), signed_in(ada)
    assert web.get("/").status_code == 200
    done = confirm(admin_client, "sign_out", ada, bob)
    assert done == ["1 user signed out; left out: 1 not signed in."]
    assert web.get("/").status_code == 302
    assert sessions.end_others(ada, None) == 0


# Tools, servers, sources, presets


def test_the_approval_policy_of_many_tools_is_set(admin_client):
    one, two = Tool.objects.filter(kind="python")[:2]
    hosted = Tool.objects.create(
        name="search", kind="hosted", definition={"type": "web_search"}
    )
    two.approval = "always"
    two.save()
    page = act(admin_client, "set_approval", one, two, hosted).content.decode()
    assert 'name="approval"' in page
    done = confirm(admin_client, "set_approval", one, two, hosted, approval="always")
    assert len(done) == 1
    assert done[0].startswith("Approval policy of 1 tool set; left out: ")
    assert "1 run by their provider, which asks nobody" in done[0]
    assert "1 had this policy already" in done[0]
    one.refresh_from_db()
    assert one.approval == "always"
    assert ToolVersion.objects.filter(tool=one).count() == 2
    rule = confirm(admin_client, "set_approval", one, approval="rule")
    assert rule == ["Approval policy of 0 tools set; left out: 1 without a rule."]


def test_groups_of_many_tools_are_changed_as_versions(admin_client):
    tools = list(Tool.objects.filter(kind="python")[:2])
    group = Group.objects.create(name="Law")
    done = confirm(admin_client, "change_groups", *tools, add=[group.pk])
    assert done == ["Groups of 2 rows changed."]
    newest = ToolVersion.objects.filter(tool=tools[0]).first()
    assert newest.snapshot["groups"] == ["Law"]
    looker = signed_in(staff("looks", "view_tool"))
    assert offered(looker, tools[0]) == set()


def test_a_server_that_is_off_or_fails_is_left_out_of_a_refresh(admin_client):
    off = McpServer.objects.create(name="off", url="https://a.test/mcp", enabled=False)
    fails = McpServer.objects.create(name="fails", url="http://127.0.0.1:9/mcp")
    [done] = messages(act(admin_client, "refresh", off, fails))
    assert done.startswith("0 servers listed their tools; left out: ")
    assert "1 switched off" in done
    assert "1 fails (" in done
    fails.refresh_from_db()
    assert fails.error
    [done] = messages(act(admin_client, "enable", off, fails))
    assert done == "1 switched on; left out: 1 switched on already."
    looker = signed_in(staff("looks", "view_mcpserver"))
    assert offered(looker, off) == set()


def test_switching_a_hosted_server_off_takes_its_tool_from_providers(admin_client):
    row = McpServer.objects.create(name="docs", url="https://a.test/mcp", hosted=True)
    row.sync_hosted_tool()
    assert messages(act(admin_client, "disable", row)) == ["1 switched off."]
    row.refresh_from_db()
    assert not row.enabled
    assert row.hosted_tool.build_hosted_definition() is None


def test_sources_and_presets_are_switched_together(admin_client):
    sources = [
        ContextSource.objects.create(name=name, kind="text", text="Be kind.")
        for name in ("house", "law")
    ]
    assert messages(act(admin_client, "disable", *sources)) == ["2 switched off."]
    preset = Preset.objects.create(name="Lawyer")
    assert messages(act(admin_client, "disable", preset)) == ["1 switched off."]
    preset.refresh_from_db()
    assert not preset.enabled
    looker = signed_in(staff("looks", "view_preset", "view_contextsource"))
    assert offered(looker, preset) == offered(looker, sources[0]) == set()


def test_owners_of_a_preset_do_not_change_who_may_use_it():
    group = Group.objects.create(name="Law")
    owner = staff("owner")
    owner.groups.add(group)
    preset = Preset.objects.create(name="Lawyer", owner_group=group)
    client = signed_in(owner)
    assert offered(client, preset) == set()
    confirm(client, "change_groups", preset, add=[group.pk])
    act(client, "disable", preset)
    preset.refresh_from_db()
    assert preset.enabled
    assert not preset.groups.exists()


def test_a_lost_connection_names_nothing_twice(admin_client, chats):
    """A page that is posted twice says what the second changed: nothing."""
    confirm(admin_client, "delete_softly", *chats)
    done = confirm(admin_client, "delete_softly", *chats)
    assert done == ["0 conversations deleted; left out: 3 deleted already."]
    first = Conversation.objects.earliest("created_at")
    assert first.deleted_at <= timezone.now()
