from __future__ import annotations

import pytest

from conversations.pages.markdown import render

HOSTILE = ["[", "![", "[^", "://", "http://a.", "<http://", "ftp://a.b/", "- [ ] a\n"]


@pytest.mark.timeout(60)  # rendered as Markdown, some of these take minutes
@pytest.mark.parametrize("unit", HOSTILE)
def test_a_text_made_to_be_slow_is_shown_as_it_is(unit: str):
    text = unit * (99_000 // len(unit))
    assert (
        '<p class="plain" dir="auto">' in render(text)[:70]
    )  # after the frame of a long text


@pytest.mark.parametrize(
    "text",
    [
        "[a](https://b.example/c) and [d][e]\n\n" * 500,
        "- https://a.example/b?c=https://d.example\n\n" * 500,
        "- [ ] a\n- [x] b\n" * 200,
        f"`{'[1, [2, 3]], ' * 2_000}`",
        "```\n" + "[[" * 90 + "\n```",
    ],
)
def test_ordinary_text_is_rendered(text: str):
    assert 'class="plain"' not in render(text)
