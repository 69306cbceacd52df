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
        ("<think>Hm.", ""),
        ("It wrote <think>Hm.</think> before", "It wrote <think>Hm.</think> before"),
        ("The tag is <think>", "The tag is <think>"),
    ],
)
def test_a_thought_in_the_text_is_no_part_of_the_answer(text: str, rest: str):
    assert remove_thought(text) == rest
