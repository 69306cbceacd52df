"""Conversations of other programs, from samples (samples/README.md) to turns."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conversations.transfer.source import (
    MAX_MESSAGES,
    SourceConversation,
    SourceMessage,
    SourceTurn,
    Unreadable,
    time,
    title,
    to_turns,
)
from conversations.transfer.sources import chatgpt, claude, librechat, open_webui

SAMPLES = Path(__file__).parent / "samples"
SOURCES = (chatgpt, claude, open_webui, librechat)


def sample(name: str) -> list[dict[str, Any]]:
    value = json.loads((SAMPLES / f"{name}.json").read_text())
    return value if isinstance(value, list) else [value]


def turns(reader: ModuleType, name: str, number: int = 0) -> list[SourceTurn]:
    return to_turns(reader.read(sample(name)[number]))


def words(found: list[SourceTurn]) -> list[tuple[int | None, list[str]]]:
    return [(turn.parent, [each.text for each in turn.messages]) for turn in found]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda p: p.stem)
def test_each_sample_is_recognised_by_one_reader(path: Path):
    for value in sample(path.stem):
        found = [reader for reader in SOURCES if reader.recognises(value)]
        assert len(found) == 1
        assert path.stem.startswith(found[0].PROGRAM.replace("-", "_"))


# ChatGPT


def test_chatgpt_keeps_both_answers_and_ends_where_the_user_was():
    first = "Which rivers cross Paris?"
    long = "The Seine, and the Bièvre underground."
    assert words(turns(chatgpt, "chatgpt")) == [
        (None, [first, "The Seine."]),
        (None, [first, long]),
        (0, ["Thanks.", "You are welcome."]),
        (1, ["And in this picture?", "The Rhône: ∑ 🏞"]),
    ]


def test_chatgpt_tells_what_was_left_out():
    found = chatgpt.read(sample("chatgpt")[0])
    assert found.left_out == {
        "pictures and files": 1,
        "calls of tools and reasoning": 2,
        "messages of tools": 1,
    }
    assert found.is_pinned
    assert turns(chatgpt, "chatgpt")[-1].model == "gpt-5"


def test_chatgpt_without_an_answer_or_without_messages():
    assert words(turns(chatgpt, "chatgpt", 1)) == [(None, ["No answer came"])]
    with pytest.raises(Unreadable, match="no messages with text"):
        turns(chatgpt, "chatgpt", 2)
    assert words(turns(chatgpt, "chatgpt_old")) == [(None, ["What is 2+2?", "4"])]


def answered(text: str, references: Any = None) -> str:
    """What is read of an answer with this text. The shape of `content_references` is
    that of https://github.com/Laumss/loominary/issues/17."""
    value = sample("chatgpt_old")[0]
    message = value["mapping"]["y"]["message"]
    message["content"]["parts"] = [text]
    message["metadata"]["content_references"] = references
    return to_turns(chatgpt.read(value))[-1].messages[-1].text


CITED = "\ue200cite\ue202turn0search1\ue202turn0news3\ue201"
ENTITY = '\ue200entity\ue202["people", "Ada Lovelace", 0]\ue201'


@pytest.mark.parametrize(
    ("text", "references", "expected"),
    [
        (
            f"It rains. {CITED} Often.",
            [{"matched_text": CITED, "alt": "([Met](https://a.example))"}],
            "It rains. ([Met](https://a.example)) Often.",
        ),
        (
            f"It rains {CITED}.",
            [
                {"matched_text": " ", "alt": ""},  # the footnote of all sources
                {
                    "matched_text": CITED,
                    "alt": None,
                    "items": [{"title": "A [b]", "url": "https://a.example"}, 7],
                },
            ],
            "It rains ([A b](https://a.example)).",
        ),
        (f"It rains {CITED}.", None, "It rains."),
        (
            f"{ENTITY} wrote{CITED} it.",
            [7, {"matched_text": 7}],
            "Ada Lovelace wrote it.",
        ),
        ("A\ue203bold\ue204 word \ue200navlist\ue202{\ue201", {}, "Abold word"),
        (
            "\ue200entity\ue202[7]\ue201Said【11†source】 so【3:0†a.pdf】.",
            [],
            "Said so.",
        ),
        ("【note】【2024年】 stays", [], "【note】【2024年】 stays"),
    ],
)
def test_chatgpt_s_marks_of_citations_become_links_or_vanish(
    text: str, references: Any, expected: str
):
    assert answered(text, references) == expected


def test_chatgpt_counts_attached_files_once_and_names_those_of_an_empty_message():
    """`metadata.attachments` is in no published description that we found: its `id`,
    `name` and `mime_type` are as the programs that read exports use them. The reader
    needs none of them."""
    value = sample("chatgpt")[0]
    asked, pictured = (value["mapping"][id]["message"] for id in ("u2", "u2b"))
    asked["content"]["parts"] = [""]
    asked["metadata"]["attachments"] = [
        {"id": "file-1", "name": "report.pdf", "mime_type": "application/pdf"},
        {"id": 7, "name": None},
        "no object",
    ]
    pictured["metadata"]["attachments"] = [{"id": "file-abc", "name": "photo.png"}]
    found = chatgpt.read(value)
    assert found.left_out["pictures and files"] == 3
    assert (0, ["[report.pdf]", "You are welcome."]) in words(to_turns(found))


def test_messages_in_a_circle_are_told_not_followed():
    value = sample("chatgpt_old")[0]
    value["mapping"]["x"]["parent"] = "y"
    with pytest.raises(Unreadable):
        to_turns(chatgpt.read(value))
    value["mapping"]["z"] = {**value["mapping"]["y"], "parent": "z", "id": "z"}
    value["mapping"]["first"] = {**value["mapping"]["x"], "parent": None}
    found = chatgpt.read(value)
    assert words(to_turns(found)) == [(None, ["What is 2+2?"])]
    assert found.left_out["messages without a beginning"] == 3


# Claude, Open WebUI, LibreChat


def test_claude_reads_blocks_attachments_and_branches():
    assert words(turns(claude, "claude")) == [
        (
            None,
            [
                "[contract.txt]\nClause 1: tea.\n\nPlease read this.",
                "It is about tea.\n\nNothing else.",
            ],
        ),
        (0, ["Older wording"]),
        (0, ["Who signs?", "Nobody yet."]),
    ]
    left_out = claude.read(sample("claude")[0]).left_out
    blocks = [
        block["type"]
        for row in sample("claude")[0]["chat_messages"]
        for block in row.get("content", [])
    ]
    others = [kind for kind in blocks if kind != "text"]
    assert "thinking" in others
    assert left_out["calls of tools and reasoning"] == len(others)
    assert left_out["pictures and files"] == 1
    assert words(turns(claude, "claude_old")) == [(None, ["Hello!", "Hi there."])]


def test_open_webui_ends_at_the_current_answer_although_it_is_older():
    assert words(turns(open_webui, "open_webui")) == [
        (None, ["What is 15 * 17?", "250"]),
        (None, ["What is 15 * 17?", "255"]),
    ]
    found = open_webui.read(sample("open_webui")[0])
    assert found.tags == ["maths", "School"]
    assert found.is_archived
    assert words(turns(open_webui, "open_webui_old")) == [(None, ["Hello", "Hi!"])]


_THOUGHT = '<details type="reasoning" done="true">'


@pytest.mark.parametrize(
    ("role", "text", "kept"),
    [
        ("user", '<details type="faq">Mine</details>', "all"),
        ("user", f"{_THOUGHT}Mine</details>", "all"),
        ("assistant", '<details type="faq">Said</details>', "all"),
        ("assistant", f"{_THOUGHT}a<details>b</details>c</details>Said", "Said"),
        ("assistant", f"{_THOUGHT}a</details>{_THOUGHT}b</details>Said", "Said"),
        ("assistant", f"{_THOUGHT}a <details b</details>Said", "Said"),
        ("assistant", f"Said {_THOUGHT}a", "all"),
    ],
)
def test_open_webui_loses_the_program_s_own_details_alone(
    role: str, text: str, kept: str
):
    row = {"role": role, "content": text}
    found = open_webui.read({"id": "a", "chat": {"messages": [row]}})
    assert [m.text for m in found.messages] == [text if kept == "all" else kept]


@pytest.mark.parametrize("name", ["librechat_recursive", "librechat_flat"])
def test_librechat_reads_both_forms_alike(name: str):
    assert words(turns(librechat, name)) == [
        (None, ["Which tea?", "Green tea."]),
        (None, ["Which tea?", "Black tea."]),
        (1, ["Why?"]),
    ]
    left_out = librechat.read(sample(name)[0]).left_out
    has_thoughts = '"think"' in json.dumps(sample(name))
    assert (left_out["calls of tools and reasoning"] > 0) == has_thoughts


def test_a_conversation_of_a_thousand_nested_answers_is_read():
    below: list[Any] = []
    for number in range(400):
        row = {"messageId": str(number), "text": "x", "children": below}
        below = [{**row, "isCreatedByUser": number % 2 == 0}]
    value = {"conversationId": "deep", "messagesTree": below}
    assert sum(len(t.messages) for t in to_turns(librechat.read(value))) == 400


# Whatever the file says

_NAMES = (
    "id parent children message author role content parts content_type text uuid sender"
    " history messages currentId parentId messageId title chat conversationId metadata"
    " parentMessageId create_time current_node"
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_NAMES.split()),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@example(claude, {"sender": []})
@given(st.sampled_from(SOURCES), VALUES)
def test_wrong_types_make_one_error_and_no_other(reader: ModuleType, value: Any):
    names = {
        chatgpt: {"id": "x", "mapping": {"a": value, "b": {"message": value}}},
        claude: {"uuid": "x", "chat_messages": [value, value]},
        open_webui: {"id": "x", "chat": {"history": {"messages": {"a": value}}}},
        librechat: {"conversationId": "x", "messages": [value], "messagesTree": value},
    }
    hostile = names[reader]
    if not reader.recognises(hostile):
        return
    with suppress(Unreadable):
        to_turns(reader.read(hostile))


@st.composite
def trees(draw: st.DrawFn) -> list[SourceMessage]:
    size = draw(st.integers(1, 12))
    made = []
    for number in range(size):
        parent = draw(st.integers(0, number - 1)) if number else None
        role = draw(st.sampled_from(["user", "assistant"]))
        at = time(draw(st.sampled_from([None, 1.7e9, 1.7e9 + number, 1.6e9])))
        above = None if parent is None else str(parent)
        made.append(
            SourceMessage(id=str(number), parent=above, role=role, text="t", at=at)
        )
    return made


@given(trees(), st.integers(0, 12))
def test_every_way_through_the_tree_is_a_way_through_the_turns(
    messages: list[SourceMessage], current: int
):
    found = to_turns(
        SourceConversation(
            program="p", id="x", title="", messages=messages, current=str(current)
        )
    )
    by_id = {message.id: message for message in messages}
    ways = set()
    for number, turn in enumerate(found):
        assert turn.parent is None or turn.parent < number
        way, at = [m.id for m in turn.messages], turn.parent
        while at is not None:
            way = [m.id for m in found[at].messages] + way
            at = found[at].parent
        assert all(by_id[b].parent == a for a, b in pairwise(way))
        ways.add(way[-1])
    leaves = {m.id for m in messages} - {m.parent for m in messages}
    assert leaves <= ways
    times = [turn.at for turn in found]
    assert times == sorted(set(times))


def test_a_tree_that_would_repeat_too_much_is_refused():
    """One long answer with an alternative at each step."""
    messages = [SourceMessage(id="0", parent=None, role="user", text="t")]
    for number in range(1, 2000):
        above = str(number - 1)
        for id in (str(number), f"{number} too"):
            made = SourceMessage(id=id, parent=above, role="assistant", text="t")
            messages.append(made)
    conversation = SourceConversation(program="p", id="x", title="", messages=messages)
    with pytest.raises(Unreadable, match=f"{MAX_MESSAGES:,}"):
        to_turns(conversation)


def test_a_title_is_one_short_line():
    assert title("a\0b\n\tc\u202e d") == "a\ufffdb c d"
    assert len(title("x" * 5000)) == 200
    assert title({"a": 1}) == ""


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -1,
        1e300,
        float("nan"),
        "soon",
        "0001-01-01",
        "2150-01-01",
        {},
        10**40,
    ],
)
def test_a_wrong_time_is_no_time(value: Any):
    assert time(value) is None


def test_seconds_milliseconds_and_texts_are_the_same_time():
    assert time(1.7e9) == time(1.7e12) == time("2023-11-14T22:13:20Z")
