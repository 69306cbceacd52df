"""The laws: what must hold of a message, whatever interrupted its answer.

No answer that is `completed` is cut, every result is delivered, nothing is repeated,
and nothing is stuck. A turn may fail only for a fault that its provider had and that no
further attempt could mend; all else holds of it, too. Each function returns the
violations, a sentence each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.integration.clients import Screen

from .answers import Answer, Call, Part, Say, Search, Think, source_of
from .faults import fails_turns
from .ledger import RecordedRequest
from .scenarios import SCENARIOS
from .stored_turn import RESULT_CALL_ID, Row, StoredTurn, is_whole, text_of

FINAL = {"completed", "failed", "incomplete", "cancelled"}
#: Final states of calls; these calls are not cancelled.
OVER = {"completed", "failed", "timed_out", "unknown"}
ONCE = ("chaos_once", "chaos_later")


def violations(record: StoredTurn, requests: Sequence[RecordedRequest]) -> list[str]:
    found = [
        *_endings(record, requests),
        *_items(record, requests),
        *_answers(record, requests),
        *_calls(record, requests),
        *_results(record, requests),
        *_screens(record),
    ]
    where = f"{record.wish.id} ({record.wire}, {record.wish.scenario}"
    where += f", {record.wish.fault})" if record.wish.fault else ")"
    return [f"{where}: {each}" for each in found]


def effects(notes: Path, batch: str, calls: Sequence[Row]) -> list[str]:
    """What the tools noted for wishes whose ids begin with `batch`: a call that must
    run once ran at most once, and did where the rows say so; a repeatable call had the
    same key each time."""
    lines = [line.split() for line in _lines(notes)]
    lines = [line for line in lines if line[2].startswith(batch)]
    begun = Counter((name, mark) for what, name, mark, _ in lines if what == "begun")
    done = {mark for what, _, mark, _ in lines if what == "done"}
    keys = {(mark, key) for _, _, mark, key in lines}
    found = [
        f"{name} began {count} times for {mark}"
        for (name, mark), count in begun.items()
        if name in ONCE and count > 1
    ]
    marks = Counter(mark for mark, _ in keys)
    found += [f"{mark} had {n} keys" for mark, n in marks.items() if n > 1]
    for call in calls:
        mark = call["call_id"].removeprefix("call_")
        if call["state"] == "completed" and mark not in done:
            found.append(f"{call['name']} completed and did nothing for {mark}")
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _endings(record: StoredTurn, requests: Sequence[RecordedRequest]) -> Iterator[str]:
    for turn in record.turns:
        if turn["status"] not in FINAL:
            yield f"a turn is {turn['status']}"
        elif turn["status"] not in _allowed(record, requests):
            yield f"a turn is {turn['status']} ({turn['error']})"
        if turn["status"] == "failed" and not turn["error"]:
            yield "a turn failed and does not say why"
        for item in turn["items"]:
            if item.get("status") == "in_progress":
                yield f"an item is in progress: {item['type']}"
    for call in record.calls:
        if call["state"] not in OVER:
            yield f"a call is {call['state']}: {call['name']}"


def _allowed(record: StoredTurn, requests: Sequence[RecordedRequest]) -> set[str]:
    """These turns are not stopped; an answer beyond the limit ends with it, and a turn
    fails only where its provider did."""
    if record.wish.scenario == "huge":
        return {"completed", "incomplete"}
    met = any(request.fault for request in requests)
    if met and fails_turns(record.wish.fault, record.wish.fault_requests):
        return {"completed", "failed"}
    return {"completed"}


def _items(record: StoredTurn, requests: Sequence[RecordedRequest]) -> Iterator[str]:
    """Each item is one that was given, or the beginning of one."""
    answers = {request.answer.source: request.answer for request in requests}
    for item in record.items():
        if item.get("role") == "user" or item["type"] == "function_call_output":
            continue
        source = _source(item)
        sent = _whole_answer(answers.get(source))
        if not any(_is_of(item, part) for part in sent):
            yield f"an item that was not given: {_short(item)}"
    ids = Counter(item["id"] for item in record.items() if "id" in item)
    yield from (f"an id stands {n} times: {id}" for id, n in ids.items() if n > 1)


def _whole_answer(answer: Answer | None) -> Sequence[Part]:
    return answer.parts if answer else ()


def _source(item: Row) -> str:
    match item["type"]:
        case "function_call":
            return source_of("-".join(str(item["call_id"]).rsplit("_", 2)[1:]))
        case "web_search_call":
            action = item.get("action") or {}
            query = action.get("query") or next(iter(action.get("queries") or ()), "")
            return source_of(query)
    return source_of(text_of(item))


def _is_of(item: Row, part: Part) -> bool:
    """Whether the item is this part, or where it is marked so, the beginning of it."""
    match part:
        case Think(text) if item["type"] == "reasoning":
            return _fits(item, text)
        case Say(text) if item["type"] == "message":
            return _fits(item, text)
        case Call(id, name, arguments) if item["type"] == "function_call":
            if item["call_id"] != id or item["name"] != name:
                return False
            return not is_whole(item) or json.loads(item["arguments"]) == arguments
        case Search():
            return item["type"] == "web_search_call"
    return False


def _fits(item: Row, text: str) -> bool:
    spoken = text_of(item)
    return spoken == text if is_whole(item) else text.startswith(spoken)


def _answers(record: StoredTurn, requests: Sequence[RecordedRequest]) -> Iterator[str]:
    """The whole items of a completed turn are whole answers, one for each step."""
    by_source = {request.answer.source: request for request in requests}
    ended = {request.answer.source for request in requests if request.ended}
    steps: list[int] = []
    for turn in record.turns:
        items = [
            item for item in turn["items"] if _is_model_output(item) and is_whole(item)
        ]
        used = dict.fromkeys(_source(item) for item in items)
        for source in used:
            own = [item for item in items if _source(item) == source]
            request = by_source.get(source)
            if request is None or all(item["type"] == "reasoning" for item in own):
                continue
            steps.append(request.answer.step)
            is_last = source == list(used)[-1] and turn["status"] != "completed"
            if not is_last:
                yield from _is_exactly(own, request)
        last = list(used)[-1] if used else ""
        if turn["status"] == "completed" and last not in ended:
            yield f"completed, and its last answer {last!r} was not given in full"
    if steps != sorted(set(steps)):
        yield f"steps were answered as {steps}"
    if all(turn["status"] == "completed" for turn in record.turns):
        final = len(SCENARIOS[record.wish.scenario]) - 1
        if not steps or steps[0] != 0 or steps[-1] != final:
            yield f"steps {steps} of 0 to {final} were answered"


def _is_model_output(item: Row) -> bool:
    return item.get("role") != "user" and item["type"] != "function_call_output"


def _is_exactly(own: Sequence[Row], request: RecordedRequest) -> Iterator[str]:
    """Reasoning of a part continued after a crash may have another position."""
    parts = [part for part in request.answer.parts if not isinstance(part, Think)]
    spoken = [item for item in own if item["type"] != "reasoning"]
    if len(spoken) != len(parts) or not all(
        _is_of(item, part) for item, part in zip(spoken, parts, strict=False)
    ):
        actual = [_short(item) for item in spoken]
        source = request.answer.source
        yield f"answer {source} of {len(parts)} parts is stored as {actual}"
    thoughts = [part for part in request.answer.parts if isinstance(part, Think)]
    stored_thoughts = [item for item in own if item["type"] == "reasoning"]
    if len(stored_thoughts) > len(thoughts):
        yield f"answer {request.answer.source} has its reasoning twice"


def _calls(record: StoredTurn, requests: Sequence[RecordedRequest]) -> Iterator[str]:
    """Each whole call has one output, and each output a call. A call has none only
    in a failed turn whose provider did not end the answer with the call."""
    ended = {
        part.id
        for request in requests
        if request.ended
        for part in request.answer.parts
        if isinstance(part, Call)
    }
    for turn in record.turns:
        calls = [
            item["call_id"]
            for item in turn["items"]
            if item["type"] == "function_call" and is_whole(item)
        ]
        outputs = [
            item["call_id"]
            for item in turn["items"]
            if item["type"] == "function_call_output"
        ]
        if len(outputs) > len(set(outputs)) or set(outputs) - set(calls):
            yield f"outputs {outputs} of calls {calls}"
        due = set(calls) if turn["status"] == "completed" else set(calls) & ended
        if due - set(outputs):
            yield f"calls without outputs: {due - set(outputs)}"


def _results(record: StoredTurn, requests: Sequence[RecordedRequest]) -> Iterator[str]:
    """Each result is one message, belongs to the turn that the row names, and was in
    the prompt of an answer that was sent in full, unless that turn has failed."""
    delivered = [
        (item[RESULT_CALL_ID], turn["id"])
        for turn in record.turns
        for item in turn["items"]
        if RESULT_CALL_ID in item
    ]
    counts = Counter(call_id for call_id, _ in delivered)
    failed = {turn["id"] for turn in record.turns if turn["status"] == "failed"}
    heard = {
        id
        for request in requests
        if request.ended
        for id in request.delivered_results()
    }
    for call in record.calls:
        if call["blocking"]:
            continue
        call_id, turn_id = call["call_id"], call["delivered_in"]
        if counts[call_id] != 1:
            yield f"the result of {call_id} is told {counts[call_id]} times"
        elif (call_id, turn_id) not in delivered:
            yield f"the result of {call_id} is not told in {turn_id}"
        if call_id not in heard and turn_id not in failed:
            yield f"no model has heard the result of {call_id}"


def _screens(record: StoredTurn) -> Iterator[str]:
    if not record.shown:
        return
    stayed, late = record.shown
    written = "".join(
        text_of(item)
        for item in record.turns[0]["items"]
        if item["type"] == "message" and item["role"] == "assistant"
    )
    if stayed.text != late.text:
        yield _differ("who stayed and who came late", stayed.text, late.text)
        yield f"who stayed was sent {_course(stayed)}"
    if late.text != written:
        yield _differ("a screen and the rows", late.text, written)
    yield from _order(stayed)


def _differ(what: str, one: str, other: str) -> str:
    return f"{what} differ: {_cut(one)} and {_cut(other)}"


def _course(screen: Screen) -> list[str]:
    """Positions and kinds of the events but for those that lengthen a text."""
    shown = []
    for event in screen.events:
        kind = event["type"].removeprefix("response.").removeprefix("parley:")
        position = f"{event['sequence_number']}" if "sequence_number" in event else ""
        index = event.get("output_index", "")
        if not shown or shown[-1].split(" ", 1)[1] != f"{kind} {index}":
            shown.append(f"{position} {kind} {index}")
    return shown


def _order(screen: Screen) -> Iterator[str]:
    places = [tuple(map(int, position.split("-"))) for position in screen.positions]
    if places != sorted(set(places)):
        yield "events were told twice or out of order"


def _short(item: Row) -> str:
    mark = "" if is_whole(item) else " (cut)"
    if item["type"] == "function_call":
        return f"{item['name']} {item['call_id']}{mark}"
    return f"{item['type']} {_cut(text_of(item))}{mark}"


def _cut(text: str) -> str:
    return repr(text) if len(text) < 90 else f"{text[:40]!r} ... {text[-40:]!r}"
