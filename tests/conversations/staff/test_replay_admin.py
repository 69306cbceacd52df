"""The pages of replays: who may run and read them, and what they show."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from conversations.models import (
    Conversation,
    Item,
    Replay,
    ReplayedTurn,
    ReplaySet,
    Turn,
)
from conversations.staff.replay_report import compare
from llm.models import ModelCall, Provider
from llm.wire.items import function_call_output, message
from tests.conversations.scene import a_finished_turn, a_user, signed_in, staff
from tools.models import Tool

pytestmark = pytest.mark.django_db
NEW = reverse("admin:conversations_replay_new")
TURNS = reverse("admin:conversations_turn_changelist")


@pytest.fixture
def turn() -> Turn:
    conversation = Conversation.objects.create(owner=a_user("ada"))
    return a_finished_turn(conversation, "Hi", "Hello!\nHow are you?")


@pytest.fixture
def replayer() -> Client:
    names = ["inspect_turn", "add_replay", "view_replay", "view_turn"]
    return signed_in(staff("rita", *names))


def run(client: Client, *turns: Turn, **fields: Any) -> Any:
    data = {"turn": [turn.pk for turn in turns], "name": "try", **fields}
    return client.post(NEW, data)


def a_call(name: str, number: int) -> list[dict[str, Any]]:
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    call |= {"name": name, "arguments": "{}", "status": "completed"}
    return [call, function_call_output(f"call_{number}", "<done>")]


def test_a_set_is_chosen_in_the_list_of_turns(replayer: Client, turn: Turn):
    other = a_finished_turn(turn.conversation)
    Turn.objects.filter(pk=other.pk).update(status=Turn.Status.RUNNING)
    chosen = {"action": "replay", "_selected_action": [turn.pk, other.pk]}
    page = replayer.post(TURNS, chosen, follow=True)
    assert page.context["turns"] == [turn]  # the other is not over
    answer = run(replayer, turn, budget="0.5")
    created = Replay.objects.get()
    assert answer["Location"].endswith(f"/{created.pk}/change/")
    assert (created.budget, created.is_live) == (Decimal("0.5"), False)
    assert created.created_by is not None
    assert list(created.turns.values_list("turn", flat=True)) == [turn.pk]
    again = replayer.get(NEW, {"again": created.pk})
    assert again.context["turns"] == [turn]


def test_models_of_one_name_are_told_apart_by_their_providers(
    replayer: Client, turn: Turn
):
    for name in ("First", "Second"):
        provider = Provider.objects.create(name=name, kind="demo")
        provider.models.create(name="twin")
    page = replayer.get(NEW, {"turn": turn.pk}).content.decode()
    assert ">First/twin<" in page
    assert ">Second/twin<" in page


def test_tools_run_only_with_their_permission(replayer: Client, turn: Turn):
    assert "is_live" not in replayer.get(NEW, {"turn": turn.pk}).content.decode()
    run(replayer, turn, is_live="on", live_tools="send_mail")
    created = Replay.objects.get()
    assert (created.is_live, created.live_tools) == (False, [])
    names = ["inspect_turn", "add_replay", "view_replay", "run_live_tools"]
    for name in ("a", "b"):
        Tool.objects.create(name=name, kind=Tool.Kind.HTTP)
    tom = signed_in(staff("tom", *names))
    run(tom, turn, is_live="on", live_tools="a, b ,")
    created = Replay.objects.latest("pk")
    assert (created.is_live, created.live_tools) == (True, ["a", "b"])
    for fields, problem in (
        ({"is_live": "on", "live_tools": "a, send_male"}, "send_male."),
        ({"live_tools": "a"}, "unless you tick"),
    ):
        page = run(tom, turn, **fields)
        assert problem in str(page.context["form"].errors["live_tools"])
        assert Replay.objects.latest("pk") == created


@pytest.mark.parametrize(
    "given",
    [{}, {"turn": "none"}, {"again": "x"}, {"again": "9" * 40}, {"turn": "a\0b"}],
)
def test_without_turns_there_is_no_replay(replayer: Client, given: dict[str, str]):
    assert replayer.get(NEW, given)["Location"] == TURNS
    assert replayer.post(NEW, given)["Location"] == TURNS


def test_a_replay_is_stored_with_its_turns_or_not_at_all(
    replayer: Client, turn: Turn, monkeypatch: pytest.MonkeyPatch
):
    def fail(rows: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(ReplayedTurn.objects, "bulk_create", fail)
    with pytest.raises(RuntimeError):
        run(replayer, turn)
    assert not Replay.objects.exists()


def test_wrong_values_are_named(replayer: Client, turn: Turn):
    page = run(replayer, turn, budget="-1", language_model="77", name="")
    assert set(page.context["form"].errors) == {"budget", "language_model", "name"}
    assert not Replay.objects.exists()


def test_the_page_shows_both_answers_and_what_differs(replayer: Client, turn: Turn):
    for position, item in enumerate(a_call("current_time", 1), 2):
        Item.of(turn, position, item, origin=Item.Origin.OUTPUT).save()
    created = Replay.objects.create(name="try", state=Replay.State.DONE)
    row = created.turns.create(
        turn=turn,
        state=ReplayedTurn.State.COMPLETED,
        items=[message("assistant", "Hello!\nHow <b>now</b>?"), *a_call("other", 2)],
        cost=Decimal("0.25"),
        is_same_request=True,
    )
    url = reverse("admin:conversations_replay_turn", args=[created.pk, row.pk])
    page = replayer.get(url).content.decode()
    for text in [
        "<del>- How are you?</del>",
        "<ins>+ How &lt;b&gt;now&lt;/b&gt;?</ins>",
        "<del>- current_time({}) → &lt;done&gt;</del>",
        "<ins>+ other({}) → &lt;done&gt;</ins>",
        "0.25",
        "byte for byte",
    ]:
        assert text in page, text
    assert LogEntry.objects.get().change_message == f"Read {turn.pk}."
    progress = reverse("admin:conversations_replay_change", args=[created.pk])
    assert "1 of 1 turns, 0 failed" in replayer.get(progress).content.decode()
    fragment = replayer.get(progress, {"fragment": 1}).content.decode()
    assert "<html" not in fragment
    assert "Hello" not in fragment


def test_figures_before_leave_out_titles_and_summaries(turn: Turn):
    created = Replay.objects.create(name="try")
    row = created.turns.create(turn=turn)
    for purpose in ("answer", "correction", "title", "summary"):
        ModelCall.objects.create(turn_id=turn.pk, purpose=purpose, cost=1)
    before = compare(row).before
    assert (before.model_calls, before.cost) == (2, 2)


def test_staff_with_few_rights_see_and_start_nothing(turn: Turn):
    created = Replay.objects.create(name="try")
    row = created.turns.create(turn=turn)
    pages = [
        reverse("admin:conversations_replay_change", args=[created.pk]),
        reverse("admin:conversations_replay_turn", args=[created.pk, row.pk]),
        reverse("admin:conversations_replay_changelist"),
        f"{NEW}?turn={turn.pk}",
    ]
    cancel = reverse("admin:conversations_replay_cancel", args=[created.pk])
    few = [
        staff("few", "view_turn", "view_replay", "add_replay"),
        staff("fewer", "inspect_turn", "change_turn"),
    ]
    for user in few:
        client = signed_in(user)
        assert [client.get(url).status_code for url in pages] == [403] * 4, user
        assert client.post(cancel).status_code == 403
        assert run(client, turn).status_code == 403
        page = client.get(TURNS)
        assert 'value="replay"' not in page.content.decode()
    assert signed_in(a_user("bob")).post(cancel).status_code == 302
    assert not Replay.objects.filter(cancel_requested=True).exists()
    assert Replay.objects.count() == 1


def test_a_replay_is_cancelled(replayer: Client, turn: Turn):
    created = Replay.objects.create(name="try")
    cancel = reverse("admin:conversations_replay_cancel", args=[created.pk])
    assert replayer.get(cancel).status_code == 405
    page = replayer.post(cancel, follow=True)
    assert "the turn that runs is interrupted" in page.content.decode()
    assert Replay.objects.get().cancel_requested


def test_a_replay_goes_with_its_turns(turn: Turn):
    created = Replay.objects.create(name="try")
    created.turns.create(turn=turn)
    turn.conversation.delete()
    assert not ReplayedTurn.objects.exists()


def save(client: Client, name: str, *turns: Turn) -> Any:
    data = {"turn": [turn.pk for turn in turns], "set-name": name, "_save": "1"}
    return client.post(NEW, data, follow=True)


def test_a_saved_set_is_run_again_by_its_name(replayer: Client, turn: Turn):
    other = a_finished_turn(turn.conversation)
    page = save(replayer, "<b>regressions</b>", turn, other)
    assert "<b>regressions" not in page.text
    assert {each.pk for each in page.context["turns"]} == {turn.pk, other.pk}
    saved = ReplaySet.objects.get()
    assert saved.created_by is not None
    assert not Replay.objects.exists()
    sets = replayer.get(reverse("admin:conversations_replayset_changelist")).text
    assert f"{NEW}?set={saved.pk}" in sets
    change = reverse("admin:conversations_replayset_change", args=[saved.pk])
    assert turn.pk in replayer.get(change).text
    other.delete()
    assert replayer.get(NEW, {"set": saved.pk}).context["turns"] == [turn]


@pytest.mark.parametrize("name", ["", "x" * 201, "taken"])
def test_a_set_needs_a_name_of_its_own(replayer: Client, turn: Turn, name: str):
    ReplaySet.objects.create(name="taken")
    page = save(replayer, name, turn)
    assert page.context["saving"].errors
    assert ReplaySet.objects.count() == 1
    assert not Replay.objects.exists()


def test_sets_need_the_rights_of_replays(turn: Turn):
    saved = ReplaySet.objects.create(name="mine")
    url = reverse("admin:conversations_replayset_delete", args=[saved.pk])
    sets = reverse("admin:conversations_replayset_changelist")
    reader = signed_in(staff("tom", "inspect_turn", "view_replay"))
    assert reader.get(sets).status_code == 200
    assert reader.post(url, {"post": "yes"}).status_code == 403
    assert save(reader, "more", turn).status_code == 403
    stranger = signed_in(staff("sue", "view_replay", "delete_replayset"))
    assert stranger.get(sets).status_code == 403
    assert stranger.post(url, {"post": "yes"}).status_code == 403
    names = ["inspect_turn", "add_replay", "view_replay", "delete_replayset"]
    signed_in(staff("ann", *names)).post(url, {"post": "yes"})
    assert not ReplaySet.objects.exists()


def test_turns_that_never_ran_are_shown_as_not_run(replayer: Client, turn: Turn):
    run(replayer, turn)
    change = Replay.objects.get()
    progress = reverse("admin:conversations_replay_change", args=[change.pk])
    row = change.turns.get()
    one = reverse("admin:conversations_replay_turn", args=[change.pk, row.pk])
    for page in (progress, one):
        assert "pending" in replayer.get(page).content.decode()
    Replay.objects.update(state=Replay.State.BUDGET)
    for page in (progress, one):
        text = replayer.get(page).content.decode()
        assert "not run" in text
        assert "pending" not in text
