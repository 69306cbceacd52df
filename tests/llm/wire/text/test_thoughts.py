from __future__ import annotations

import pytest

from llm.wire.text.thoughts import remove_thought


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Rivers", "Rivers"),
        ("<think>Hm.</think>Rivers", "Rivers"),
        ("\n<thinking>Hm.</thinking>Rivers", "Rivers"),
        ("The user asks.\n</think>Rivers", "Rivers"),
        ("The user asks.\n</thinking>Rivers", "Rivers"),
        ("So it is rivers.</think>Rivers", "Rivers"),
        ("So it is rivers</think>\n\nRivers", "\n\nRivers"),
        ("Why `</think>` stays is unclear.\n</think>\n\nRivers", "\n\nRivers"),
        ("So it is rivers</think>\nRivers", "\nRivers"),
        ("Say:\n```py\n</think>\n\nRivers", "\n\nRivers"),
        ("```\n</think>\n```\nIt is rivers.</think>Rivers", "Rivers"),
        ("<think>Hm.", ""),
        ("It wrote <think>Hm.</think> before", "It wrote <think>Hm.</think> before"),
        ("The tag is <think>", "The tag is <think>"),
    ],
)
def test_a_thought_in_the_text_is_no_part_of_the_answer(text: str, rest: str):
    assert remove_thought(text) == rest


@pytest.mark.parametrize(
    "text",
    [
        "Goal: parse tags. The user asked why `</think>` stays in the text; X.",
        "Their template ends a thought with </think> and the parser looks for it.",
        "The last line is </think>\n\nThe user wants tests.",
        "The tag “</think>” and '</thinking>' are wanted. X.",
        "The template:\n```\n{{ thought }}\n</think>\n```\nThe user wants tests.",
    ],
)
def test_a_text_that_mentions_the_end_of_a_thought_stays_whole(text: str):
    assert remove_thought(text) == text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("I plan it </think> Cats", " Cats"),
        ("思考</think>标题", "标题"),
        ("Why `</think>` stays: cut </think> Cats", " Cats"),
        ("Removing `</think>` tags", "Removing `</think>` tags"),
    ],
)
def test_nearly_any_end_counts_in_a_short_text(text: str, rest: str):
    assert remove_thought(text, is_short=True) == rest
