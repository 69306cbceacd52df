from __future__ import annotations

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.turns.compaction import (
    PINNED,
    UNDONE,
    Log,
    LogEntry,
    apply_compaction,
    compaction_item,
    find_active,
    is_declined,
    plan_compaction,
    summary_message,
)
from conversations.turns.compactor import WindowCompactor
from conversations.turns.history import byte_length, estimate_tokens, repair_history
from conversations.turns.summary_requests import (
    MAX_PARTS,
    part_prompt,
    transcript_parts,
)
from llm.wire.items import (
    THROUGH,
    function_call_output,
    is_compaction,
    message,
    text_of,
    user_message,
)
from llm.wire.request import Request

TEXTS = st.text(min_size=0, max_size=400)
#: A host may use the same ids in every answer.
IDS = st.sampled_from(["call_0", "call_1", "call_2", "x", "y"])


def call(id):
    return {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": id,
        "name": "look",
        "arguments": "{}",
        "status": "completed",
    }


def thought(text):
    parts = [{"type": "summary_text", "text": text}]
    proof = {"issuer": {}, "raw": {"signature": text}}
    return {
        "type": "reasoning",
        "id": "rs",
        "summary": parts,
        "content": [],
        "provider_data": proof,
    }


@st.composite
def rounds(draw):
    """Parallel calls after a thought, with their outputs; some were never answered."""
    ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    answered = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    before = [thought("hm")] if draw(st.booleans()) else []
    outputs = [function_call_output(id, draw(TEXTS)) for id in answered]
    return [*before, *map(call, ids), *outputs]


@st.composite
def messages(draw, roles):
    said = message(draw(st.sampled_from(roles)), draw(TEXTS))
    return {**said, PINNED: True} if draw(st.integers(0, 5)) == 0 else said


@st.composite
def logs(draw, fewest=1):
    """Turns with any items; a turn may begin with outputs for the last one's calls."""
    entries, order, open_ids = [], {}, []
    for number in range(draw(st.integers(fewest, 6))):
        order[turn := f"resp_{number}"] = number
        inputs = [function_call_output(id, draw(TEXTS)) for id in open_ids]
        inputs += draw(
            st.lists(messages(["user", "system", "developer"]), min_size=1, max_size=2)
        )
        outputs = [i for each in draw(st.lists(rounds(), max_size=3)) for i in each]
        open_ids = draw(st.lists(IDS, max_size=2, unique=True))
        outputs += [*draw(st.lists(messages(["assistant"]), max_size=1))]
        outputs += map(call, open_ids)
        places = count()
        entries += [LogEntry(turn, next(places), True, item) for item in inputs]
        entries += [LogEntry(turn, next(places), False, item) for item in outputs]
    return Log(entries, order, [])


def context(log):
    active = find_active(log.compactions, log.order)
    return apply_compaction(log.entries, active, log.order)


def pairs(items):
    """Each call's id with its output, in order; an output belongs to the last call."""
    begun, found = {}, []
    for number, item in enumerate(items):
        if item["type"] == "function_call":
            begun[item["call_id"]] = number
        elif item["type"] == "function_call_output":
            found.append((begun.pop(item["call_id"], None), item["output"]))
    return found


def compact(log, keep, summary="They talked."):
    plan = plan_compaction(log, keep=keep, at_least=0)
    if plan is None:
        return None
    new = compaction_item(plan, summary)
    return Log(log.entries, log.order, [*log.compactions, new])


def canonical(items):
    return json.dumps(items, sort_keys=True).encode()


@given(logs(), st.integers(0, 300), st.integers(0, 300))
def test_a_compaction_splits_no_call_and_loses_no_pinned_message(log, first, second):
    for keep in (first, second):
        before = log
        if (log := compact(log, keep)) is None:
            return
        items = context(log)
        assert items[0] == summary_message(log.compactions[-1])
        assert all(call is not None for call, _ in pairs(items))
        number = {id(e.item): n for n, e in enumerate(log.entries)}
        # What is not covered follows unchanged, and no call of it has lost its output.
        rest = [i for i in items[1:] if id(i) in number and "provider_data" not in i]
        assert [number[id(i)] for i in rest] == sorted(number[id(i)] for i in rest)
        kept = {canonical(i) for i in items}
        for entry in log.entries:
            is_kept = entry.item.get(PINNED) or entry.item.get("role") in (
                "system",
                "developer",
            )
            assert not is_kept or canonical(entry.item) in kept
        repaired = repair_history(items)
        assert not any(i["type"] == "compaction" for i in repaired)
        # It goes further than the one before it, and says how many messages it has.
        assert log.compactions[-1]["parley:messages"] >= sum(
            c["parley:messages"] for c in before.compactions[-1:]
        )


@given(logs(), st.lists(st.integers(0, 300), min_size=1, max_size=3), st.booleans())
def test_undo_restores_the_context_before_it_byte_for_byte(log, keeps, by_turn):
    contexts = [canonical(context(log))]
    for keep in keeps:
        if (longer := compact(log, keep)) is None:
            break
        log = longer
        contexts.append(canonical(context(log)))
    while len(contexts) > 1:
        contexts.pop()
        *earlier, last = log.compactions
        undone = Log(log.entries, log.order, [*earlier, {**last, UNDONE: True}])
        assert canonical(context(undone)) == contexts[-1]
        assert is_declined(undone)
        log = Log(log.entries, log.order, earlier)


@given(logs(fewest=2), st.integers(0, 300))
def test_a_turn_uses_the_compactions_of_the_turns_it_follows_and_no_other(log, keep):
    if (compacted := compact(log, keep)) is None:
        return
    through = compacted.compactions[0][THROUGH]["turn"]
    for last in range(len(log.order)):
        order = {pk: n for pk, n in log.order.items() if n <= last}
        entries = [e for e in log.entries if e.turn_id in order]
        branch = Log(entries, order, compacted.compactions)
        has_summary = context(branch)[:1] == [summary_message(compacted.compactions[0])]
        assert has_summary == (through in order)


@given(logs(), st.integers(0, 300), st.integers(1, 10_000))
def test_a_compaction_is_not_made_for_less_than_it_is_worth(log, keep, worth):
    plan = plan_compaction(log, keep=keep, at_least=worth)
    if plan is not None:
        assert sum(estimate_tokens("", [item]) for item in plan.items) >= worth


def test_a_thinking_models_round_is_whole_on_one_side():
    """Between a thought, its parallel calls and their outputs there is no border."""
    asked = user_message("Go on.")
    work = [
        each
        for n in range(4)
        for each in [
            thought(f"t{n}"),
            call(f"a{n}"),
            call(f"b{n}"),
            function_call_output(f"b{n}", "x" * 400),
            function_call_output(f"a{n}", "y" * 400),
        ]
    ]
    entries = [LogEntry("t", n, not n, item) for n, item in enumerate([asked, *work])]
    log = compact(Log(entries, {"t": 0}, []), keep=450)
    summary, question, *rest = context(log)
    assert text_of(summary).endswith("They talked.")
    assert question == asked  # which the rest answers
    assert rest == work[-10:]
    assert log.compactions[0][THROUGH] == {"turn": "t", "position": 10}


@pytest.mark.parametrize(
    "item",
    [
        {"type": "compaction", "encrypted_content": "a provider's own"},
        {"type": "compaction", THROUGH: "resp_0"},
        {"type": "message", THROUGH: {"turn": "resp_0", "position": 1}},
    ],
)
def test_what_a_provider_or_client_calls_a_compaction_is_none(item):
    assert not is_compaction(item)


@given(
    st.lists(st.tuples(st.integers(0, 400), TEXTS), max_size=60),
    st.integers(1, 3000),
)
def test_a_transcript_of_any_size_fits_into_a_few_parts(texts, tokens):
    items = [user_message(text * times) for times, text in texts]
    parts = transcript_parts(items, tokens)
    assert len(parts) <= MAX_PARTS
    limit = max(tokens * 4, 2000)
    assert all(byte_length(part) <= 2 * limit for part in parts)
    if sum(len(text) * times for times, text in texts) < 200:
        whole = part_prompt("", "".join(parts))
        assert all(text_of(item) in whole for item in items)


@pytest.mark.parametrize(
    ("measured", "loads"), [(100, 0), (None, 0), (750, 0), (751, 1)]
)
async def test_the_whole_log_is_read_only_above_the_threshold(measured, loads):
    loaded = []

    async def measure():
        return measured

    async def load():
        loaded.append(1)
        return Log([], {}, [])

    async def reload():
        pass

    compactor = WindowCompactor(
        open_stream=lambda: None,
        build=lambda request: request,
        room=1000,
        threshold=0.75,
        measure=measure,
        load=load,
        reload_history=reload,
    )
    request = Request(model="", items=[user_message("x" * 2000)])  # 500 tokens
    assert compactor.is_due(request)
    assert await compactor.plan(request) is None
    assert len(loaded) == loads
    assert await compactor.plan(None) is None
    assert len(loaded) == loads + 1
