from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.turns.history import (
    ContextBlock,
    estimate_tokens,
    render_prompt,
    repair_history,
)
from llm.errors import ContextTooLarge
from llm.wire.items import function_call_output, message, text_of, user_message
from tests.tools.loop.test_steps import call, output

history = st.lists(
    st.one_of(
        st.just(user_message("hi")),
        st.just(message("assistant", "Hello.")),
        st.builds(
            call, st.integers(0, 3), status=st.sampled_from(["completed", "incomplete"])
        ),
        st.builds(output, st.integers(0, 3)),
        st.just({"type": "reasoning", "summary": [], "status": "incomplete"}),
        st.just({**message("assistant", "Hal"), "parley:interrupted": True}),
    ),
    max_size=12,
)


@given(history)
def test_every_call_that_is_sent_has_an_output_and_no_output_is_without(items):
    repaired = repair_history(items)
    calls = [i["call_id"] for i in repaired if i["type"] == "function_call"]
    outputs = [i["call_id"] for i in repaired if i["type"] == "function_call_output"]
    assert set(calls) == set(outputs)
    for call_id in set(calls):
        first = next(
            i for i, item in enumerate(repaired) if item.get("call_id") == call_id
        )
        assert repaired[first]["type"] == "function_call"
    assert not any(item.get("parley:interrupted") for item in repaired)


@given(history)
def test_mending_twice_changes_nothing_more(items):
    once = repair_history(items)
    ids = [{k: v for k, v in i.items() if k != "id"} for i in once]
    assert [
        {k: v for k, v in i.items() if k != "id"} for i in repair_history(once)
    ] == ids


def test_the_system_prompt_comes_first_and_old_system_turns_are_dropped():
    items = [
        message("system", "Old."),
        user_message("hi"),
        message("system", "New."),
        user_message("again"),
    ]
    prompt = render_prompt("Be brief.", items)
    assert prompt.instructions == "Be brief.\n\nNew."
    assert [text_of(item) for item in prompt.items] == ["hi", "again"]


def test_context_has_its_own_heading():
    blocks = [ContextBlock("Customer", "Ada"), ContextBlock("Empty", "")]
    prompt = render_prompt("Be brief.", [user_message("hi")], context=blocks)
    assert prompt.instructions == "Be brief.\n\n## Context\n\n### Customer\n\nAda"


def test_a_conversation_that_cannot_fit_is_refused_with_both_figures():
    items = [user_message("word " * 4000)]
    with pytest.raises(ContextTooLarge, match=r"about 50\d\d tokens .* accepts 2000"):
        render_prompt("", items, context_window=2000)


def test_what_may_fit_is_left_to_the_provider():
    """Of such words a model needs half of the tokens that four bytes each make."""
    items = [user_message("internationalisation " * 600)]
    assert render_prompt("", items, context_window=2000).items == items


def test_a_stopped_call_is_answered_before_the_next_message():
    repaired = repair_history([user_message("a"), call(1), user_message("b")])
    assert [item["type"] for item in repaired] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


def test_images_count_as_tokens_not_as_bytes():
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 10**6}
    item = {**user_message("look"), "content": [image]}
    assert estimate_tokens("", [item]) < 2000
    assert estimate_tokens("", [function_call_output("c", [image])]) < 2000


@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
@pytest.mark.parametrize(
    "kind",
    ["mcp_approval_request", "mcp_list_tools", "web_search_call", "x_search_call"],
)
def test_a_receipt_that_was_cut_off_is_left_out_unless_it_has_a_proof(kind, status):
    receipt = {"type": kind, "id": "x_1", "status": status}
    proven = {**receipt, "provider_data": {"issuer": {}, "raw": {}}}
    question = user_message("a")
    assert repair_history([receipt, question]) == [question]
    assert repair_history([proven, question]) == [proven, question]
    done = {**receipt, "status": "completed"}
    assert repair_history([done, question]) == [done, question]
