from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from conversations import engine
from conversations.models import (
    AccessToken,
    Attachment,
    Conversation,
    IdempotencyKey,
    Item,
    Preset,
    ToolCall,
    Turn,
)
from conversations.staff.turn_timeline import timeline
from llm.models import ApiKey, ModelCall, Provider
from llm.wire.items import function_call_output, user_message
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    signed_in,
    staff,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

MODELS = ["conversation", "turn", "item", "toolcall", "idempotencykey", "attachment"]


def list_url(model: str) -> str:
    return reverse(f"admin:conversations_{model}_changelist")


def page_url(row: Any) -> str:
    name = f"admin:conversations_{row._meta.model_name}_change"
    return reverse(name, args=[row.pk])


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def turn(ada: User) -> Turn:
    """A turn with one of everything."""
    conversation = Conversation.objects.create(
        owner=ada, title="Noon in Paris", language_model=a_model()
    )
    turn = a_finished_turn(conversation, "What time is it?", "It is <b>noon</b>.")
    turn.finished_at = turn.created_at + timedelta(seconds=4)
    turn.save()
    turn.items.update(provider_data={"issuer": {"provider": "p", "model": "m"}})
    call = turn.tool_calls.create(
        call_id="call_1",
        name="current_time",
        state=ToolCall.State.FAILED,
        error="no such zone",
        started_at=turn.created_at + timedelta(seconds=1),
        ended_at=turn.created_at + timedelta(seconds=1.5),
        output="Error: no such zone",
    )
    output = function_call_output(call.call_id, "Error: no such zone")
    Item.of(turn, 2, output, origin=Item.Origin.OUTPUT).save()
    made = ModelCall.objects.create(
        turn_id=turn.pk,
        model=conversation.language_model,
        provider_name="Test",
        model_name="m-1",
        status=ModelCall.Status.FAILED,
        http_status=503,
        error_code="E_LLM_PROVIDER_DOWN",
        error_detail="upstream says: overloaded",
        input_tokens=11,
        output_tokens=7,
        cost="0.00123",
        ttft=0.2,
        latency=2.0,
        request_id="req_upstream",
    )
    made.created_at = turn.created_at + timedelta(seconds=3)
    made.save()
    IdempotencyKey.objects.create(user=ada, key="k1", fingerprint="f", turn=turn)
    Attachment.objects.create(
        conversation=conversation, name="a.pdf", content_type="application/pdf", size=3
    )
    return turn


@pytest.fixture
def root() -> Client:
    return signed_in(a_user("root", is_staff=True, is_superuser=True))


def rows_of(turn: Turn) -> list[Any]:
    return [
        turn.conversation,
        turn,
        turn.items.first(),
        turn.tool_calls.get(),
        IdempotencyKey.objects.get(turn=turn),
        Attachment.objects.get(conversation=turn.conversation),
    ]


# Pages


def test_every_list_and_page_opens(root: Client, turn: Turn):
    AccessToken.issue(turn.conversation.owner, "script")
    for model in [*MODELS, "accesstoken"]:
        assert root.get(list_url(model)).status_code == 200, model
    for row in [*rows_of(turn), AccessToken.objects.get()]:
        assert root.get(page_url(row)).status_code == 200, row


def test_no_page_needs_what_the_content_security_policy_forbids(
    root: Client, turn: Turn
):
    AccessToken.issue(turn.conversation.owner, "script")
    urls = [list_url(model) for model in [*MODELS, "accesstoken"]]
    urls += [page_url(row) for row in [*rows_of(turn), AccessToken.objects.get()]]
    for url in [*urls, reverse("admin:conversations_accesstoken_add")]:
        answer = root.get(url)
        assert "script-src 'self'" in answer["Content-Security-Policy"]
        page = answer.content.decode()
        assert not re.search(r"\sstyle=|<style|\son\w+=|javascript:", page), url
        assert not re.search(r"<script(?![^>]*\ssrc=)", page), url


@pytest.mark.parametrize("model", MODELS)
def test_a_list_costs_as_many_queries_for_20_rows_as_for_2(
    root: Client, turn: Turn, model: str
):
    def add(count: int) -> None:
        for number in range(count):
            owner = a_user(f"user{User.objects.count()}-{number}")
            conversation = Conversation.objects.create(
                owner=owner, language_model=turn.conversation.language_model
            )
            more = a_finished_turn(conversation)
            more.tool_calls.create(call_id="call_1", name="now")
            IdempotencyKey.objects.create(user=owner, key="k", turn=more)
            Attachment.objects.create(conversation=conversation, name="a", size=1)

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            root.get(list_url(model))
        return len(seen)

    root.get(list_url(model))  # which notes the session
    add(1)
    few = queries()
    add(18)
    assert queries() == few
    assert few <= 10


@pytest.mark.parametrize("has_all_rights", [True, False])
def test_a_presets_page_costs_as_many_queries_for_20_models_as_for_2(
    root: Client, has_all_rights: bool
):
    group = Group.objects.create(name="owners of the preset")
    preset = Preset.objects.create(name="support", owner_group=group)
    client = root
    if not has_all_rights:
        owner = staff("eva", "view_preset")
        owner.groups.add(group)
        client = signed_in(owner)
    provider = Provider.objects.create(name="Many models", kind="demo")
    ApiKey.objects.create(provider=provider, secret="a-key-of-these-tests")
    page = reverse("admin:conversations_preset_change", args=[preset.pk])

    def queries_with_models(first: int, last: int) -> int:
        for number in range(first, last):
            provider.models.create(name=f"model-{number}")
        client.get(page)  # which notes the session
        with CaptureQueriesContext(connection) as seen:
            text = client.get(page).content.decode()
        assert f"Many models/model-{last - 1}" in text
        return len(seen)

    few = queries_with_models(0, 2)
    assert queries_with_models(2, 20) == few


# The inspector


def test_the_page_that_the_list_links_to_shows_the_timeline(
    admin_client: Client, turn: Turn
):
    address = reverse("admin:conversations_turn_change", args=[quote(turn.pk)])
    assert quote(turn.pk) != turn.pk  # as the list writes it
    assert admin_client.get(address).context["timeline"]


def test_the_timeline_lists_events_in_order_of_time(turn: Turn):
    entries = timeline(turn)
    start = turn.created_at
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    entries_by_title = {(entry.kind, entry.title): entry for entry in entries}
    model = entries_by_title["model", "Test/m-1"]
    # The row is written at the end of a call of 2 s.
    assert (model.offset, model.seconds) == (1000, 2.0)
    assert (model.left, model.width) == (25.0, 50.0)
    tool = entries_by_title["tool", "current_time"]
    assert (tool.offset, tool.seconds, tool.state) == (1000, 0.5, "failed")
    assert model.bad
    assert tool.bad
    assert entries_by_title["turn", "Ended"].at - start == timedelta(seconds=4)


def test_the_page_of_a_turn_shows_staff_all_they_need(root: Client, turn: Turn):
    page = root.get(page_url(turn)).content.decode()
    for text in [
        "req_upstream",
        "E_LLM_PROVIDER_DOWN",
        "upstream says: overloaded",
        "no such zone",
        "+1000 ms",
        "It is &lt;b&gt;noon&lt;/b&gt;.",
        "$0.00123",
        'width="50.0"',
    ]:
        assert text in page, text
    assert page.count("<details>") >= 4


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        ([{"cost": "0.000012"}], "$0.000012"),
        ([{"cost": "0.5"}, {"cost": None}], "≥$0.50"),
        ([{"cost": "0.5"}, {"cost": None, "status": "failed"}], "$0.50"),
        ([{"cost": "1234.5", "is_estimated": True}], "~$1,234.50"),
    ],
)
def test_the_list_of_turns_says_what_is_known_of_the_cost(
    root: Client, turn: Turn, calls: list[dict[str, Any]], shown: str
):
    ModelCall.objects.all().delete()
    for call in calls:
        ModelCall.objects.create(turn_id=turn.pk, **call)
    page = root.get(list_url("turn")).text
    assert f'<td class="field-cost">{shown}</td>' in page


def test_the_page_of_a_turn_leads_to_its_neighbours(root: Client, turn: Turn):
    second, third = (a_finished_turn(turn.conversation) for _ in range(2))
    Turn.objects.filter(pk__in=[second.pk, third.pk]).update(
        created_at=second.created_at
    )
    first, last = sorted([second.pk, third.pk])
    a_finished_turn(Conversation.objects.create(owner=turn.conversation.owner))
    neighbours_of = {
        turn.pk: (None, first),
        first: (turn.pk, last),
        last: (first, None),
    }
    for here, expected in neighbours_of.items():
        page = root.get(reverse("admin:conversations_turn_change", args=[here]))
        neighbours = page.context["previous_turn"], page.context["next_turn"]
        assert neighbours == expected


def test_the_inspector_reads_in_a_fixed_number_of_queries(
    turn: Turn, django_assert_num_queries: Any
):
    for position in range(3, 30):
        payload = user_message(f"message {position}")
        Item.of(turn, position, payload, origin=Item.Origin.INPUT).save()
    with django_assert_num_queries(4):
        assert len(timeline(turn)) > 30


def test_any_id_leads_to_its_turn(root: Client, turn: Turn):
    other = a_finished_turn(Conversation.objects.create(owner=a_user("bob")))
    item = turn.items.get(position=1).payload["id"]
    for term in [turn.pk, turn.conversation_id, item, "call_1", "req_upstream", "ada"]:
        page = root.get(list_url("turn"), {"q": term}, follow=True).content.decode()
        assert turn.pk in page, term
        assert other.pk not in page, term


def test_an_id_of_a_call_leads_to_it_only_for_who_may_see_calls(root: Client):
    call = ModelCall.objects.create(request_id="req_9")
    page = reverse("admin:llm_modelcall_change", args=[call.pk])
    assert root.get(list_url("turn"), {"q": "req_9"})["Location"] == page
    inspector = signed_in(staff("ivy", "inspect_turn"))
    assert inspector.get(list_url("turn"), {"q": "req_9"}).status_code == 200
    caller = signed_in(staff("carl", "view_modelcall"))  # but no turns
    assert caller.get(list_url("turn"), {"q": "req_9"}).status_code == 403


def test_an_id_of_another_persons_turn_names_the_missing_permission(turn: Turn):
    client = signed_in(staff("otto", "view_turn"))
    for term, is_known in [(turn.pk, True), ("call_1", True), ("nothing", False)]:
        page = client.get(list_url("turn"), {"q": term}).content.decode()
        assert ("another person" in page) == is_known, term
        assert f"/{quote(turn.pk)}/" not in page


def test_a_running_turn_has_a_stop_button(
    root: Client, turn: Turn, monkeypatch: pytest.MonkeyPatch
):
    stopped: list[Turn] = []
    monkeypatch.setattr(engine, "cancel", stopped.append)
    url = reverse("admin:conversations_turn_stop", args=[turn.pk])
    assert url not in root.get(page_url(turn)).content.decode()
    Turn.objects.update(status=Turn.Status.RUNNING)
    assert url in root.get(page_url(turn)).content.decode()
    assert root.get(url).status_code == 405
    asked = root.post(url).content.decode()
    assert "Stop this turn?" in asked
    assert f'action="{url}"' in asked
    assert stopped == []
    assert root.post(url, {"confirmed": "yes"}).status_code == 302
    assert stopped == [turn]
    assert LogEntry.objects.get().get_change_message() == "Stopped."


# Permissions


def test_other_peoples_rows_are_seen_with_the_permission_only(turn: Turn):
    plain = signed_in(
        staff(
            "plain",
            "view_conversation",
            "view_turn",
            "view_item",
            "view_toolcall",
            "view_idempotencykey",
            "view_attachment",
        )
    )
    inspector = signed_in(staff("inspector", "inspect_turn"))
    for model, row in zip(MODELS, rows_of(turn), strict=True):
        assert str(row.pk) not in _shown_ids(plain, model)
        assert str(row.pk) in _shown_ids(inspector, model)
        assert plain.get(page_url(row)).status_code == 302  # "does not exist"
        assert inspector.get(page_url(row)).status_code == 200


def _shown_ids(client: Client, model: str) -> set[str]:
    answer = client.get(list_url(model))
    assert answer.status_code == 200
    return {str(row.pk) for row in answer.context["cl"].result_list}


def test_staff_see_their_own_without_it():
    plain = staff("plain", "view_turn")
    own = a_finished_turn(Conversation.objects.create(owner=plain))
    assert _shown_ids(signed_in(plain), "turn") == {own.pk}


def test_an_inspector_changes_and_stops_nothing(
    turn: Turn, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "cancel", lambda turn: pytest.fail("stopped"))
    inspector = signed_in(staff("inspector", "inspect_turn"))
    item = turn.items.get(position=1)
    page = inspector.get(page_url(item)).content.decode()
    assert "It is &lt;b&gt;noon&lt;/b&gt;." in page
    assert "<textarea" not in page
    for row in rows_of(turn):
        assert inspector.post(page_url(row), {"title": "x"}).status_code == 403
    stop = reverse("admin:conversations_turn_stop", args=[turn.pk])
    assert inspector.post(stop).status_code == 403
    before = item.payload
    item.refresh_from_db()
    assert item.payload == before


def test_staff_without_any_permission_and_users_get_nowhere(ada: User, turn: Turn):
    for client in [signed_in(staff("plain")), signed_in(ada)]:
        for row in rows_of(turn):
            assert client.get(page_url(row)).status_code in (302, 403)
            assert turn.pk not in client.get(page_url(row)).content.decode()


def test_staff_cannot_add_items(root: Client):
    for model in MODELS:
        url = reverse(f"admin:conversations_{model}_add")
        assert root.get(url).status_code == 403


# Corrections


@pytest.fixture
def editor() -> User:
    return staff("editor", "inspect_turn", "edit_items")


def redact(client: Client, item: Item, text: str, **more: str) -> Any:
    form = client.get(page_url(item)).context["adminform"].form
    data = {
        "text_0": text,
        "payload": form["payload"].value(),
        "seen": form["seen"].value(),
    }
    return client.post(page_url(item), {**data, **more})


def test_a_message_is_redacted_and_the_proofs_it_breaks_go(editor: User, turn: Turn):
    conversation = turn.conversation
    earlier = a_finished_turn(conversation)
    Turn.objects.filter(pk=earlier.pk).update(
        created_at=turn.created_at - timedelta(hours=1)
    )
    later = a_finished_turn(conversation)
    elsewhere = a_finished_turn(Conversation.objects.create(owner=editor))
    Item.objects.update(provider_data={"raw": "proof"})

    item = turn.items.get(position=1)
    answer = redact(signed_in(editor), item, "[redacted]")
    assert answer.status_code == 302
    item.refresh_from_db()
    assert item.payload["content"][0]["text"] == "[redacted]"
    assert "noon" not in json.dumps(item.payload)
    proofs = set(
        Item.objects.filter(provider_data__isnull=False).values_list("turn", flat=True)
    )
    assert proofs == {earlier.pk, elsewhere.pk}
    assert later.pk not in proofs


def test_an_edit_is_logged_with_user_and_item_but_without_text(
    editor: User, turn: Turn
):
    item = turn.items.get(position=1)
    redact(signed_in(editor), item, "[redacted]")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (editor, str(item.pk))
    message = entry.get_change_message()
    assert "content 1" in message
    assert "proofs" in message
    assert "noon" not in str(LogEntry.objects.values().get())


def test_saving_without_a_change_drops_nothing(editor: User, turn: Turn):
    item = turn.items.get(position=1)
    item.payload["content"][0]["text"] = "two\nlines"
    item.save()
    redact(signed_in(editor), item, "two\r\nlines")  # as a browser sends it
    item.refresh_from_db()
    assert item.payload["content"][0]["text"] == "two\nlines"
    assert item.provider_data is not None


def test_the_copy_of_a_tools_output_is_corrected_as_well(editor: User, turn: Turn):
    item = turn.items.get(type="function_call_output")
    redact(signed_in(editor), item, "12:00")
    call = turn.tool_calls.get()
    assert (call.output, call.error) == ("12:00", "")


def test_the_json_is_edited_within_limits(editor: User, turn: Turn):
    item = turn.items.get(position=1)
    client = signed_in(editor)
    for payload in ["{", "[]", "{}", json.dumps({**item.payload, "id": "msg_other"})]:
        answer = redact(client, item, "It is <b>noon</b>.", payload=payload)
        assert answer.status_code == 200
        assert answer.context["errors"]
    before = item.payload
    item.refresh_from_db()
    assert item.payload == before
    payload = json.dumps({**item.payload, "phase": "final_answer"})
    assert (
        redact(client, item, "It is <b>noon</b>.", payload=payload).status_code == 302
    )
    item.refresh_from_db()
    assert item.payload["phase"] == "final_answer"


def test_a_running_turn_cannot_be_edited(editor: User, turn: Turn):
    Turn.objects.update(status=Turn.Status.RUNNING)
    client = signed_in(editor)
    item = turn.items.get(position=1)
    assert client.post(page_url(item), {"text_0": "x"}).status_code == 403
    assert client.post(page_url(turn), {"options": "{}"}).status_code == 403


def test_title_and_instructions_are_edited_and_logged_by_id(editor: User, turn: Turn):
    conversation = turn.conversation
    data = {"title": "[redacted]", "instructions": "Be brief."}
    answer = signed_in(editor).post(page_url(conversation), data)
    assert answer.status_code == 302
    conversation.refresh_from_db()
    assert (conversation.title, conversation.instructions) == tuple(data.values())
    entry = LogEntry.objects.get()
    assert entry.object_repr == conversation.pk
    assert "Title" in entry.get_change_message()
    assert "Paris" not in str(LogEntry.objects.values().get())


def test_options_of_a_turn_are_checked(editor: User, turn: Turn):
    client = signed_in(editor)
    form = client.get(page_url(turn)).context["adminform"].form
    seen = {"seen": form["seen"].value()}
    bad = client.post(page_url(turn), {"options": '{"temperature": 9}', **seen})
    assert "must lie between 0 and 2" in bad.content.decode()
    data = {"options": '{"temperature": 1}', **seen}
    assert client.post(page_url(turn), data).status_code == 302
    turn.refresh_from_db()
    assert turn.options == {"temperature": 1}


def test_a_conversation_is_deleted_with_all_that_belongs_to_it(
    root: Client, turn: Turn
):
    url = reverse(
        "admin:conversations_conversation_delete", args=[turn.conversation_id]
    )
    assert root.post(url, {"post": "yes"}).status_code == 302
    assert not Conversation.objects.exists()
    assert not Item.objects.exists()
    assert "Paris" not in str(LogEntry.objects.values().get())


# Tokens

#: The initial values of a token's form.
USUAL = {"scopes": ["chat", "gateway"], "budget_period": "total"}


def test_a_token_is_shown_once(root: Client, ada: User):
    url = reverse("admin:conversations_accesstoken_add")
    data = {"user": ada.pk, "label": "script", **USUAL}
    page = root.post(url, data, follow=True).content.decode()
    found = re.search(r"<code>(parley_[\w-]+)</code>", page)
    assert found
    row = AccessToken.objects.find(found[1])
    assert row is not None
    assert row.user == ada
    for again in [list_url("accesstoken"), page_url(row)]:
        shown = root.get(again).content.decode()
        assert found[1] not in shown
        assert row.digest not in shown
        assert row.prefix in shown
    assert found[1] not in str(LogEntry.objects.values().get())


def _seen(client: Client, row: AccessToken) -> str:
    """What the page says of the limits that it shows."""
    form = client.get(page_url(row)).context["adminform"].form
    return str(form["seen"].value())


def test_editing_a_token_leaves_the_token(root: Client, ada: User):
    row, token = AccessToken.issue(ada, "script")
    data = {"label": "renamed", "expires_at_0": "", "expires_at_1": "", **USUAL}
    data["seen"] = _seen(root, row)
    assert root.post(page_url(row), data).status_code == 302
    found = AccessToken.objects.find(token)
    assert found is not None
    assert found.label == "renamed"


def test_revoking_ends_a_token_and_is_logged(root: Client, ada: User):
    row, token = AccessToken.issue(ada, "script")
    data = {"action": "revoke", "_selected_action": [row.pk], "confirmed": "yes"}
    page = root.post(list_url("accesstoken"), data, follow=True).content.decode()
    assert "1 is revoked." in page
    assert AccessToken.objects.find(token) is None
    assert LogEntry.objects.get().get_change_message() == "Revoked."


def test_staff_without_the_group_permission_cannot_grant_it_to_a_token(
    root: Client,
):
    own = ["add_accesstoken", "view_accesstoken", "change_accesstoken"]
    clerk = staff("clerk", *own)
    row, _ = AccessToken.issue(clerk, "mine")
    fields = {"label": "mine", "declares_any_tool": "on", **USUAL}
    fields["seen"] = _seen(root, row)
    assert signed_in(clerk).post(page_url(row), fields).status_code == 302
    row.refresh_from_db()
    assert not row.declares_any_tool
    fields["seen"] = _seen(root, row)
    assert root.post(page_url(row), fields).status_code == 302
    row.refresh_from_db()
    assert row.declares_any_tool


def test_only_superusers_issue_and_see_the_tokens_of_others(ada: User):
    clerk = staff("clerk", "add_accesstoken", "view_accesstoken", "change_accesstoken")
    row, _ = AccessToken.issue(ada, "hers")
    client = signed_in(clerk)
    assert _shown_ids(client, "accesstoken") == set()
    assert client.get(page_url(row)).status_code == 302
    url = reverse("admin:conversations_accesstoken_add")
    refused = client.post(url, {"user": ada.pk, "label": "x", **USUAL})
    assert refused.context["errors"]
    assert (
        client.post(url, {"user": clerk.pk, "label": "x", **USUAL}).status_code == 302
    )
    assert AccessToken.objects.filter(user=clerk).count() == 1
