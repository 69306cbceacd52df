"""The checker finds each way in which a law may be broken, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from .checker import effects, violations
from .ledger import Ledger, RecordedRequest
from .prompt import Called, Output, Result, Text, UserText
from .scenarios import answer_to, step_due
from .stored_turn import StoredTurn
from .wish import Wish

WISH = Wish(id="w1", scenario="background", words=4)
CALL = "call_w1_a1_1"
REQUESTS = [
    RecordedRequest(WISH, "chat", 1, [], answer_to(WISH, 0, 1), ended=True),
    RecordedRequest(
        WISH, "chat", 2, [Called(CALL), Output(CALL)], answer_to(WISH, 1, 2)
    ),
    RecordedRequest(
        WISH, "chat", 3, [Called(CALL), Output(CALL)], answer_to(WISH, 1, 3)
    ),
    RecordedRequest(WISH, "chat", 4, [Result(CALL)], answer_to(WISH, 2, 4)),
]
for request in REQUESTS[2:]:
    request.ended = True


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
RESULT_CALL_ID = message("Result", role="user", **{"parley:call_id": CALL})
LAST = message("a4-1-1 a4-1-2 a4-1-3 a4-1-4")
ITEMS = [
    message(WISH.text(), role="user"),
    thought("a1-0-1"),
    CALLED,
    OUTPUT,
    CUT,
    FIRST,
    RESULT_CALL_ID,
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


def stored_turn(items: list[dict[str, Any]] = ITEMS, **turn: Any) -> StoredTurn:
    whole = {"id": "t1", "status": "completed", "error": None, "finished_at": "now"}
    return StoredTurn(WISH, "chat", [{**whole, "items": items, **turn}], [ROW])


def test_an_undisturbed_record_breaks_no_law():
    assert violations(stored_turn(), REQUESTS) == []


def without(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in ITEMS if each is not item]


def instead(item: dict[str, Any], *others: dict[str, Any]) -> list[dict[str, Any]]:
    index = ITEMS.index(item)
    return [*ITEMS[:index], *others, *ITEMS[index + 1 :]]


@pytest.mark.parametrize(
    ("items", "violation"),
    [
        (instead(LAST, message("a4-1-1 a4-1-2")), "not given"),
        (instead(LAST, message("a4-1-1 a4-1-2 a3-0-3 a3-0-4")), "not given"),
        (instead(LAST, LAST, LAST), "is stored as"),
        (without(LAST), "of 0 to 2 were answered"),
        (instead(FIRST, message("a2-0-1 a2-0-2 a2-0-3 a2-0-4"), FIRST), "[0, 1, 1, 2]"),
        (instead(FIRST, LAST, FIRST), "is stored as"),
        (without(OUTPUT), "calls without outputs"),
        (instead(OUTPUT, OUTPUT, OUTPUT), "outputs"),
        (without(RESULT_CALL_ID), "told 0 times"),
        (instead(RESULT_CALL_ID, RESULT_CALL_ID, RESULT_CALL_ID), "told 2 times"),
        (instead(LAST, {**LAST, "status": "in_progress"}), "in progress"),
    ],
)
def test_a_broken_law_is_found(items: list[dict[str, Any]], violation: str):
    found = violations(stored_turn(items), REQUESTS)
    assert any(violation in each for each in found), found


def test_a_result_may_arrive_before_the_first_answer():
    assert violations(stored_turn(without(FIRST)), REQUESTS) == []


def test_an_answer_whose_end_never_came_is_not_complete():
    requests = deepcopy(REQUESTS)
    requests[-1].ended = False
    assert any("in full" in each for each in violations(stored_turn(), requests))


def test_a_turn_that_never_ends_or_fails_for_nothing_is_found():
    assert violations(stored_turn(status="in_progress"), REQUESTS)
    assert violations(stored_turn(status="failed"), REQUESTS)


def test_a_result_that_no_model_received_is_found():
    requests = deepcopy(REQUESTS)
    requests[-1].entries = []
    assert any("heard" in each for each in violations(stored_turn(), requests))


# A provider that had a fault excuses a turn that failed, and nothing else

FAULTY = replace(WISH, fault="cut in the middle")
WHY = {"code": "E_LLM_PROVIDER_DOWN"}
FAULTY_REQUESTS = [replace(request, wish=FAULTY) for request in REQUESTS[:-1]]
FAULTY_REQUESTS += [replace(REQUESTS[-1], wish=FAULTY, fault=FAULTY.fault, ended=False)]
#: The last answer was cut, and its turn has failed.
FAILED = instead(LAST, {**message("a4-1-1 a4-1-"), "status": "incomplete"})


def of_faulty(
    items: list[dict[str, Any]] = FAILED,
    call: dict[str, Any] = ROW,
    wish: Wish = FAULTY,
    **turn: Any,
) -> list[str]:
    failed = {"id": "t1", "status": "failed", "error": WHY, "finished_at": "now"}
    found = StoredTurn(wish, "chat", [{**failed, "items": items, **turn}], [call])
    requests = [
        replace(request, wish=wish, fault=request.fault and wish.fault)
        for request in FAULTY_REQUESTS
    ]
    return violations(found, requests)


def test_a_turn_may_fail_with_its_provider():
    assert of_faulty() == []


def without_in_failed(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in FAILED if each is not item]


@pytest.mark.parametrize(
    ("case", "violation"),
    [
        ({"status": "completed"}, "in full"),
        ({"status": "completed", "items": ITEMS}, "in full"),
        ({"items": instead(LAST, message("a4-1-1 a4-1-"))}, "not given"),
        ({"items": without_in_failed(RESULT_CALL_ID)}, "told 0 times"),
        ({"items": [*FAILED, RESULT_CALL_ID]}, "told 2 times"),
        ({"call": {**ROW, "delivered_in": "t2"}}, "not told in t2"),
        ({"call": {**ROW, "delivered_in": None}}, "not told in None"),
        ({"items": [*FAILED, FIRST]}, "is stored as"),
        ({"items": without_in_failed(OUTPUT)}, "calls without outputs"),
        ({"status": "in_progress"}, "a turn is in_progress"),
        ({"call": {**ROW, "state": "executing"}}, "a call is executing"),
        ({"call": {**ROW, "state": "cancelled"}}, "a call is cancelled"),
        ({"status": "cancelled"}, "a turn is cancelled"),
        ({"status": "incomplete"}, "a turn is incomplete"),
        ({"error": None}, "does not say why"),
    ],
)
def test_a_broken_law_is_found_behind_a_fault(case: dict[str, Any], violation: str):
    found = of_faulty(**case)
    assert any(violation in each for each in found), found


@pytest.mark.parametrize(
    "wish",
    [
        replace(WISH, fault="silence"),
        replace(WISH, fault="doubled end"),
        replace(WISH, fault="idle close"),
        replace(WISH, fault="503", fault_requests=2),
    ],
    ids=lambda wish: wish.fault,
)
def test_a_fault_that_costs_nothing_excuses_no_failure(wish: Wish):
    assert any("a turn is failed" in each for each in of_faulty(wish=wish))


def test_a_fault_that_did_not_occur_excuses_no_failure():
    requests = [replace(request, wish=FAULTY, fault="") for request in REQUESTS]
    failed = {"id": "t1", "status": "failed", "error": WHY, "finished_at": "now"}
    found = StoredTurn(FAULTY, "chat", [{**failed, "items": ITEMS}], [ROW])
    assert any("a turn is failed" in each for each in violations(found, requests))


def test_effects_are_counted(tmp_path):
    notes = tmp_path / "notes"
    notes.write_text("begun chaos_later w1_a1_1 k\ndone chaos_later w1_a1_1 k\n")
    assert effects(notes, "w1_", [ROW]) == []
    assert effects(notes, "w1_", [{**ROW, "call_id": "call_w1_a2_1"}])
    with notes.open("a") as more:
        more.write("begun chaos_later w1_a1_1 other\n")
    assert len(effects(notes, "w1_", [ROW])) == 2


@pytest.mark.parametrize(
    ("entries", "violation"),
    [
        ([Called(CALL)], "with outputs []"),
        (
            [Called(CALL), Output(CALL), Text("a2-0-1"), UserText("And?")],
            "assistant text",
        ),
        ([Called("call_other"), Output("call_other")], "not made"),
        ([Called(CALL), Output(CALL), Result(CALL), Result(CALL)], "twice"),
    ],
)
def test_a_wrong_prompt_is_found(entries: list[Any], violation: str):
    ledger = Ledger()
    for request in REQUESTS[:2]:
        ledger.add(request)
    assert ledger.problems == []
    ledger.add(RecordedRequest(WISH, "chat", 3, entries, answer_to(WISH, 1, 3)))
    assert any(violation in each for each in ledger.problems), ledger.problems


def test_the_step_that_is_due_is_read_off_the_prompt():
    called = [Called(CALL), Output(CALL)]
    assert step_due("background", []) == 0
    assert step_due("background", called) == 1
    assert step_due("background", [*called, Text("a2"), Result(CALL)]) == 2
