"""The checker finds each way in which a law may be broken, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from .checker import effects, violations
from .kept import Kept
from .ledger import Ask, Ledger
from .prompt import Asked, Called, Output, Result, Text
from .scenarios import answer_to, step_due
from .wish import Wish

WISH = Wish(id="w1", scenario="background", words=4)
CALL = "call_w1_a1_1"
ASKED = [
    Ask(WISH, "chat", 1, [], answer_to(WISH, 0, 1), ended=True),
    Ask(WISH, "chat", 2, [Called(CALL), Output(CALL)], answer_to(WISH, 1, 2)),
    Ask(WISH, "chat", 3, [Called(CALL), Output(CALL)], answer_to(WISH, 1, 3)),
    Ask(WISH, "chat", 4, [Result(CALL)], answer_to(WISH, 2, 4)),
]
for ask in ASKED[2:]:
    ask.ended = True


def message(text: str, role: str = "assistant", **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": role, "content": content, **fields}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


CALLED = {
    "type": "function_call",
    "call_id": CALL,
    "name": "chaos_later",
    "arguments": '{"mark": "w1_a1_1", "work": 0}',
}
OUTPUT = {"type": "function_call_output", "call_id": CALL, "output": "Accepted"}
CUT = message("a2-0-1 a2-0-", **{"parley:interrupted": True})
FIRST = message("a3-0-1 a3-0-2 a3-0-3 a3-0-4")
TOLD = message("Result", role="user", **{"parley:call_id": CALL})
LAST = message("a4-1-1 a4-1-2 a4-1-3 a4-1-4")
ITEMS = [
    message(WISH.text(), role="user"),
    thought("a1-0-1"),
    CALLED,
    OUTPUT,
    CUT,
    FIRST,
    TOLD,
    thought("a4-0-1"),
    LAST,
]
ROW = {
    "call_id": CALL,
    "name": "chaos_later",
    "state": "completed",
    "blocking": False,
    "delivered_in": "t1",
}


def kept(items: list[dict[str, Any]] = ITEMS, **turn: Any) -> Kept:
    whole = {"id": "t1", "status": "completed", "error": None, "finished_at": "now"}
    return Kept(WISH, "chat", [{**whole, "items": items, **turn}], [ROW])


def test_what_was_given_and_kept_as_it_was_breaks_no_law():
    assert violations(kept(), ASKED) == []


def without(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in ITEMS if each is not item]


def instead(item: dict[str, Any], *others: dict[str, Any]) -> list[dict[str, Any]]:
    place = ITEMS.index(item)
    return [*ITEMS[:place], *others, *ITEMS[place + 1 :]]


@pytest.mark.parametrize(
    ("items", "told"),
    [
        (instead(LAST, message("a4-1-1 a4-1-2")), "not given"),
        (instead(LAST, message("a4-1-1 a4-1-2 a3-0-3 a3-0-4")), "not given"),
        (instead(LAST, LAST, LAST), "is kept as"),
        (without(LAST), "of 0 to 2 were answered"),
        (instead(FIRST, message("a2-0-1 a2-0-2 a2-0-3 a2-0-4"), FIRST), "[0, 1, 1, 2]"),
        (instead(FIRST, LAST, FIRST), "is kept as"),
        (without(OUTPUT), "calls without outputs"),
        (instead(OUTPUT, OUTPUT, OUTPUT), "outputs"),
        (without(TOLD), "told 0 times"),
        (instead(TOLD, TOLD, TOLD), "told 2 times"),
        (instead(LAST, {**LAST, "status": "in_progress"}), "in progress"),
    ],
)
def test_a_broken_law_is_found(items: list[dict[str, Any]], told: str):
    found = violations(kept(items), ASKED)
    assert any(told in each for each in found), found


def test_a_result_may_come_before_the_model_has_said_anything():
    assert violations(kept(without(FIRST)), ASKED) == []


def test_an_answer_whose_end_never_came_is_not_complete():
    asks = deepcopy(ASKED)
    asks[-1].ended = False
    assert any("in full" in each for each in violations(kept(), asks))


def test_a_turn_that_never_ends_or_fails_for_nothing_is_found():
    assert violations(kept(status="in_progress"), ASKED)
    assert violations(kept(status="failed"), ASKED)


def test_a_result_no_model_has_heard_is_found():
    asks = deepcopy(ASKED)
    asks[-1].entries = []
    assert any("heard" in each for each in violations(kept(), asks))


# A provider that had a fault excuses a turn that failed, and nothing else

FAULTY = replace(WISH, fault="cut in the middle")
WHY = {"code": "E_LLM_PROVIDER_DOWN"}
ASKED_FAULTY = [replace(ask, wish=FAULTY) for ask in ASKED[:-1]]
ASKED_FAULTY += [replace(ASKED[-1], wish=FAULTY, fault=FAULTY.fault, ended=False)]
#: The last answer was cut, and its turn has failed.
FAILED = instead(LAST, {**message("a4-1-1 a4-1-"), "status": "incomplete"})


def of_faulty(
    items: list[dict[str, Any]] = FAILED,
    call: dict[str, Any] = ROW,
    wish: Wish = FAULTY,
    **turn: Any,
) -> list[str]:
    failed = {"id": "t1", "status": "failed", "error": WHY, "finished_at": "now"}
    found = Kept(wish, "chat", [{**failed, "items": items, **turn}], [call])
    asks = [
        replace(ask, wish=wish, fault=ask.fault and wish.fault) for ask in ASKED_FAULTY
    ]
    return violations(found, asks)


def test_a_turn_may_fail_with_its_provider():
    assert of_faulty() == []


def without_in_failed(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in FAILED if each is not item]


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ({"status": "completed"}, "in full"),
        ({"status": "completed", "items": ITEMS}, "in full"),
        ({"items": instead(LAST, message("a4-1-1 a4-1-"))}, "not given"),
        ({"items": without_in_failed(TOLD)}, "told 0 times"),
        ({"items": [*FAILED, TOLD]}, "told 2 times"),
        ({"call": {**ROW, "delivered_in": "t2"}}, "not told in t2"),
        ({"call": {**ROW, "delivered_in": None}}, "not told in None"),
        ({"items": [*FAILED, FIRST]}, "is kept as"),
        ({"items": without_in_failed(OUTPUT)}, "calls without outputs"),
        ({"status": "in_progress"}, "a turn is in_progress"),
        ({"call": {**ROW, "state": "executing"}}, "a call is executing"),
        ({"call": {**ROW, "state": "cancelled"}}, "a call is cancelled"),
        ({"status": "cancelled"}, "a turn is cancelled"),
        ({"status": "incomplete"}, "a turn is incomplete"),
        ({"error": None}, "does not say why"),
    ],
)
def test_a_broken_law_is_found_behind_a_fault(case: dict[str, Any], told: str):
    found = of_faulty(**case)
    assert any(told in each for each in found), found


@pytest.mark.parametrize(
    "wish",
    [
        replace(WISH, fault="silence"),
        replace(WISH, fault="doubled end"),
        replace(WISH, fault="idle close"),
        replace(WISH, fault="503", fault_asks=2),
    ],
    ids=lambda wish: wish.fault,
)
def test_a_fault_that_costs_nothing_excuses_no_failure(wish: Wish):
    assert any("a turn is failed" in each for each in of_faulty(wish=wish))


def test_a_fault_that_nobody_met_excuses_no_failure():
    asks = [replace(ask, wish=FAULTY, fault="") for ask in ASKED]
    failed = {"id": "t1", "status": "failed", "error": WHY, "finished_at": "now"}
    found = Kept(FAULTY, "chat", [{**failed, "items": ITEMS}], [ROW])
    assert any("a turn is failed" in each for each in violations(found, asks))


def test_effects_are_counted(tmp_path):
    notes = tmp_path / "notes"
    notes.write_text("begun chaos_later w1_a1_1 k\ndone chaos_later w1_a1_1 k\n")
    assert effects(notes, "w1_", [ROW]) == []
    assert effects(notes, "w1_", [{**ROW, "call_id": "call_w1_a2_1"}])
    with notes.open("a") as more:
        more.write("begun chaos_later w1_a1_1 other\n")
    assert len(effects(notes, "w1_", [ROW])) == 2


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([Called(CALL)], "with outputs []"),
        ([Called(CALL), Output(CALL), Text("a2-0-1"), Asked("And?")], "assistant text"),
        ([Called("call_other"), Output("call_other")], "not made"),
        ([Called(CALL), Output(CALL), Result(CALL), Result(CALL)], "twice"),
    ],
)
def test_a_wrong_prompt_is_found(entries: list[Any], told: str):
    ledger = Ledger()
    for ask in ASKED[:2]:
        ledger.add(ask)
    assert ledger.problems == []
    ledger.add(Ask(WISH, "chat", 3, entries, answer_to(WISH, 1, 3)))
    assert any(told in each for each in ledger.problems), ledger.problems


def test_the_step_that_is_due_is_read_off_the_prompt():
    called = [Called(CALL), Output(CALL)]
    assert step_due("background", []) == 0
    assert step_due("background", called) == 1
    assert step_due("background", [*called, Text("a2"), Result(CALL)]) == 2
