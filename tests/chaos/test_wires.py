"""The chaos provider speaks its wire formats as Parley's decoders read them."""

from __future__ import annotations

import json

import pytest

from llm import providers
from llm.errors import LLMError
from llm.wire.delta_reader import DeltaReader
from llm.wire.response_builder import ResponseBuilder

from .answers import Answer
from .checker import _is_of
from .offered import HOSTS
from .scenarios import ONLY_ON, SCENARIOS, answer_to
from .wires import WIRES
from .wish import Wish, wish_in

PLANNED = [
    (wire, scenario, step)
    for scenario, steps in SCENARIOS.items()
    for step in range(len(steps))
    for wire in ONLY_ON.get(scenario, WIRES)
]


def read(wire: str, data: bytes) -> ResponseBuilder:
    provider = providers.all_providers()[HOSTS[wire][0]]
    builder = ResponseBuilder(id="r", model="chaos")
    builder.begin_call()
    reader = DeltaReader(provider.codec().decoder())
    builder.feed(reader.feed(data))
    builder.feed(reader.close(None))
    if reader.error:
        raise reader.error
    builder.end_call()
    return builder


def given(wire: str, answer: Answer) -> bytes:
    return b"".join(frame.data for frame in WIRES[wire].frames(answer, "c_1"))


@pytest.mark.parametrize(("wire", "scenario", "step"), PLANNED)
def test_an_answer_is_read_as_it_was_given(wire: str, scenario: str, step: int):
    wish = Wish(id="w1", scenario=scenario, size=9)
    answer = answer_to(wish, step, request_number=3)
    output = read(wire, given(wire, answer)).output
    assert len(output) == len(answer.parts)
    for item, part in zip(output, answer.parts, strict=True):
        assert _is_of(item, part), (item, part)


@pytest.mark.parametrize("wire", WIRES)
def test_a_failure_in_the_stream_is_read_as_one(wire: str):
    data = b"".join(frame.data for frame in WIRES[wire].error_frames())
    with pytest.raises(LLMError):
        read(wire, data)


def test_a_wish_is_parsed_as_it_was_formatted():
    wish = Wish(id="w1", scenario="loop", hold={"1": 4}, pace=0.5)
    assert wish_in(f"Please: {wish.text()}") == wish
    assert json.loads(wish.text().removeprefix("chaos "))["hold"] == {"1": 4}
