"""Whatever the answer and wherever it is cut: it ends whole, with nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from tests.conversations.interruptions import CALL_ID_KEY, Model, Scene, content

SAYING = ["thought", "summary", "hidden", "message", "closed", "refusal", "search"]
KINDS = st.sampled_from(SAYING)
CALLS = st.sampled_from([["act"], ["act", "act"], ["later"], ["act", "later"]])


@st.composite
def plans(draw: st.DrawFn) -> list[list[str]]:
    """Steps with calls, and then one without."""
    steps = [
        [*draw(st.lists(KINDS, max_size=3)), *draw(CALLS)]
        for _ in range(draw(st.integers(0, 2)))
    ]
    return [*steps, draw(st.lists(KINDS, max_size=3).filter(_ends))]


def _ends(kinds: Sequence[str]) -> bool:
    return not kinds or kinds[-1] != "search"  # with which the model only pauses


cuts = st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=4)


@given(
    plans(),
    cuts,
    st.booleans(),
    st.none() | st.integers(1, 60),
    st.sampled_from(["", "goes on", "repeats"]),
)
def test_an_answer_that_is_interrupted_ends_whole(
    steps: list[list[str]],
    cuts: list[tuple[int, bool]],
    other_words: bool,
    news_at: int | None,
    prefill: str,
) -> None:
    note(f"{steps} {cuts} {other_words} {news_at} {prefill}")
    scene = Scene(Model(steps, other_words, prefill), cuts, news_at)
    ending = asyncio.run(scene.live())
    assert ending["status"] == "completed"
    assert_whole(scene, ending["output"])


def assert_whole(scene: Scene, output: list[dict[str, Any]]) -> None:
    answer = [item for item in output if not item.get("parley:interrupted")]
    spoken = [
        content(item)
        for item in answer
        if item["type"] != "function_call_output" and CALL_ID_KEY not in item
    ]
    expected = [each for _, step in sorted(scene.model.spoken.items()) for each in step]
    if scene.model.other_words:  # reasoning that led to the same text remains
        spoken, expected = (
            [i for i in e if not _is_thought(i)] for e in (spoken, expected)
        )
    assert spoken == expected
    # Each call has one output, each result one message, and nothing ran twice.
    calls = [i["call_id"] for i in output if i["type"] == "function_call"]
    outputs = [i["call_id"] for i in output if i["type"] == "function_call_output"]
    assert sorted(calls) == sorted(outputs) == sorted(set(calls))
    # A result that came in the last moment is what the next turn begins with.
    delivered = [
        i[CALL_ID_KEY] for i in [*output, *scene.store.undelivered] if CALL_ID_KEY in i
    ]
    assert sorted(delivered) == sorted(scene.store.concluded)
    assert all(count <= 1 for count in scene.effects.values())
    # What was read is still there, in one place.
    texts = [content(item)[-1] for item in output]
    for item in scene.store.read:
        if item["type"] in ("message", "reasoning") and CALL_ID_KEY not in item:
            read = content(item)[-1]
            assert any(text.startswith(read) for text in texts), (read, texts)
    # And was never taken for the model's output.
    assert not any(
        item.get("parley:interrupted")
        for request in scene.model.requests
        for item in request
    )


def _is_thought(entry: tuple[Any, ...]) -> bool:
    return bool(entry[0] == repr("reasoning"))
