from __future__ import annotations

from typing import Any

from llm.wire.facades.client_visibility import Audience
from llm.wire.facades.proof_entries import MAX_OUTPUTS, Sealed, entries_of, restore
from llm.wire.items import Issuer, Item, message

ISSUER: Issuer = {"provider": "gemini", "model": "g", "route": "1:1"}
EVERYTHING = Audience()


def thought(number: int) -> Item:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": []}


def call(number: int, arguments: str = "{}") -> Item:
    named = {"call_id": f"c{number}", "name": "look", "arguments": arguments}
    return {"type": "function_call", "id": f"fc_{number}", **named}


def said(text: str, id: str = "msg_1") -> Item:
    return {**message("assistant", text), "id": id}


def seal(output: list[Item], **options: Any) -> Sealed:
    """With a proof for each item, which names it."""
    proofs = {item["id"]: {"signature": item["id"]} for item in output}
    entries = entries_of(output, proofs, EVERYTHING, **options)
    return {"answer": "resp_1", "issuer": ISSUER, "entries": entries}


def proven(items: list[Item]) -> list[str | None]:
    """The ids of the sealed items, whose proofs the items have."""
    data = [item.get("provider_data") for item in items]
    return [each["raw"]["signature"] if each else None for each in data]


def test_items_come_back_in_the_order_of_the_answer():
    output = [thought(1), call(1), thought(2), said("Hi"), call(2)]
    returned = [said("Hi", "msg_9"), call(1), call(2)]
    items = restore(returned, [seal(output)])
    assert [item["type"] for item in items] == [item["type"] for item in output]
    assert proven(items) == [item["id"] for item in output]
    assert items[0]["provider_data"]["issuer"] == ISSUER


def test_the_seals_of_one_answer_are_one_whatever_their_order():
    output = [thought(1), call(1), thought(2), call(2)]
    whole = seal(output)
    parts: list[Sealed] = [{**whole, "entries": [e]} for e in whole["entries"]]
    items = restore([call(1), call(2)], reversed(parts))
    assert proven(items) == ["rs_1", "fc_1", "rs_2", "fc_2"]


def test_what_a_client_has_changed_has_no_proof():
    sealed = seal([thought(1), call(1, '{"a": 1}'), said("Hi")])
    items = restore([call(1, '{"a": 2}'), said("Ho")], [sealed])
    assert proven(items) == ["rs_1", None, None]
    assert [item.get("arguments") for item in items[1:]] == ['{"a": 2}', None]


def test_spaces_in_arguments_change_nothing():
    items = restore([call(1, '{"b":2,"a":1}')], [seal([call(1, '{"a": 1, "b": 2}')])])
    assert proven(items) == ["fc_1"]


def test_messages_that_became_one_text_are_split_again():
    output = [said("One.", "msg_1"), thought(1), said("Two.", "msg_2")]
    items = restore([said("One.Two.", "msg_9")], [seal(output)])
    assert proven(items) == ["msg_1", "rs_1", "msg_2"]
    items = restore([said("One.Too.", "msg_9")], [seal(output)])
    assert proven(items) == ["rs_1", None]


def test_a_text_with_nothing_to_hide_needs_no_seal():
    raw = {"msg_1": {"content": [{"type": "text", "text": "Hi"}]}}
    assert entries_of([said("Hi")], raw, EVERYTHING) == []


OWN = Audience(server_tools={"look"})


def output_of(number: int, text: str = "3 °C") -> Item:
    named = {"id": f"fco_{number}", "call_id": f"c{number}"}
    return {"type": "function_call_output", **named, "output": text}


def seal_of(output: list[Item]) -> Sealed:
    """As `seal`, but outputs have no proof, and the client sees no call of `look`."""
    proven = [item for item in output if item["type"] != "function_call_output"]
    proofs = {item["id"]: {"signature": item["id"]} for item in proven}
    entries = entries_of(output, proofs, OWN)
    return {"answer": "resp_1", "issuer": ISSUER, "entries": entries}


def test_rounds_of_this_servers_tools_come_back_unseen():
    client_call = {**call(2), "name": "theirs"}
    output = [
        thought(1),
        said("One.", "msg_1"),
        call(1),
        output_of(1),
        thought(2),
        said("Two.", "msg_2"),
        client_call,
    ]
    returned = [said("One.\n\nTwo.", "msg_9"), client_call]
    items = restore(returned, [seal_of(output)])
    assert [item["type"] for item in items] == [item["type"] for item in output]
    assert proven(items) == [
        None if item["id"] == "fco_1" else item["id"] for item in output
    ]
    assert items[3]["output"] == "3 °C"


def test_of_very_long_outputs_only_what_follows_is_sealed():
    client_call = {**call(2), "name": "theirs"}
    long = output_of(1, "x" * (MAX_OUTPUTS + 1))
    sealed = seal_of([said("One."), call(1), long, thought(2), client_call])
    items = restore([said("One."), client_call], [sealed])
    assert proven(items) == [None, "rs_2", "fc_2"]
    assert "xxx" not in str(sealed)


def test_the_call_of_a_hosts_own_tool_comes_back_unseen():
    own = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "x1", "name": "find"}
    proofs: dict[str, Any] = {"ctc_1": own, "rs_1": {"signature": "rs_1"}}
    entries = entries_of([thought(1), {**own, "input": ""}], proofs, EVERYTHING)
    sealed: Sealed = {"answer": "resp_1", "issuer": ISSUER, "entries": entries}
    items = restore([], [sealed])
    assert [item["type"] for item in items] == ["reasoning", "custom_tool_call"]
    assert items[1]["call_id"] == "x1"


def test_arguments_of_any_depth_can_be_named():
    deep = '{"a": ' + "[" * 600 + "]" * 600 + "}"
    assert proven(restore([call(1, deep)], [seal([call(1, deep)])])) == ["fc_1"]


def test_without_a_readable_seal_items_stay_as_they_are():
    returned = [thought(1), call(1)]
    assert restore(returned, [None]) == returned


def test_equal_texts_come_back_as_often_as_they_were_said():
    output = [said("OK.", "msg_1"), thought(1), said("OK.", "msg_2")]
    items = restore([said("OK.", "msg_8"), said("OK.", "msg_9")], [seal(output)])
    assert proven(items) == ["msg_1", "rs_1", "msg_2"]


def test_a_hosts_own_item_without_a_proof_is_left_out():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    proofs = {"rs_1": {"signature": "rs_1"}}
    entries = entries_of([thought(1), search], proofs, EVERYTHING)
    sealed: Sealed = {"answer": "resp_1", "issuer": ISSUER, "entries": entries}
    items = restore([], [sealed])
    assert [item["type"] for item in items] == ["reasoning"]


def test_a_picture_comes_back_once_where_the_client_returns_it_too():
    drawn = {"type": "image_generation_call", "id": "ig_1", "result": "AAA"}
    returned = [said("Hi", "msg_9"), {**drawn, "id": "ig_9"}]
    items = restore(returned, [seal([said("Hi"), drawn])])
    assert [item["type"] for item in items] == ["message", drawn["type"]]
    assert proven(items) == ["msg_1", "ig_1"]
    assert restore(returned, [seal([said("Hi")])])[1] == returned[1]
