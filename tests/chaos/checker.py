"""The laws: what must hold of a message, whatever interrupted its answer.

No answer that is `completed` is cut, no result is untold, nothing stands twice, and
nothing is stuck. A turn may fail only for a fault that its provider had and that no
further attempt could mend; all else holds of it, too. Each function returns the
violations, a sentence each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conversations.clients import Screen

from .answers import Answer, Call, Part, Say, Search, Think, source_of
from .faults import fails_turns
from .kept import TOLD, Kept, Row, is_whole, text_of
from .ledger import Ask
from .scenarios import SCENARIOS

FINAL = {"completed", "failed", "incomplete", "cancelled"}
#: States of calls that are over. Nobody cancels these.
OVER = {"completed", "failed", "timed_out", "unknown"}
ONCE = ("chaos_once", "chaos_later")


def violations(kept: Kept, asks: Sequence[Ask]) -> list[str]:
    found = [
        *_endings(kept, asks),
        *_items(kept, asks),
        *_answers(kept, asks),
        *_calls(kept, asks),
        *_results(kept, asks),
        *_screens(kept),
    ]
    where = f"{kept.wish.id} ({kept.wire}, {kept.wish.scenario}"
    where += f", {kept.wish.fault})" if kept.wish.fault else ")"
    return [f"{where}: {each}" for each in found]


def effects(notes: Path, batch: str, calls: Sequence[Row]) -> list[str]:
    """What the tools noted for wishes whose ids begin with `batch`: what must run once
    ran once at the most, and did where the rows say so; what may be repeated had the
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


def _endings(kept: Kept, asks: Sequence[Ask]) -> Iterator[str]:
    for turn in kept.turns:
        if turn["status"] not in FINAL:
            yield f"a turn is {turn['status']}"
        elif turn["status"] not in _allowed(kept, asks):
            yield f"a turn is {turn['status']} ({turn['error']})"
        if turn["status"] == "failed" and not turn["error"]:
            yield "a turn failed and does not say why"
        for item in turn["items"]:
            if item.get("status") == "in_progress":
                yield f"an item is in progress: {item['type']}"
    for call in kept.calls:
        if call["state"] not in OVER:
            yield f"a call is {call['state']}: {call['name']}"


def _allowed(kept: Kept, asks: Sequence[Ask]) -> set[str]:
    """Nobody stops these turns; an answer beyond the limit ends with it, and a turn
    fails only where its provider did."""
    if kept.wish.scenario == "huge":
        return {"completed", "incomplete"}
    met = any(ask.fault for ask in asks)
    if met and fails_turns(kept.wish.fault, kept.wish.fault_asks):
        return {"completed", "failed"}
    return {"completed"}


def _items(kept: Kept, asks: Sequence[Ask]) -> Iterator[str]:
    """Each item is one that was given, or the beginning of one."""
    answers = {ask.answer.source: ask.answer for ask in asks}
    for item in kept.items():
        if item.get("role") == "user" or item["type"] == "function_call_output":
            continue
        source = _source(item)
        given = _whole_answer(answers.get(source))
        if not any(_is_of(item, part) for part in given):
            yield f"an item that was not given: {_short(item)}"
    ids = Counter(item["id"] for item in kept.items() if "id" in item)
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
    said = text_of(item)
    return said == text if is_whole(item) else text.startswith(said)


def _answers(kept: Kept, asks: Sequence[Ask]) -> Iterator[str]:
    """The whole items of a completed turn are whole answers, one for each step."""
    by_source = {ask.answer.source: ask for ask in asks}
    ended = {ask.answer.source for ask in asks if ask.ended}
    steps: list[int] = []
    for turn in kept.turns:
        items = [item for item in turn["items"] if _is_said(item) and is_whole(item)]
        used = dict.fromkeys(_source(item) for item in items)
        for source in used:
            own = [item for item in items if _source(item) == source]
            ask = by_source.get(source)
            if ask is None or all(item["type"] == "reasoning" for item in own):
                continue
            steps.append(ask.answer.step)
            is_last = source == list(used)[-1] and turn["status"] != "completed"
            if not is_last:
                yield from _is_exactly(own, ask)
        last = list(used)[-1] if used else ""
        if turn["status"] == "completed" and last not in ended:
            yield f"completed, and its last answer {last!r} was not given in full"
    if steps != sorted(set(steps)):
        yield f"steps were answered as {steps}"
    if all(turn["status"] == "completed" for turn in kept.turns):
        final = len(SCENARIOS[kept.wish.scenario]) - 1
        if not steps or steps[0] != 0 or steps[-1] != final:
            yield f"steps {steps} of 0 to {final} were answered"


def _is_said(item: Row) -> bool:
    return item.get("role") != "user" and item["type"] != "function_call_output"


def _is_exactly(own: Sequence[Row], ask: Ask) -> Iterator[str]:
    """Reasoning of a part that was gone on with after a crash may stand elsewhere."""
    given = [part for part in ask.answer.parts if not isinstance(part, Think)]
    spoken = [item for item in own if item["type"] != "reasoning"]
    if len(spoken) != len(given) or not all(
        _is_of(item, part) for item, part in zip(spoken, given, strict=False)
    ):
        told = [_short(item) for item in spoken]
        yield f"answer {ask.answer.source} of {len(given)} parts is kept as {told}"
    thoughts = [part for part in ask.answer.parts if isinstance(part, Think)]
    kept_thoughts = [item for item in own if item["type"] == "reasoning"]
    if len(kept_thoughts) > len(thoughts):
        yield f"answer {ask.answer.source} has its reasoning twice"


def _calls(kept: Kept, asks: Sequence[Ask]) -> Iterator[str]:
    """Each whole call has one output, and no output stands alone. A call has none only
    in a failed turn whose provider did not end the answer with the call."""
    ended = {
        part.id
        for ask in asks
        if ask.ended
        for part in ask.answer.parts
        if isinstance(part, Call)
    }
    for turn in kept.turns:
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


def _results(kept: Kept, asks: Sequence[Ask]) -> Iterator[str]:
    """Each result is one message, stands in the turn that the row names, and was in the
    prompt of an answer that was given in full, unless that turn has failed."""
    told = [
        (item[TOLD], turn["id"])
        for turn in kept.turns
        for item in turn["items"]
        if TOLD in item
    ]
    counts = Counter(call_id for call_id, _ in told)
    failed = {turn["id"] for turn in kept.turns if turn["status"] == "failed"}
    heard = {id for ask in asks if ask.ended for id in ask.told_results()}
    for call in kept.calls:
        if call["blocking"]:
            continue
        call_id, turn_id = call["call_id"], call["delivered_in"]
        if counts[call_id] != 1:
            yield f"the result of {call_id} is told {counts[call_id]} times"
        elif (call_id, turn_id) not in told:
            yield f"the result of {call_id} is not told in {turn_id}"
        if call_id not in heard and turn_id not in failed:
            yield f"no model has heard the result of {call_id}"


def _screens(kept: Kept) -> Iterator[str]:
    if not kept.shown:
        return
    stayed, late = kept.shown
    written = "".join(
        text_of(item)
        for item in kept.turns[0]["items"]
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
    told = []
    for event in screen.events:
        kind = event["type"].removeprefix("response.").removeprefix("parley:")
        place = f"{event['sequence_number']}" if "sequence_number" in event else ""
        index = event.get("output_index", "")
        if not told or told[-1].split(" ", 1)[1] != f"{kind} {index}":
            told.append(f"{place} {kind} {index}")
    return told


def _order(screen: Screen) -> Iterator[str]:
    places = [tuple(map(int, place.split("-"))) for place in screen.positions]
    if places != sorted(set(places)):
        yield "events were told twice or out of order"


def _short(item: Row) -> str:
    mark = "" if is_whole(item) else " (cut)"
    if item["type"] == "function_call":
        return f"{item['name']} {item['call_id']}{mark}"
    return f"{item['type']} {_cut(text_of(item))}{mark}"


def _cut(text: str) -> str:
    return repr(text) if len(text) < 90 else f"{text[:40]!r} ... {text[-40:]!r}"
