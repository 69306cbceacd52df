"""Changing models never breaks a chat.

Turns go round as the engine makes them go round: `next_step`, the real codecs, the
builder's items with their proofs and issuers, and history as `mended` gives it. On the
other side stand fakes that refuse what the real providers refuse (`tests.llm.strict`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.turns.history import repair_history
from llm.provider import Endpoint
from llm.providers import all_providers
from llm.wire.items import Issuer, Item, function_call_output, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder
from tests.llm.strict import chat, gemini, messages, responses
from tests.llm.strict.rules import TOOL, Refusal, mark, marks_in
from tools.loop.steps import CallTools, Generate, next_step

PNG = "data:image/png;base64,iVBORw0KGgo="


@dataclass(frozen=True)
class Party:
    provider: str
    fake: ModuleType
    model: str
    codec: str = ""
    route: str = "1:1"

    def __str__(self) -> str:
        return f"{self.model}.{self.fake.__name__.rpartition('.')[2]}"

    @property
    def endpoint(self) -> Endpoint:
        provider = all_providers()[self.provider]
        codec = provider.codec(self.codec)
        return Endpoint(provider=provider, codec=codec, route=self.route)

    @property
    def issuer(self) -> Issuer:
        return self.endpoint.issuer(self.model)

    def body(self, items: Sequence[Item]) -> dict[str, Any]:
        request = Request(
            model=self.model,
            items=items,
            instructions="Be brief.",
            tools=[TOOL],
            reasoning={"effort": "medium", "summary": "auto"},
            issuer=self.issuer,
        )
        encoded = self.endpoint.codec.encode(request)
        return orjson.loads(orjson.dumps(encoded))


PARTIES = [
    Party("openai", responses, "gpt-6-luna"),
    Party("xai", responses, "grok-4.7"),
    Party("openai", chat, "gpt-6-luna", "openai_chat"),
    Party("deepseek", chat, "deepseek-v4-pro"),
    Party("anthropic", messages, "claude-sonnet-5-5"),
    Party("anthropic", messages, "claude-haiku-4-5"),  # thinks within a budget
    Party("gemini", gemini, "gemini-3.8-flash"),
    Party("gemini", gemini, "gemini-3-flash-preview"),  # its calls have no ids
]
PAIRS = list(itertools.product(PARTIES, repeat=2))


@dataclass(kw_only=True)
class Wanted:
    """A turn: the message, and the steps that follow."""

    wish: str = "tools"
    image: bool = False  # in the question
    output: str | list[dict[str, Any]] = "It is 3 °C."
    outputs_reversed: bool = False
    stopped: bool = False  # by the user, while the tools run
    cut: float | None = None  # the connection, after so much of the first answer


@dataclass
class Conversation:
    items: list[Item] = field(default_factory=list)
    #: Whole answers, by issuer: what they must come back as.
    issued: list[tuple[Issuer, list[Any]]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def turn(self, *parties: Party, wanted: Wanted) -> None:
        """Each party makes one step, the last one all that remain."""
        question = [_question(wanted)]
        self.items += question
        receivers = itertools.chain(parties, itertools.repeat(parties[-1]))
        builder = ResponseBuilder(id="resp_1", model="m")
        ended_output: int | None = None
        while True:
            before = len(self.items)
            match next_step(builder.output, ended_output=ended_output, steps_left=9):
                case Generate():
                    self._generate(next(receivers), builder, wanted)
                    ended_output = len(builder.output)
                case CallTools(calls) if not wanted.stopped:
                    outputs = [
                        function_call_output(call["call_id"], wanted.output)
                        for call in calls
                    ]
                    for output in outputs[:: -1 if wanted.outputs_reversed else 1]:
                        builder.add(output)
                        self.items.append(output)
                case _:
                    return
            if builder.ended or len(self.items) == before:
                return  # an empty answer is an answer

    def _generate(self, party: Party, builder: ResponseBuilder, wanted: Wanted) -> None:
        body = party.body(repair_history(self.items))
        self.bodies.append(body)
        answer = party.fake.answer(body, party.issuer)
        assert not isinstance(answer, Refusal), f"{party}: {answer.message}"
        self._check(party, body)
        before, length = len(builder.output), len(answer)
        if wanted.cut is not None and not before:
            length = int(wanted.cut * length)
        _read(party, answer[:length], builder, whole=length == len(answer))
        for item in builder.output[before:]:
            if (raw := builder.proofs.get(item["id"])) is not None:
                item = {**item, "provider_data": {"issuer": party.issuer, "raw": raw}}
            self.items.append(orjson.loads(orjson.dumps(item)))
        if wanted.wish in ("tools", "steps", "words") and length == len(answer):
            self.issued.append((party.issuer, party.fake.issued(answer)))

    def _check(self, party: Party, body: dict[str, Any]) -> None:
        assert marks_in(body) <= {mark(party.issuer)}, "a proof went to somebody else"
        spoken = party.fake.assistant_content(body)
        for issuer, issued in self.issued:
            if issuer == party.issuer:
                assert _holds(spoken, issued), f"{party}: an answer came back changed"


def _question(wanted: Wanted) -> Item:
    question = user_message(f"wish: {wanted.wish}")
    if wanted.image:
        picture = {"type": "input_image", "image_url": PNG, "detail": "auto"}
        question["content"].append(picture)
    return question


def _read(party: Party, answer: bytes, builder: ResponseBuilder, whole: bool) -> None:
    sse, decoder = SSEDecoder(), party.endpoint.codec.decoder()
    builder.begin_call()
    for event in sse.feed(answer):
        builder.feed(list(decoder.feed(event)))
    if not whole:
        builder.cancel()
        return
    for event in sse.close():
        builder.feed(list(decoder.feed(event)))
    builder.feed(list(decoder.close()))
    builder.end_call()


def _holds(whole: list[Any], part: list[Any]) -> bool:
    """Whether `whole` contains `part` in one piece."""
    starts = range(len(whole) - len(part) + 1)
    return any(whole[n : n + len(part)] == part for n in starts)


SEEN = [
    {"type": "input_text", "text": "A picture:"},
    {"type": "input_image", "image_url": PNG, "detail": "auto"},
]
WANTED = {
    "two tools at once": Wanted(),
    "two rounds of tools": Wanted(wish="steps"),
    "words alone": Wanted(wish="words"),
    "a call cut short by the limit": Wanted(wish="cut"),
    "the only call cut short": Wanted(wish="halt"),
    "a thought and no more": Wanted(wish="think"),
    "a refusal": Wanted(wish="refuse"),
    "stopped while tools ran": Wanted(stopped=True),
    "outputs in another order": Wanted(outputs_reversed=True),
    "an image in the question": Wanted(image=True),
    "an image in an output": Wanted(output=SEEN),
    "an output of nothing": Wanted(output=""),
    "a tool that failed": Wanted(output="Error: the server is down."),
    "a line that broke": Wanted(cut=0.7),
    "a line that broke in the text": Wanted(wish="words", cut=0.9),
}


#: The other stories take a second each, for every pair of models.
QUICK = {"words alone", "two tools at once", "two rounds of tools"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in WANTED
    ],
)
def test_there_and_back_again(name: str):
    wanted = WANTED[name]
    for a, b in PAIRS:
        with naming(a, b):
            chat = Conversation()
            chat.turn(a, wanted=Wanted())
            chat.turn(b, wanted=wanted)
            chat.turn(a, wanted=wanted)
            chat.turn(b, wanted=Wanted())
            chat.turn(a, wanted=Wanted())


@contextmanager
def naming(*parties: Party) -> Iterator[None]:
    """Add the parties to an error that comes of them."""
    try:
        yield
    except Exception as exc:
        exc.add_note(" and ".join(map(str, parties)))
        raise


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=str)
def test_another_takes_over_between_two_steps(a: Party, b: Party):
    chat = Conversation()
    chat.turn(a, b, wanted=Wanted(wish="steps"))
    chat.turn(b, a, b, wanted=Wanted(wish="steps"))
    chat.turn(a, wanted=Wanted())
    chat.turn(b, wanted=Wanted())


@pytest.mark.parametrize("party", PARTIES, ids=str)
def test_proofs_of_one_key_never_go_out_with_another(party: Party):
    other = replace(party, route="1:2")
    chat = Conversation()
    for each in (party, other, party, other):
        chat.turn(each, wanted=Wanted(wish="steps"))
    chat.turn(party, other, party, wanted=Wanted(wish="steps"))
    chat.turn(other, wanted=Wanted(wish="words"))


turns = st.tuples(
    st.sampled_from(PARTIES),
    st.sampled_from(PARTIES),
    st.sampled_from(["1:1", "1:2"]),
    st.builds(
        Wanted,
        wish=st.sampled_from(
            ["tools", "steps", "words", "cut", "halt", "think", "refuse"]
        ),
        image=st.booleans(),
        output=st.sampled_from(["", "Found.", SEEN, '{"found": 1}', SEEN[1:]]),
        outputs_reversed=st.booleans(),
        stopped=st.booleans(),
        cut=st.none() | st.floats(0, 0.99),
    ),
)


@given(st.lists(turns, min_size=1, max_size=5))
def test_any_walk_among_providers_goes_well(walk: list[Any]):
    chat = Conversation()
    for first, then, route, wanted in walk:
        chat.turn(replace(first, route=route), then, wanted=wanted)
    for party in {then for _, then, _, _ in walk}:
        chat.turn(party, wanted=Wanted())


# The fakes themselves: their acceptance is evidence only if they also refuse.


Change = Callable[[dict[str, Any]], None]


def _without(kind: str) -> Change:
    """Takes out the first object that is of `kind`, or has a field of that name."""

    def change(body: dict[str, Any]) -> None:
        parts, part = _first(body, kind)
        parts.remove(part)

    return change


def _with(kind: str, name: str, value: Any) -> Change:
    def change(body: dict[str, Any]) -> None:
        _, part = _first(body, kind)
        part[name] = value

    return change


def _thoughtless(body: dict[str, Any]) -> None:
    _, part = _first(body, "reasoning_content")
    del part["reasoning_content"]


def _first(body: dict[str, Any], kind: str) -> tuple[list[Any], dict[str, Any]]:
    found = (body.get(name) for name in ("system", "messages", "input", "contents"))
    return next(
        (parts, part)
        for parts in _lists(list(found))
        for part in parts
        if isinstance(part, dict) and (part.get("type") == kind or kind in part)
    )


def _lists(value: Any) -> Iterator[list[Any]]:
    """Every list in `value`, from the outside in."""
    if isinstance(value, list):
        yield value
    if isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _lists(each)


BY_MODEL = {str(party): party for party in PARTIES}
FOREIGN = "FAKE-somebody-else-1:1-0123456789ab"
REFUSED = [
    ("gpt-6-luna.responses", _without("function_call_output"), "No tool output found"),
    ("gpt-6-luna.responses", _without("function_call"), "No tool call found"),
    ("gpt-6-luna.responses", _without("reasoning"), "without its required 'reasoning'"),
    (
        "gpt-6-luna.responses",
        _with("reasoning", "encrypted_content", FOREIGN),
        "could not be verified",
    ),
    ("gpt-6-luna.responses", _with("reasoning", "id", "rs_x_0"), "not found"),
    ("gpt-6-luna.responses", _with("message", "provider_data", {}), "Unknown param"),
    ("grok-4.7.responses", _with("message", "role", "developer"), "Invalid value"),
    ("gpt-6-luna.chat", _without("tool_call_id"), "did not have response messages"),
    ("gpt-6-luna.chat", _without("tool_calls"), "must be a response to a preceeding"),
    ("gpt-6-luna.chat", _with("tool_calls", "reasoning_content", ""), "Unknown param"),
    ("deepseek-v4-pro.chat", _with("tool_calls", "refused", 1), "Unknown parameter"),
    ("deepseek-v4-pro.chat", _thoughtless, "must be passed back"),
    ("claude-sonnet-5-5.messages", _without("tool_result"), "immediately after"),
    ("claude-sonnet-5-5.messages", _without("tool_use"), "unexpected `tool_use_id`"),
    ("claude-sonnet-5-5.messages", _without("thinking"), "Invalid `signature`"),
    (
        "claude-sonnet-5-5.messages",
        _with("thinking", "signature", FOREIGN),
        "Invalid `signature`",
    ),
    (
        "claude-sonnet-5-5.messages",
        _with("text", "text", "Be loud."),
        "bound to a different conversation",
    ),
    ("gemini-3.8-flash.gemini", _without("functionResponse"), "number of function"),
    ("gemini-3.8-flash.gemini", _without("functionCall"), "number of function"),
    (
        "gemini-3.8-flash.gemini",
        _with("functionCall", "thoughtSignature", FOREIGN),
        "Thought signature is not valid",
    ),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_the_fakes_refuse_what_the_real_ones_refuse(
    name: str, change: Change, message: str
):
    party = BY_MODEL[name]
    chat = Conversation()
    chat.turn(party, wanted=Wanted(wish="tools"))
    body = chat.bodies[-1]
    change(body)
    answer = party.fake.answer(body, party.issuer)
    assert isinstance(answer, Refusal)
    assert message in answer.message
